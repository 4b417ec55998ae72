/* What every exported CUDA function begins and ends with. */
#ifndef GPU_EMULATOR_CUDA_CALL_H
#define GPU_EMULATOR_CUDA_CALL_H

#include "channel.h"
#include "cuda_abi.h"
#include "gate.h"

/* Waits at the gate; returns from the calling function when the call may not be made. */
#define ENTER() \
    do { \
        int entered = gate_enter(); \
        if (entered != SUCCESS) \
            return entered; \
    } while (0)

static inline CUresult leave(int rc) {
    gate_leave();
    return rc == CHANNEL_LOST ? UNKNOWN : rc;
}

#endif
