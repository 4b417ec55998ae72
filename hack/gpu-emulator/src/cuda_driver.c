/* Initialisation, versions, error names, entry points. */
#define _GNU_SOURCE
#include "cuda_call.h"
#include "device.h"
#include "memory.h"
#include "restore_thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;

bool driver_initialised(void);

bool driver_initialised(void) {
    return initialised && !gate_is_forked();
}

static void in_child_of_fork(void) {
    channels_forget();
    if (!initialised)
        return;
    gate_forked();
    nodes_release();
    devices_forget();
    memory_forget();
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(channels_before_fork, channels_after_fork_in_parent, in_child_of_fork);
}

EXPORT CUresult cuInit(unsigned flags) {
    if (flags != 0)
        return INVALID_VALUE;
    if (gate_is_forked())
        return NOT_INITIALIZED;
    pthread_mutex_lock(&init_mutex);
    int rc = initialised ? SUCCESS : restore_thread_start();
    initialised = initialised || rc == SUCCESS;
    pthread_mutex_unlock(&init_mutex);
    return rc;
}

/* May be asked before cuInit, so it has to find the daemon by itself. */
EXPORT CUresult cuDriverGetVersion(int *version) {
    if (!version)
        return INVALID_VALUE;
    *version = driver_version;
    if (driver_version)
        return SUCCESS;
    struct answer answer;
    int rc = ask(&answer, "version");
    if (rc == SUCCESS)
        *version = (int)next_number(&answer.text);
    answer_done(&answer);
    return rc == CHANNEL_LOST ? SUCCESS : rc;
}

#define NAME_CASE(code, short_name, name, text) case code: return #name;
#define TEXT_CASE(code, short_name, name, text) case code: return text;

static const char *error_name(CUresult error) {
    switch (error) { CUDA_RESULTS(NAME_CASE) default: return NULL; }
}

static const char *error_text(CUresult error) {
    switch (error) { CUDA_RESULTS(TEXT_CASE) default: return NULL; }
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    if (!name)
        return INVALID_VALUE;
    *name = error_name(error);
    return *name ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    if (!text)
        return INVALID_VALUE;
    *text = error_text(error);
    return *text ? SUCCESS : INVALID_VALUE;
}

/* The newest variant of a name, as the real function chooses for a new enough version. */
static void *entry_point(const char *name) {
    static void *self;
    char variant[128];
    if (!self) {
        Dl_info info;
        if (!dladdr((void *)&cuInit, &info) || !(self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)))
            return NULL;
    }
    for (int version = 3; version > 1; version--) {
        snprintf(variant, sizeof variant, "%s_v%d", name, version);
        void *found = dlsym(self, variant);
        if (found)
            return found;
    }
    return dlsym(self, name);
}

static CUresult find_entry_point(const char *name, void **function, int *status) {
    if (!name || !function)
        return INVALID_VALUE;
    *function = strncmp(name, "cu", 2) == 0 ? entry_point(name) : NULL;
    if (status)
        *status = *function ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    return *function ? SUCCESS : NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    (void)version, (void)flags;
    return find_entry_point(name, function, NULL);
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    CUresult rc = find_entry_point(name, function, status);
    return status ? SUCCESS : rc;
}
