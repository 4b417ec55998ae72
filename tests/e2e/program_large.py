"""A job that fills so many bytes of its GPU in one turn, and keeps them while it sleeps."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

from timeslice import OrchestratorClient

size = int(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()


def call(name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} failed with CUresult {code}")


with OrchestratorClient().acquire():
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
print("filled", flush=True)
time.sleep(600)
