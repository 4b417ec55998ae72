"""What the driver's result codes mean for somebody who parks processes, and what to do about each.

Codes and names: `CUresult` in cuda.h. Meanings: the header's own text and the reports in
    github.com/NVIDIA/cuda-checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from timeslice_driver.faults import Fault

SUCCESS: Final = 0
INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
OPERATING_SYSTEM: Final = 304
ILLEGAL_STATE: Final = 401
NOT_READY: Final = 600


@dataclass(frozen=True)
class Meaning:
    """One row of the table: the driver's name, our reason, and a sentence for people."""

    name: str
    reason: str
    text: str
    hint: str = ""
    retryable: bool = False


_MPS = ("MpsClient", "the process is a client of MPS, which cannot be parked", "start the job without MPS")
_ROOT = "run the node as root in the host's pid namespace, with CAP_SYS_PTRACE"

MEANINGS: Final[dict[int, Meaning]] = {
    1: Meaning("INVALID_VALUE", "NotACudaProcess", "the driver knows no such process, or it has no CUDA context"),
    2: Meaning(
        "OUT_OF_MEMORY",
        "NoMemory",
        "memory ran out: of the host at a checkpoint, of the device at a restore",
        "give the job's cgroup host memory for its device memory; a device in MIG mode fails like this too",
    ),
    3: Meaning(
        "NOT_INITIALIZED",
        "NotInitialized",
        "the process has never initialised CUDA, or the device is too old for checkpoints",
    ),
    34: Meaning(
        "STUB_LIBRARY",
        "StubLibrary",
        "libcuda.so.1 is the stub of the toolkit",
        "remove the stubs from the library path",
    ),
    46: Meaning(
        "DEVICE_UNAVAILABLE",
        "DeviceUnavailable",
        "the device is gone or in exclusive mode",
        "`nvidia-smi -c 0` allows several processes on a device",
    ),
    100: Meaning("NO_DEVICE", "NoDevice", "the node sees no device", "run the container with the NVIDIA runtime"),
    201: Meaning("INVALID_CONTEXT", "InvalidContext", "the process's context is not valid"),
    304: Meaning(
        "OPERATING_SYSTEM",
        "OperatingSystem",
        "a call of the operating system failed: no permission, another pid namespace, or the process was spoilt by a "
        "restore that failed before",
        _ROOT,
    ),
    401: Meaning(
        "ILLEGAL_STATE",
        "IllegalState",
        "the process is in another state than this step needs; does another program park it too?",
    ),
    600: Meaning(
        "NOT_READY",
        "LockTimeout",
        "its work on the device did not end within the time limit",
        "yield only when no kernel and no collective is in flight on any rank; a persistent kernel never ends",
        retryable=True,
    ),
    800: Meaning("NOT_PERMITTED", "NotPermitted", "the driver does not permit it", f"{_ROOT}, and `nvidia-smi -pm 1`"),
    801: Meaning(
        "NOT_SUPPORTED",
        "NotSupported",
        "the process uses what cannot be parked: managed memory, CUDA IPC, or a platform without checkpoints",
        "avoid cudaMallocManaged; memory shared by CUDA IPC needs driver 610 and `cuda-checkpoint --launch-job`",
    ),
    900: Meaning(
        "STREAM_CAPTURE_UNSUPPORTED", "StreamCapture", "the process is capturing a CUDA graph", retryable=True
    ),
    909: Meaning("TIMEOUT", "DriverTimeout", "the driver gave up waiting", retryable=True),
    999: Meaning(
        "UNKNOWN", "DriverUnknown", "the driver does not say why", "look for Xid errors in the kernel log (`dmesg`)"
    ),
}
MEANINGS.update({code: Meaning(f"MPS_{code}", *_MPS) for code in range(805, 811)})


def fault_of(code: int, *, step: str, pid: int, detail: str = "") -> Fault:
    """The fault that a result code stands for.

    Args:
        code: a CUresult other than 0.
        step: what was tried, as a verb: "lock", "checkpoint", ...
        pid: of the process that it was tried on.
        detail: driver version and the like, for the sentence's end.
    """
    meaning = MEANINGS.get(code, Meaning(f"CUresult {code}", "DriverError", "see `CUresult` in cuda.h"))
    where = f" [{detail}]" if detail else ""
    message = f"cannot {step} process {pid}: {meaning.text} (CUDA error {code} {meaning.name}){where}"
    return Fault(meaning.reason, message, meaning.hint, meaning.retryable)
