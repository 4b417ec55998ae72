"""A job that takes turns until it is ended; see its arguments.

In each turn it checks every byte of what it left in device memory, and leaves other bytes there for the next one. Its
log has `holds NUMBER` when a turn begins and `turn NUMBER BEGIN END CHECKSUM` when it has ended: times in seconds of
the machine's monotonic clock, and the checksum of the bytes that it found. Bytes that are not the ones it left end it
with status 1.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
import time
from typing import Any

from timeslice import OrchestratorClient

size, held_s, rest_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
cuda = ctypes.CDLL("libcuda.so.1")
orchestrator = OrchestratorClient()
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
found = ctypes.create_string_buffer(size)


def call(name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} failed with CUresult {code}")


def bytes_of(number: int) -> bytes:
    return random.Random(f"{orchestrator.job_id} {number}").randbytes(size)


def leave(left: bytes) -> str:
    call("cuMemcpyHtoD_v2", memory, left, ctypes.c_size_t(size))
    return hashlib.sha256(left).hexdigest()[:16]


def check(left: str) -> str:
    call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(size))
    seen = hashlib.sha256(found).hexdigest()[:16]
    if seen != left:
        sys.exit(f"device memory has {seen} instead of {left}")
    return seen


@orchestrator.on_accelerators
def begin() -> str:
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    return leave(bytes_of(0))


def turn(number: int, left: str) -> str:
    coming = bytes_of(number)
    with orchestrator.acquire():
        since = time.monotonic()
        print(f"holds {number}", flush=True)
        seen = check(left)
        time.sleep(held_s)
        check(left)
        left = leave(coming)
        until = time.monotonic()
    print(f"turn {number} {since:.4f} {until:.4f} {seen}", flush=True)
    return left


if __name__ == "__main__":
    left, number = begin(), 0
    print("begun", flush=True)
    while True:
        number += 1
        left = turn(number, left)
        time.sleep(rest_s)
