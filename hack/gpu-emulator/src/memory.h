/* Device memory of this process.
 *
 * The daemon owns the pages (one memfd per device); this process maps them at a shadow address. The device pointer that the application
 * gets lies a constant distance below its shadow, in a window without access rights: dereferencing it on the host faults, as on a GPU. */
#ifndef GPU_EMULATOR_MEMORY_H
#define GPU_EMULATOR_MEMORY_H

#include "cuda_abi.h"

#include <stdbool.h>

#define DEVICE_PAGE ((size_t)2 << 20)

/* Reserves address space for that many bytes of device memory. */
bool memory_set_up(size_t window_bytes);
/* The child of a fork must not share device memory with its parent. */
void memory_forget(void);

int memory_allocate(CUcontext owner, size_t bytes, CUdeviceptr *pointer);
int memory_free(CUdeviceptr pointer);
void memory_free_owned_by(CUcontext owner);
int memory_range(CUdeviceptr pointer, CUdeviceptr *base, size_t *size);

/* Runs copies against concurrent allocation: between begin and end views stay valid. */
void memory_begin_access(void);
void memory_end_access(void);
/* Host address of device bytes, NULL when the range is not inside one allocation. */
void *memory_view(CUdeviceptr pointer, size_t bytes);

/* Moves every byte to host memory of this process and unmaps the device; bandwidth in bytes/s, 0 without limit. */
int memory_park(uint64_t bandwidth, uint64_t *bytes);
/* Maps the pages that the daemon chose (text: count, then per block: page, device, extents) and brings the bytes back. */
int memory_resume(uint64_t bandwidth, char **text, uint64_t *bytes);

#endif
