/* Contexts of this process and the one that is current on each thread. */
#ifndef GPU_EMULATOR_CONTEXT_H
#define GPU_EMULATOR_CONTEXT_H

#include "cuda_abi.h"

#include <stdbool.h>

struct context {
    CUdevice ordinal;
    bool primary;
    bool alive;
    int retained;
    unsigned flags;
    struct context *next;
};

int context_create(CUcontext *created, unsigned flags, CUdevice ordinal);
int context_destroy(CUcontext context);
int primary_retain(CUcontext *context, CUdevice ordinal);
int primary_release(CUdevice ordinal);
int primary_reset(CUdevice ordinal);
int primary_state(CUdevice ordinal, unsigned *flags, int *active);
int primary_set_flags(CUdevice ordinal, unsigned flags);

/* The calling thread's context, NULL without one or when it has been destroyed. */
CUcontext context_current(void);
int context_set_current(CUcontext context);
int context_push(CUcontext context);
int context_pop(CUcontext *context);
bool context_is_valid(CUcontext context);

#endif
