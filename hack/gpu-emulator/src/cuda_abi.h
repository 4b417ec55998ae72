/* The part of the CUDA driver ABI that the emulator speaks. Layouts and numbers as in the public cuda.h of CUDA 12.8 to 13.5. */
#ifndef GPU_EMULATOR_CUDA_ABI_H
#define GPU_EMULATOR_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef int CUprocessState;
typedef struct { unsigned char bytes[16]; } CUuuid;

typedef struct { uint32_t timeoutMs; uint32_t reserved0; uint64_t reserved1[7]; } CUcheckpointLockArgs;
typedef struct { uint64_t reserved[8]; } CUcheckpointCheckpointArgs;
typedef struct { CUuuid oldUuid; CUuuid newUuid; } CUcheckpointGpuPair;
typedef struct { CUcheckpointGpuPair *gpuPairs; uint32_t gpuPairsCount; uint32_t pad; uint64_t reserved[6]; } CUcheckpointRestoreArgs;
typedef struct { uint64_t reserved[8]; } CUcheckpointUnlockArgs;

_Static_assert(sizeof(CUcheckpointLockArgs) == 64, "lock args");
_Static_assert(sizeof(CUcheckpointCheckpointArgs) == 64, "checkpoint args");
_Static_assert(sizeof(CUcheckpointRestoreArgs) == 64, "restore args");
_Static_assert(sizeof(CUcheckpointUnlockArgs) == 64, "unlock args");
_Static_assert(sizeof(CUcheckpointGpuPair) == 32, "gpu pair");

#define CUDA_RESULTS(X) \
    X(0, SUCCESS, CUDA_SUCCESS, "no error") \
    X(1, INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, "invalid argument") \
    X(2, OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, "out of memory") \
    X(3, NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED, "initialization error") \
    X(4, DEINITIALIZED, CUDA_ERROR_DEINITIALIZED, "driver shutting down") \
    X(34, STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library") \
    X(46, DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable") \
    X(100, NO_DEVICE, CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected") \
    X(101, INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal") \
    X(201, INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, "invalid device context") \
    X(304, OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS") \
    X(400, INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") \
    X(401, ILLEGAL_STATE, CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state") \
    X(500, NOT_FOUND, CUDA_ERROR_NOT_FOUND, "named symbol not found") \
    X(600, NOT_READY, CUDA_ERROR_NOT_READY, "device not ready") \
    X(700, ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered") \
    X(702, LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated") \
    X(719, LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure") \
    X(800, NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED, "operation not permitted") \
    X(801, NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, "operation not supported") \
    X(802, SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized") \
    X(803, SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination") \
    X(805, MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED, "MPS client failed to connect to the MPS control daemon or the MPS server") \
    X(900, STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing") \
    X(909, TIMEOUT, CUDA_ERROR_TIMEOUT, "wait operation timed out") \
    X(999, UNKNOWN, CUDA_ERROR_UNKNOWN, "unknown error")

#define ENUM_ENTRY(code, short_name, name, text) short_name = code,
enum { CUDA_RESULTS(ENUM_ENTRY) };
#undef ENUM_ENTRY

#endif
