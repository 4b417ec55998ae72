"""A job that keeps a pattern in device memory and checks it in every phase; see its arguments."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

from timeslice import OrchestratorClient

size, phases, phase_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} failed with CUresult {code}")


orchestrator = OrchestratorClient()
pattern = orchestrator.job_id.encode().ljust(16, b".") * (size // 16)
context, memory = ctypes.c_void_p(), ctypes.c_uint64()


@orchestrator.on_accelerators
def begin() -> None:
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    call("cuMemcpyHtoD_v2", memory, pattern, ctypes.c_size_t(size))


@orchestrator.on_accelerators
def phase() -> None:
    time.sleep(phase_s)
    seen = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", seen, memory, ctypes.c_size_t(size))
    if seen.raw != pattern:
        sys.exit("the pattern has changed")


begin()
print("begun", flush=True)
for number in range(phases):
    phase()
    print("phase", number, flush=True)
    if number + 1 < phases:
        time.sleep(phase_s)
