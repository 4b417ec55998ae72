"""Runs one expression with nvidia-ml-py, unchanged, and prints the result as JSON. Errors print as their NVML code."""

import json
import sys
from typing import Any

import pynvml


def processes(index: int, kind: str = "Compute") -> dict[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    listed = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses")(handle)
    return {str(process.pid): process.usedGpuMemory for process in listed}


def handle(index: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def describe(value: Any) -> Any:
    return {name: getattr(value, name) for name, _ in value._fields_}


try:
    if "--without-init" not in sys.argv:
        pynvml.nvmlInit()
    print(json.dumps(eval(sys.argv[1]), default=str))
except pynvml.NVMLError as error:
    print(json.dumps({"error": error.value}))
