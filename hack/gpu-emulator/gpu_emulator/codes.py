"""CUresult and nvmlReturn_t codes, and the states of a CUDA process, as in cuda.h and nvml.h."""

from enum import IntEnum


class Cu(IntEnum):
    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    NOT_INITIALIZED = 3
    OPERATING_SYSTEM = 304
    ILLEGAL_STATE = 401
    NOT_READY = 600
    NOT_PERMITTED = 800
    NOT_SUPPORTED = 801
    MPS_CONNECTION_FAILED = 805
    STREAM_CAPTURE_UNSUPPORTED = 900
    UNKNOWN = 999


class Nvml(IntEnum):
    SUCCESS = 0
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    UNKNOWN = 999


class State(IntEnum):
    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


# cuGetErrorString, for the command that has no library at hand.
CU_TEXT = {
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    100: "no CUDA-capable device is detected",
    304: "OS call failed or operation not supported on this OS",
    401: "the operation cannot be performed in the present state",
    600: "device not ready",
    800: "operation not permitted",
    801: "operation not supported",
    805: "MPS client failed to connect to the MPS control daemon or the MPS server",
    900: "operation not permitted when stream is capturing",
    999: "unknown error",
}

# CUDA version of the first driver branch that carries it.
_CUDA_OF_DRIVER = {
    550: 12040, 555: 12050, 560: 12060, 565: 12070, 570: 12080, 575: 12090,
    580: 13000, 590: 13010, 595: 13020, 610: 13030, 615: 13050,
}  # fmt: skip

FIRST_DRIVER_WITH_CHECKPOINT_API = 570
FIRST_DRIVER_WITH_ACTIONS = 555


def driver_branch(driver_version: str) -> int:
    """The branch of a driver version: 570 of 570.86."""
    return int(driver_version.split(".")[0])


def cuda_version(driver_version: str) -> int:
    """What cuDriverGetVersion says under that driver, such as 12080."""
    branch = driver_branch(driver_version)
    return max((cuda for first, cuda in _CUDA_OF_DRIVER.items() if first <= branch), default=12000)
