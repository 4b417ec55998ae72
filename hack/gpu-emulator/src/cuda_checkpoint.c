/* The checkpoint API: the daemon does the work together with the target's restore thread; here are only the arguments.
 *
 * These calls act on other processes and do not pass the gate: a process may lock and unlock itself. */
#include "channel.h"
#include "cuda_abi.h"

#include <stdbool.h>
#include <stdio.h>

bool driver_initialised(void);

static CUresult request(const char *verb, int pid, const char *arguments, uint64_t *value) {
    if (!driver_initialised())
        return NOT_INITIALIZED;
    struct answer answer;
    int rc = ask(&answer, "%s %d%s", verb, pid, arguments);
    if (rc == SUCCESS && value)
        *value = next_number(&answer.text);
    answer_done(&answer);
    return rc == CHANNEL_LOST ? UNKNOWN : rc;
}

EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state) {
    uint64_t value = 0;
    if (!state)
        return INVALID_VALUE;
    CUresult rc = request("get_state", pid, "", &value);
    if (rc == SUCCESS)
        *state = (CUprocessState)value;
    return rc;
}

EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
    uint64_t value = 0;
    if (!tid)
        return INVALID_VALUE;
    CUresult rc = request("get_restore_tid", pid, "", &value);
    if (rc == SUCCESS)
        *tid = (int)value;
    return rc;
}

EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    char timeout[32];
    snprintf(timeout, sizeof timeout, " %u", args ? args->timeoutMs : 0);
    return request("lock", pid, timeout, NULL);
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
    (void)args;
    return request("checkpoint", pid, "", NULL);
}

static size_t print_uuid(char *text, const CUuuid *uuid) {
    size_t length = 0;
    text[length++] = ' ';
    for (size_t i = 0; i < sizeof uuid->bytes; i++)
        length += (size_t)sprintf(text + length, "%02x", uuid->bytes[i]);
    return length;
}

EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
    char pairs[900] = "";
    size_t length = 0;
    uint32_t count = args ? args->gpuPairsCount : 0;
    if (count > 0 && (!args->gpuPairs || (size_t)count * 66 >= sizeof pairs))
        return INVALID_VALUE;
    for (uint32_t i = 0; i < count; i++) {
        length += print_uuid(pairs + length, &args->gpuPairs[i].oldUuid);
        length += print_uuid(pairs + length, &args->gpuPairs[i].newUuid);
    }
    return request("restore", pid, pairs, NULL);
}

EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args) {
    (void)args;
    return request("unlock", pid, "", NULL);
}
