/* Devices and contexts. */
#include "context.h"
#include "cuda_call.h"
#include "device.h"

#include <stdio.h>
#include <string.h>

static const struct device *device_of(CUdevice ordinal) {
    int physical = physical_of(ordinal);
    return physical < 0 ? NULL : &devices[physical];
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    ENTER();
    if (count)
        *count = visible_count();
    return leave(count ? SUCCESS : INVALID_VALUE);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER();
    if (!device)
        return leave(INVALID_VALUE);
    if (!device_of(ordinal))
        return leave(INVALID_DEVICE);
    *device = ordinal;
    return leave(SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice ordinal) {
    ENTER();
    const struct device *device = device_of(ordinal);
    if (!device || !name || size <= 0)
        return leave(device ? INVALID_VALUE : INVALID_DEVICE);
    snprintf(name, (size_t)size, "%s", device->name);
    return leave(SUCCESS);
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal) {
    ENTER();
    const struct device *device = device_of(ordinal);
    if (!device || !uuid)
        return leave(device ? INVALID_VALUE : INVALID_DEVICE);
    *uuid = device->uuid;
    return leave(SUCCESS);
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal) {
    return cuDeviceGetUuid(uuid, ordinal);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal) {
    ENTER();
    const struct device *device = device_of(ordinal);
    if (!device || !bytes)
        return leave(device ? INVALID_VALUE : INVALID_DEVICE);
    *bytes = device->total;
    return leave(SUCCESS);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *bus_id, int size, CUdevice ordinal) {
    ENTER();
    const struct device *device = device_of(ordinal);
    if (!device || !bus_id || size <= 0)
        return leave(device ? INVALID_VALUE : INVALID_DEVICE);
    snprintf(bus_id, (size_t)size, "%s", device->bus_id);
    return leave(SUCCESS);
}

/* Numbers are CUdevice_attribute values; the ones not named here read as 0. */
static int attribute_of(const struct device *device, int attribute) {
    switch (attribute) {
    case 1: case 2: case 3: return 1024;     /* threads per block, block dimensions */
    case 10: return 32;                      /* warp size */
    case 16: return 8;                       /* multiprocessors */
    case 33: return device->bus;
    case 34: return device->slot;
    case 39: return 2048;                    /* threads per multiprocessor */
    case 41: return 1;                       /* unified addressing */
    case 50: return device->domain;
    case 75: return device->major_capability;
    case 76: return device->minor_capability;
    default: return 0;
    }
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice ordinal) {
    ENTER();
    const struct device *device = device_of(ordinal);
    if (!device || !value || attribute <= 0 || attribute > 200)
        return leave(device ? INVALID_VALUE : INVALID_DEVICE);
    *value = attribute_of(device, attribute);
    return leave(SUCCESS);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal) {
    ENTER();
    return leave(context_create(context, flags, ordinal));
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER();
    return leave(context_destroy(context));
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    return leave(context_set_current(context));
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    if (context)
        *context = context_current();
    return leave(context ? SUCCESS : INVALID_VALUE);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER();
    return leave(context_push(context));
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER();
    return leave(context_pop(context));
}

EXPORT CUresult cuCtxGetDevice(CUdevice *ordinal) {
    ENTER();
    CUcontext current = context_current();
    if (!current || !ordinal)
        return leave(ordinal ? INVALID_CONTEXT : INVALID_VALUE);
    *ordinal = current->ordinal;
    return leave(SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal) {
    ENTER();
    return leave(primary_retain(context, ordinal));
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    ENTER();
    return leave(primary_release(ordinal));
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    ENTER();
    return leave(primary_reset(ordinal));
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active) {
    ENTER();
    return leave(primary_state(ordinal, flags, active));
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
    ENTER();
    return leave(primary_set_flags(ordinal, flags));
}
