/* libnvidia-ml.so.1: inventory, memory and process lists as the daemon sees them. Layouts as in the public nvml.h. */
#define _GNU_SOURCE
#include "channel.h"
#include "presence.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEVICES 64
#define MEMORY_V2 0x02000028u
#define PROCESS_DETAIL_LIST_V1 0x01000018u

#define NVML_RESULTS(X) \
    X(0, SUCCESS, "Success") \
    X(1, UNINITIALIZED, "Uninitialized") \
    X(2, INVALID_ARGUMENT, "Invalid Argument") \
    X(3, NOT_SUPPORTED, "Not Supported") \
    X(4, NO_PERMISSION, "Insufficient Permissions") \
    X(6, NOT_FOUND, "Not Found") \
    X(7, INSUFFICIENT_SIZE, "Insufficient Size") \
    X(9, DRIVER_NOT_LOADED, "Driver Not Loaded") \
    X(10, TIMEOUT, "Timeout") \
    X(12, LIBRARY_NOT_FOUND, "NVML Shared Library Not Found") \
    X(13, FUNCTION_NOT_FOUND, "Function Not Found") \
    X(15, GPU_IS_LOST, "GPU is lost") \
    X(16, RESET_REQUIRED, "GPU requires reset") \
    X(17, OPERATING_SYSTEM, "The operating system has blocked the request.") \
    X(18, LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch.") \
    X(19, IN_USE, "In use") \
    X(25, ARGUMENT_VERSION_MISMATCH, "Argument version mismatch") \
    X(999, UNKNOWN, "Unknown Error")

#define ENUM_ENTRY(code, name, text) name = code,
enum { NVML_RESULTS(ENUM_ENTRY) };

typedef int nvmlReturn_t;
typedef struct nvml_device *nvmlDevice_t;

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;
typedef struct { unsigned version, mode, numProcArrayEntries; nvmlProcessDetail_v1_t *procArray; } nvmlProcessDetailList_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } nvmlPciInfo_t;

_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "process info");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "memory v2");
_Static_assert(sizeof(nvmlProcessDetailList_t) == 24, "process detail list");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "pci info");

/* A handle is the address of an entry here; the entry carries nothing, its place is the daemon's index, which is also the minor number.
 * Callers count only the devices that are present. */
struct nvml_device { char unused; };
static struct nvml_device handles[MAX_DEVICES];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int users;

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(channels_before_fork, channels_after_fork_in_parent, channels_forget);
}

static int index_of(nvmlDevice_t device) {
    return device >= handles && device < handles + MAX_DEVICES ? (int)(device - handles) : -1;
}

static bool is_initialised(void) {
    pthread_mutex_lock(&mutex);
    bool yes = users > 0;
    pthread_mutex_unlock(&mutex);
    return yes;
}

/* Asks the daemon on behalf of one NVML function. answer_done must follow. */
static nvmlReturn_t query(struct answer *answer, const char *function, int index, const char *argument) {
    *answer = (struct answer){0};
    if (!is_initialised())
        return UNINITIALIZED;
    int rc = ask(answer, "nvml %s %d %s", function, index, argument);
    return rc == CHANNEL_LOST ? UNKNOWN : rc;
}

static nvmlReturn_t device_query(struct answer *answer, const char *function, nvmlDevice_t device, const char *argument) {
    int index = index_of(device);
    *answer = (struct answer){0};
    if (!is_initialised())
        return UNINITIALIZED;
    return index < 0 ? INVALID_ARGUMENT : query(answer, function, index, argument);
}

static nvmlReturn_t numbers(const char *function, nvmlDevice_t device, const char *argument, unsigned long long *values, int count) {
    struct answer answer;
    nvmlReturn_t rc = device_query(&answer, function, device, argument);
    for (int i = 0; rc == SUCCESS && i < count; i++)
        values[i] = next_number(&answer.text);
    answer_done(&answer);
    return rc;
}

static nvmlReturn_t one_unsigned(const char *function, nvmlDevice_t device, unsigned *value) {
    unsigned long long number = 0;
    if (!value)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = numbers(function, device, "", &number, 1);
    if (rc == SUCCESS)
        *value = (unsigned)number;
    return rc;
}

static nvmlReturn_t keep_text(struct answer *answer, nvmlReturn_t rc, char *text, unsigned size) {
    if (rc == SUCCESS) {
        const char *found = rest_of_line(&answer->text);
        if (strlen(found) >= size)
            rc = INSUFFICIENT_SIZE;
        else
            strcpy(text, found);
    }
    answer_done(answer);
    return rc;
}

static nvmlReturn_t device_text(const char *function, nvmlDevice_t device, char *text, unsigned size) {
    struct answer answer;
    if (!text)
        return INVALID_ARGUMENT;
    return keep_text(&answer, device_query(&answer, function, device, ""), text, size);
}

static nvmlReturn_t system_text(const char *function, const char *argument, char *text, unsigned size) {
    struct answer answer;
    if (!text)
        return INVALID_ARGUMENT;
    return keep_text(&answer, query(&answer, function, -1, argument), text, size);
}

static nvmlReturn_t find_handle(const char *function, const char *argument, nvmlDevice_t *device) {
    struct answer answer;
    if (!device || !argument || strlen(argument) > 128)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = query(&answer, function, -1, argument);
    uint64_t index = next_number(&answer.text);
    if (rc == SUCCESS && (index >= MAX_DEVICES || !is_present((int)index)))
        rc = NOT_FOUND;
    if (rc == SUCCESS)
        *device = &handles[index];
    answer_done(&answer);
    return rc;
}

/* ---- library and system ---- */

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    struct answer answer;
    int rc = ask(&answer, "nvml nvmlInit -1");
    answer_done(&answer);
    if (rc == CHANNEL_LOST)
        return DRIVER_NOT_LOADED;
    if (rc != SUCCESS)
        return rc;
    pthread_mutex_lock(&mutex);
    users++;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&mutex);
    nvmlReturn_t rc = users > 0 ? SUCCESS : UNINITIALIZED;
    users -= users > 0;
    pthread_mutex_unlock(&mutex);
    return rc;
}

#define TEXT_CASE(code, name, text) case code: return text;

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) { NVML_RESULTS(TEXT_CASE) default: return "Unknown Error"; }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size) {
    return system_text("nvmlSystemGetDriverVersion", "", version, size);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    return system_text("nvmlSystemGetNVMLVersion", "", version, size);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    struct answer answer;
    if (!version)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = query(&answer, "nvmlSystemGetCudaDriverVersion", -1, "");
    if (rc == SUCCESS)
        *version = (int)next_number(&answer.text);
    answer_done(&answer);
    return rc;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
    char argument[16];
    snprintf(argument, sizeof argument, "%u", pid);
    return system_text("nvmlSystemGetProcessName", argument, name, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    struct answer answer;
    if (!count)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = query(&answer, "nvmlDeviceGetCount", -1, "");
    if (rc == SUCCESS)
        *count = (unsigned)present_among((int)next_number(&answer.text));
    answer_done(&answer);
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) {
    return nvmlDeviceGetCount_v2(count);
}

/* ---- handles ---- */

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    char argument[16];
    snprintf(argument, sizeof argument, "%d", index < MAX_DEVICES ? present_at((int)index, MAX_DEVICES) : -1);
    return find_handle("nvmlDeviceGetHandleByIndex", argument, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find_handle("nvmlDeviceGetHandleByUUID", uuid, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    return find_handle("nvmlDeviceGetHandleByPciBusId", bus_id, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* ---- what a device is ---- */

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size) {
    return device_text("nvmlDeviceGetName", device, name, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size) {
    return device_text("nvmlDeviceGetUUID", device, uuid, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned size) {
    return device_text("nvmlDeviceGetSerial", device, serial, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    nvmlReturn_t rc = one_unsigned("nvmlDeviceGetIndex", device, index);
    if (rc == SUCCESS)
        *index = (unsigned)present_among((int)*index);
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    return one_unsigned("nvmlDeviceGetMinorNumber", device, minor);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
    return one_unsigned("nvmlDeviceGetArchitecture", device, architecture);
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    return one_unsigned("nvmlDeviceGetNumaNodeId", device, node);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    unsigned long long values[2] = {0};
    if (!major || !minor)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = numbers("nvmlDeviceGetCudaComputeCapability", device, "", values, 2);
    *major = (int)values[0];
    *minor = (int)values[1];
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    struct answer answer;
    if (!pci)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = device_query(&answer, "nvmlDeviceGetPciInfo", device, "");
    if (rc == SUCCESS) {
        memset(pci, 0, sizeof *pci);
        pci->domain = (unsigned)next_number(&answer.text);
        pci->bus = (unsigned)next_number(&answer.text);
        pci->device = (unsigned)next_number(&answer.text);
        pci->pciDeviceId = (unsigned)next_number(&answer.text);
        snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
        snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    }
    answer_done(&answer);
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
    return one_unsigned("nvmlDeviceGetMaxPcieLinkGeneration", device, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *width) {
    return one_unsigned("nvmlDeviceGetMaxPcieLinkWidth", device, width);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
    return one_unsigned("nvmlDeviceGetCurrPcieLinkGeneration", device, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *width) {
    return one_unsigned("nvmlDeviceGetCurrPcieLinkWidth", device, width);
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter, unsigned *kilobytes) {
    (void)counter;
    return one_unsigned("nvmlDeviceGetPcieThroughput", device, kilobytes);
}

/* ---- modes ---- */

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    return one_unsigned("nvmlDeviceGetPersistenceMode", device, mode);
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    return numbers("nvmlDeviceSetPersistenceMode", device, mode ? "1" : "0", NULL, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    return one_unsigned("nvmlDeviceGetComputeMode", device, mode);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    if (!pending)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = one_unsigned("nvmlDeviceGetMigMode", device, current);
    if (rc == SUCCESS)
        *pending = *current;
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    return one_unsigned("nvmlDeviceGetMaxMigDeviceCount", device, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    (void)index;
    struct answer answer;
    nvmlReturn_t rc = mig ? device_query(&answer, "nvmlDeviceGetMigDeviceHandleByIndex", device, "") : INVALID_ARGUMENT;
    if (mig)
        answer_done(&answer);
    return rc == SUCCESS ? NOT_FOUND : rc;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    if (!is_mig || index_of(device) < 0)
        return INVALID_ARGUMENT;
    *is_mig = 0;
    return is_initialised() ? SUCCESS : UNINITIALIZED;
}

/* ---- use ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    unsigned long long values[3];
    if (!memory)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = numbers("nvmlDeviceGetMemoryInfo", device, "", values, 3);
    if (rc == SUCCESS)
        *memory = (nvmlMemory_t){values[0], values[1], values[2]};
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    unsigned long long values[3];
    if (!memory)
        return INVALID_ARGUMENT;
    if (memory->version != MEMORY_V2)
        return ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t rc = numbers("nvmlDeviceGetMemoryInfo", device, "", values, 3);
    if (rc == SUCCESS)
        *memory = (nvmlMemory_v2_t){MEMORY_V2, values[0], 0, values[1], values[2]};
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    unsigned long long values[2];
    if (!rates)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = numbers("nvmlDeviceGetUtilizationRates", device, "", values, 2);
    if (rc == SUCCESS)
        *rates = (nvmlUtilization_t){(unsigned)values[0], (unsigned)values[1]};
    return rc;
}

/* Stores one process of the answer at `place` of the caller's array, in the layout that the function promises. */
typedef void store_process(void *array, unsigned place, unsigned pid, unsigned long long used);

static void store_v1(void *array, unsigned place, unsigned pid, unsigned long long used) {
    ((nvmlProcessInfo_v1_t *)array)[place] = (nvmlProcessInfo_v1_t){pid, used};
}

static void store_v2(void *array, unsigned place, unsigned pid, unsigned long long used) {
    ((nvmlProcessInfo_t *)array)[place] = (nvmlProcessInfo_t){pid, used, UINT32_MAX, UINT32_MAX};
}

static void store_detail(void *array, unsigned place, unsigned pid, unsigned long long used) {
    ((nvmlProcessDetail_v1_t *)array)[place] = (nvmlProcessDetail_v1_t){pid, used, UINT32_MAX, UINT32_MAX, 0};
}

static nvmlReturn_t list_processes(const char *function, nvmlDevice_t device, unsigned *count, void *array, store_process *store) {
    struct answer answer;
    if (!count)
        return INVALID_ARGUMENT;
    nvmlReturn_t rc = device_query(&answer, function, device, "");
    unsigned room = *count;
    if (rc == SUCCESS) {
        *count = (unsigned)next_number(&answer.text);
        if (*count > room)
            rc = INSUFFICIENT_SIZE;
        else if (*count > 0 && !array)
            rc = INVALID_ARGUMENT;
    }
    for (unsigned i = 0; rc == SUCCESS && i < *count; i++) {
        unsigned pid = (unsigned)next_number(&answer.text);
        store(array, i, pid, next_number(&answer.text));
    }
    answer_done(&answer);
    return rc;
}

#define PROCESS_LISTS(kind) \
    EXPORT nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses(nvmlDevice_t device, unsigned *count, void *infos) { \
        return list_processes("nvmlDeviceGet" #kind "RunningProcesses", device, count, infos, store_v1); \
    } \
    EXPORT nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v2(nvmlDevice_t device, unsigned *count, void *infos) { \
        return list_processes("nvmlDeviceGet" #kind "RunningProcesses", device, count, infos, store_v2); \
    } \
    EXPORT nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v3(nvmlDevice_t device, unsigned *count, void *infos) { \
        return list_processes("nvmlDeviceGet" #kind "RunningProcesses", device, count, infos, store_v2); \
    }

PROCESS_LISTS(Compute)
PROCESS_LISTS(Graphics)
PROCESS_LISTS(MPSCompute)

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    static const char *const functions[] = {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
                                            "nvmlDeviceGetMPSComputeRunningProcesses"};
    if (!list || list->mode > 2)
        return INVALID_ARGUMENT;
    if (list->version != PROCESS_DETAIL_LIST_V1)
        return ARGUMENT_VERSION_MISMATCH;
    return list_processes(functions[list->mode], device, &list->numProcArrayEntries, list->procArray, store_detail);
}
