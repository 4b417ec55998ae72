"""One rank of a job: keeps a pattern in its GPU's memory, checks it in every phase, and tells when each phase was."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

from timeslice import OrchestratorClient, RankedClient

size, phases, phase_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
cuda = ctypes.CDLL("libcuda.so.1")
client = OrchestratorClient()
ranks = RankedClient(client)
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
pattern = f"{client.job_id}/{ranks.rank}".encode().ljust(16, b".") * (size // 16)


def call(name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} failed with CUresult {code}")


def begin() -> None:
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    call("cuMemcpyHtoD_v2", memory, pattern, ctypes.c_size_t(size))


def check() -> None:
    seen = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", seen, memory, ctypes.c_size_t(size))
    if seen.raw != pattern:
        sys.exit("the pattern has changed")


for number in range(phases):
    with ranks.on_accelerators():
        began = time.monotonic()
        check() if number else begin()
        time.sleep(phase_s)
        ended = time.monotonic()
    print("phase", number, began, ended, flush=True)
    time.sleep(phase_s)
