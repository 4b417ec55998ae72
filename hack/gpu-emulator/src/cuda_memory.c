/* Allocation and copies. Copies are local: they never visit the daemon. */
#define _GNU_SOURCE
#include "context.h"
#include "cuda_call.h"
#include "device.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    ENTER();
    CUcontext current = context_current();
    return leave(current ? memory_allocate(current, bytes, pointer) : INVALID_CONTEXT);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    ENTER();
    return leave(context_current() ? memory_free(pointer) : INVALID_CONTEXT);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    ENTER();
    CUcontext current = context_current();
    if (!current || !free_bytes || !total_bytes)
        return leave(current ? INVALID_VALUE : INVALID_CONTEXT);
    struct answer answer;
    int rc = ask(&answer, "meminfo %d", physical_of(current->ordinal));
    *free_bytes = next_number(&answer.text);
    *total_bytes = next_number(&answer.text);
    answer_done(&answer);
    return leave(rc);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
    ENTER();
    return leave(context_current() ? memory_range(pointer, base, size) : INVALID_CONTEXT);
}

EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) {
    ENTER();
    if (!pointer || bytes == 0)
        return leave(INVALID_VALUE);
    return leave(posix_memalign(pointer, 4096, bytes) == 0 ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT CUresult cuMemFreeHost(void *pointer) {
    ENTER();
    free(pointer);
    return leave(SUCCESS);
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes) {
    memory_begin_access();
    void *view = memory_view(to, bytes);
    if (view)
        memcpy(view, from, bytes);
    memory_end_access();
    return view ? SUCCESS : INVALID_VALUE;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes) {
    memory_begin_access();
    const void *view = memory_view(from, bytes);
    if (view)
        memcpy(to, view, bytes);
    memory_end_access();
    return view ? SUCCESS : INVALID_VALUE;
}

static CUresult copy_across(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    memory_begin_access();
    void *target = memory_view(to, bytes);
    const void *source = memory_view(from, bytes);
    if (target && source)
        memmove(target, source, bytes);
    memory_end_access();
    return target && source ? SUCCESS : INVALID_VALUE;
}

static CUresult fill(CUdeviceptr to, uint32_t value, size_t unit, size_t count) {
    if (count > SIZE_MAX / unit || to % unit != 0)
        return INVALID_VALUE;
    memory_begin_access();
    void *view = memory_view(to, count * unit);
    if (view && unit == 1)
        memset(view, (int)(value & 0xff), count);
    for (size_t i = 0; view && unit == 4 && i < count; i++)
        ((uint32_t *)view)[i] = value;
    memory_end_access();
    return view ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER();
    return leave(context_current() ? copy_in(to, from, bytes) : INVALID_CONTEXT);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER();
    return leave(context_current() ? copy_out(to, from, bytes) : INVALID_CONTEXT);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER();
    return leave(context_current() ? copy_across(to, from, bytes) : INVALID_CONTEXT);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, bytes);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)stream;
    return cuMemcpyDtoD_v2(to, from, bytes);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    ENTER();
    return leave(context_current() ? fill(to, value, 1, count) : INVALID_CONTEXT);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    ENTER();
    return leave(context_current() ? fill(to, value, 4, count) : INVALID_CONTEXT);
}
