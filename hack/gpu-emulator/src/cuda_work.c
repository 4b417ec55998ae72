/* Work on the device: there are no kernels, so the one thing to launch is time. Streams share one queue per process. */
#define _GNU_SOURCE
#include "context.h"
#include "cuda_call.h"
#include "device.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct stream {
    unsigned flags;
};

struct event {
    uint64_t done_at; /* 0 until it is recorded */
};

static void wait_until_idle(void) {
    uint64_t left;
    while ((left = gate_busy_left()) > 0) {
        struct timespec pause = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        nanosleep(&pause, NULL);
    }
}

/* Emulator only: occupies the current device for that long, asynchronously, as a kernel would. */
EXPORT CUresult cuEmuLaunchBusy(unsigned milliseconds);

EXPORT CUresult cuEmuLaunchBusy(unsigned milliseconds) {
    ENTER();
    CUcontext current = context_current();
    if (!current)
        return leave(INVALID_CONTEXT);
    struct answer answer;
    gate_add_busy((uint64_t)milliseconds * 1000000u);
    int rc = ask(&answer, "busy %d %lu", physical_of(current->ordinal), gate_busy_left() / 1000000);
    answer_done(&answer);
    return leave(rc);
}

EXPORT CUresult cuCtxSynchronize(void) {
    ENTER();
    if (!context_current())
        return leave(INVALID_CONTEXT);
    wait_until_idle();
    return leave(SUCCESS);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER();
    if (!stream || !context_current())
        return leave(stream ? INVALID_CONTEXT : INVALID_VALUE);
    *stream = malloc(sizeof **stream);
    if (*stream)
        (*stream)->flags = flags;
    return leave(*stream ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    ENTER();
    free(stream);
    return leave(stream ? SUCCESS : INVALID_HANDLE);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    ENTER();
    wait_until_idle();
    return leave(SUCCESS);
}

EXPORT CUresult cuStreamQuery(CUstream stream) {
    (void)stream;
    ENTER();
    return leave(gate_busy_left() ? NOT_READY : SUCCESS);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)stream, (void)flags;
    ENTER();
    return leave(event ? SUCCESS : INVALID_HANDLE);
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    ENTER();
    if (!event || !context_current())
        return leave(event ? INVALID_CONTEXT : INVALID_VALUE);
    *event = calloc(1, sizeof **event);
    return leave(*event ? SUCCESS : OUT_OF_MEMORY);
}

EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    ENTER();
    free(event);
    return leave(event ? SUCCESS : INVALID_HANDLE);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    (void)stream;
    ENTER();
    if (event)
        event->done_at = now_ns() + gate_busy_left();
    return leave(event ? SUCCESS : INVALID_HANDLE);
}

EXPORT CUresult cuEventQuery(CUevent event) {
    ENTER();
    if (!event)
        return leave(INVALID_HANDLE);
    return leave(event->done_at > now_ns() ? NOT_READY : SUCCESS);
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
    ENTER();
    if (!event)
        return leave(INVALID_HANDLE);
    struct timespec until = {(time_t)(event->done_at / 1000000000u), (long)(event->done_at % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
    return leave(SUCCESS);
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    ENTER();
    if (!milliseconds || !start || !end || !start->done_at || !end->done_at)
        return leave(INVALID_HANDLE);
    if (end->done_at > now_ns())
        return leave(NOT_READY);
    *milliseconds = (float)(((double)end->done_at - (double)start->done_at) / 1e6);
    return leave(SUCCESS);
}
