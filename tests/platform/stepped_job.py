"""A job that does what a test tells it, one line at a time: `acquire`, `fill`, `check`, `yield`, `end`."""

from __future__ import annotations

import ctypes
import sys

from timeslice import OrchestratorClient
from timeslice_api.errors import TimesliceError

job_id, size = sys.argv[1], int(sys.argv[2])
cuda = ctypes.CDLL("libcuda.so.1")
memory = ctypes.c_uint64()
orchestrator = OrchestratorClient(job_id=job_id)
pattern = job_id.encode().ljust(16, b".") * (size // 16)


def call(name: str, *arguments: object) -> None:
    if code := getattr(cuda, name)(*arguments):
        raise OSError(f"{name} failed with CUresult {code}")


def fill() -> None:
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(ctypes.c_void_p()), 0, 0)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    call("cuMemcpyHtoD_v2", memory, pattern, ctypes.c_size_t(size))


def check() -> None:
    seen = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", seen, memory, ctypes.c_size_t(size))
    if seen.raw != pattern:
        raise OSError("the bytes have changed")


steps = {"acquire": orchestrator.acquire, "fill": fill, "check": check, "yield": orchestrator.yield_}
for line in sys.stdin:
    step = line.strip()
    if step == "end":
        break
    try:
        steps[step]()
        print("done", step, flush=True)
    except (OSError, TimesliceError) as error:
        print(f"failed {step} {type(error).__name__}: {error}", flush=True)
