"""The process behind a puppet: reads calls as JSON lines, makes them through ctypes, writes code and value."""

import ctypes
import hashlib
import json
import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

cuda = ctypes.CDLL("libcuda.so.1")
_write_lock = threading.Lock()

Answer = tuple[int, Any]


def init() -> Answer:
    return cuda.cuInit(0), None


def create_context(device: int) -> Answer:
    context = ctypes.c_void_p()
    return cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), context.value


def destroy_context(context: int) -> Answer:
    return cuda.cuCtxDestroy_v2(ctypes.c_void_p(context)), None


def set_current(context: int) -> Answer:
    return cuda.cuCtxSetCurrent(ctypes.c_void_p(context)), None


def retain_primary(device: int) -> Answer:
    context = ctypes.c_void_p()
    return cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), context.value


def release_primary(device: int) -> Answer:
    return cuda.cuDevicePrimaryCtxRelease_v2(device), None


def allocate(size: int) -> Answer:
    pointer = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), pointer.value


def free(pointer: int) -> Answer:
    return cuda.cuMemFree_v2(ctypes.c_uint64(pointer)), None


def fill(pointer: int, size: int, seed: int) -> Answer:
    return cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(pointer), _bytes_of(seed, size), ctypes.c_size_t(size)), None


def matches(pointer: int, size: int, seed: int) -> Answer:
    """Whether the device still holds what ``fill`` wrote."""
    host = (ctypes.c_char * size)()
    code = cuda.cuMemcpyDtoH_v2(host, ctypes.c_uint64(pointer), ctypes.c_size_t(size))
    return code, bytes(host) == _bytes_of(seed, size)


def digest(pointer: int, size: int) -> Answer:
    host = (ctypes.c_char * size)()
    code = cuda.cuMemcpyDtoH_v2(host, ctypes.c_uint64(pointer), ctypes.c_size_t(size))
    return code, hashlib.sha256(host).hexdigest()


def copy(target: int, source: int, size: int) -> Answer:
    return cuda.cuMemcpyDtoD_v2(ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size)), None


def set_words(pointer: int, value: int, count: int) -> Answer:
    return cuda.cuMemsetD32_v2(ctypes.c_uint64(pointer), ctypes.c_uint(value), ctypes.c_size_t(count)), None


def dereference(pointer: int) -> Answer:
    return 0, ctypes.string_at(pointer, 1).hex()


def memory_info() -> Answer:
    free_bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    code = cuda.cuMemGetInfo_v2(ctypes.byref(free_bytes), ctypes.byref(total))
    return code, [free_bytes.value, total.value]


def device_count() -> Answer:
    count = ctypes.c_int()
    return cuda.cuDeviceGetCount(ctypes.byref(count)), count.value


def device_uuid(device: int) -> Answer:
    uuid = (ctypes.c_ubyte * 16)()
    return cuda.cuDeviceGetUuid_v2(uuid, device), bytes(uuid).hex()


def launch_busy(milliseconds: int) -> Answer:
    return cuda.cuEmuLaunchBusy(milliseconds), None


def synchronize() -> Answer:
    return cuda.cuCtxSynchronize(), None


def become_user(user: int) -> Answer:
    os.setuid(user)
    return 0, None


def own_pid() -> Answer:
    return 0, os.getpid()


def in_forked_child(call: str, arguments: dict[str, Any]) -> Answer:
    """Code of a call that a child of fork() makes."""
    child = os.fork()
    if child == 0:
        os._exit(CALLS[call](**arguments)[0])
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), None


def lock(pid: int, timeout_ms: int = 0) -> Answer:
    arguments = (ctypes.c_uint32 * 16)(timeout_ms)
    return cuda.cuCheckpointProcessLock(pid, arguments), None


def checkpoint(pid: int) -> Answer:
    return cuda.cuCheckpointProcessCheckpoint(pid, None), None


def restore(pid: int, pairs: list[list[str]] | None = None) -> Answer:
    """``pairs``: old and new UUID in hexadecimal."""
    if not pairs:
        return cuda.cuCheckpointProcessRestore(pid, None), None
    raw = b"".join(bytes.fromhex(uuid) for pair in pairs for uuid in pair)
    buffer = ctypes.create_string_buffer(raw, len(raw))
    arguments = (ctypes.c_uint64 * 8)(ctypes.addressof(buffer), len(pairs))
    return cuda.cuCheckpointProcessRestore(pid, arguments), None


def unlock(pid: int) -> Answer:
    return cuda.cuCheckpointProcessUnlock(pid, None), None


def get_state(pid: int) -> Answer:
    state = ctypes.c_int(-1)
    return cuda.cuCheckpointProcessGetState(pid, ctypes.byref(state)), state.value


def get_restore_tid(pid: int) -> Answer:
    tid = ctypes.c_int(-1)
    return cuda.cuCheckpointProcessGetRestoreThreadId(pid, ctypes.byref(tid)), tid.value


CALLS: dict[str, Callable[..., Answer]] = {
    function.__name__: function
    for function in (
        init, create_context, destroy_context, set_current, retain_primary, release_primary, allocate, free, fill,
        matches, digest, copy, set_words, dereference, memory_info, device_count, device_uuid, launch_busy, synchronize,
        become_user, own_pid, in_forked_child, lock, checkpoint, restore, unlock, get_state, get_restore_tid,
    )
}  # fmt: skip


def _bytes_of(seed: int, size: int) -> bytes:
    """Random, yet quick to make: the tile's length is prime, so that no two device pages look the same."""
    tile = random.Random(seed).randbytes(65521)
    return (tile * (size // len(tile) + 1))[:size]


def _make(number: int, call: str, arguments: dict[str, Any]) -> None:
    code, value = CALLS[call](**arguments)
    with _write_lock:
        sys.stdout.write(json.dumps({"number": number, "code": code, "value": value}) + "\n")
        sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        work = (message["number"], message["call"], message["arguments"])
        if message["apart"]:
            threading.Thread(target=_make, args=work, daemon=True).start()
        else:
            _make(*work)


if __name__ == "__main__":
    main()
