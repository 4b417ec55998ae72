#include "context.h"

#include "channel.h"
#include "device.h"
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>

#define STACK_DEPTH 32

/* Contexts are never freed: a handle that is used after its end must be recognised, not dereferenced. */
static struct context *contexts;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread CUcontext stack[STACK_DEPTH];
static __thread int depth;

static int tell_daemon(const char *verb, int physical) {
    struct answer answer;
    int rc = ask(&answer, "%s %d", verb, physical);
    answer_done(&answer);
    return rc == CHANNEL_LOST ? UNKNOWN : rc;
}

static int bring_to_life(struct context *context) {
    int physical = physical_of(context->ordinal);
    int rc = tell_daemon("context", physical);
    if (rc != SUCCESS)
        return rc;
    devices[physical].contexts++;
    node_open(physical);
    context->alive = true;
    return SUCCESS;
}

static void end_life(struct context *context) {
    int physical = physical_of(context->ordinal);
    memory_free_owned_by(context);
    context->alive = false;
    context->retained = 0;
    devices[physical].contexts--;
    tell_daemon("uncontext", physical);
}

static struct context *new_context(CUdevice ordinal, bool primary, unsigned flags) {
    struct context *context = calloc(1, sizeof *context);
    if (!context)
        return NULL;
    context->ordinal = ordinal;
    context->primary = primary;
    context->flags = flags;
    context->next = contexts;
    contexts = context;
    return context;
}

static struct context *primary_of(CUdevice ordinal) {
    for (struct context *context = contexts; context; context = context->next)
        if (context->primary && context->ordinal == ordinal)
            return context;
    return new_context(ordinal, true, 0);
}

static bool is_known(CUcontext wanted) {
    for (struct context *context = contexts; context; context = context->next)
        if (context == wanted)
            return context->alive;
    return false;
}

bool context_is_valid(CUcontext context) {
    pthread_mutex_lock(&mutex);
    bool valid = is_known(context);
    pthread_mutex_unlock(&mutex);
    return valid;
}

int context_push(CUcontext context) {
    if (!context_is_valid(context))
        return INVALID_CONTEXT;
    if (depth == STACK_DEPTH)
        return INVALID_VALUE;
    stack[depth++] = context;
    return SUCCESS;
}

int context_pop(CUcontext *context) {
    if (depth == 0)
        return INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return SUCCESS;
}

CUcontext context_current(void) {
    return depth > 0 && context_is_valid(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

int context_set_current(CUcontext context) {
    if (!context) {
        depth -= depth > 0;
        return SUCCESS;
    }
    if (!context_is_valid(context))
        return INVALID_CONTEXT;
    if (depth == 0)
        depth = 1;
    stack[depth - 1] = context;
    return SUCCESS;
}

int context_create(CUcontext *created, unsigned flags, CUdevice ordinal) {
    if (!created)
        return INVALID_VALUE;
    if (physical_of(ordinal) < 0)
        return INVALID_DEVICE;
    pthread_mutex_lock(&mutex);
    struct context *context = new_context(ordinal, false, flags);
    int rc = context ? bring_to_life(context) : OUT_OF_MEMORY;
    pthread_mutex_unlock(&mutex);
    if (rc == SUCCESS)
        rc = context_push(*created = context);
    return rc;
}

int context_destroy(CUcontext context) {
    pthread_mutex_lock(&mutex);
    int rc = is_known(context) && !context->primary ? SUCCESS : INVALID_CONTEXT;
    if (rc == SUCCESS)
        end_life(context);
    pthread_mutex_unlock(&mutex);
    if (rc == SUCCESS && depth > 0 && stack[depth - 1] == context)
        depth--;
    return rc;
}

int primary_retain(CUcontext *context, CUdevice ordinal) {
    if (!context)
        return INVALID_VALUE;
    if (physical_of(ordinal) < 0)
        return INVALID_DEVICE;
    pthread_mutex_lock(&mutex);
    struct context *primary = primary_of(ordinal);
    int rc = !primary ? OUT_OF_MEMORY : primary->alive ? SUCCESS : bring_to_life(primary);
    if (rc == SUCCESS) {
        primary->retained++;
        *context = primary;
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}

static int end_primary(CUdevice ordinal, bool whatever_is_retained) {
    if (physical_of(ordinal) < 0)
        return INVALID_DEVICE;
    pthread_mutex_lock(&mutex);
    struct context *primary = primary_of(ordinal);
    int rc = primary && primary->alive ? SUCCESS : whatever_is_retained ? SUCCESS : INVALID_CONTEXT;
    if (primary && primary->alive && (whatever_is_retained || --primary->retained == 0))
        end_life(primary);
    pthread_mutex_unlock(&mutex);
    return rc;
}

int primary_release(CUdevice ordinal) {
    return end_primary(ordinal, false);
}

int primary_reset(CUdevice ordinal) {
    return end_primary(ordinal, true);
}

int primary_state(CUdevice ordinal, unsigned *flags, int *active) {
    if (physical_of(ordinal) < 0)
        return INVALID_DEVICE;
    if (!flags || !active)
        return INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    struct context *primary = primary_of(ordinal);
    *flags = primary ? primary->flags : 0;
    *active = primary && primary->alive;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int primary_set_flags(CUdevice ordinal, unsigned flags) {
    if (physical_of(ordinal) < 0)
        return INVALID_DEVICE;
    pthread_mutex_lock(&mutex);
    struct context *primary = primary_of(ordinal);
    if (primary)
        primary->flags = flags;
    pthread_mutex_unlock(&mutex);
    return primary ? SUCCESS : OUT_OF_MEMORY;
}
