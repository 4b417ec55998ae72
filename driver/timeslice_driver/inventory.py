"""Accelerators and the processes on them, through NVML (nvidia-ml-py): the only module that knows of pynvml.

NVML's calls block, for milliseconds when all is well and for ever when a driver hangs; `Inventory` runs them in a
thread of its own with a time limit. Functions, structures and error codes: nvml.h, NVML API reference.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pynvml

T = TypeVar("T")
log = logging.getLogger(__name__)

_NO_INSTANCE: Final = 0xFFFFFFFF  # gpuInstanceId of a process that is not in a MIG instance

_HINTS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "install the NVIDIA driver, or run the container with the NVIDIA runtime",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the NVIDIA kernel driver: `nvidia-smi` must work on this machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "run the node as root",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the device has fallen off the bus: reboot the machine",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset the device with `nvidia-smi --gpu-reset`, or reboot the machine",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was replaced under a loaded module: reboot the machine",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is older than this program expects: install 570 or newer",
    pynvml.NVML_ERROR_UNKNOWN: "the container may have lost its device permissions after a `systemctl daemon-reload`: "
    "start the container anew",
}
_ARCHITECTURES: Final = {
    getattr(pynvml, name): name.removeprefix("NVML_DEVICE_ARCH_").title()
    for name in dir(pynvml)
    if name.startswith("NVML_DEVICE_ARCH_") and not name.endswith("_UNKNOWN")
}
# A second try after a fresh start of the library helps with these, and with no others.
_STALE: Final = frozenset({pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_UNINITIALIZED})


class InventoryError(Exception):
    """NVML does not answer; `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Device:
    """One accelerator.

    Attributes:
        device_id: its UUID ("GPU-...").
        minor: number of its device file, /dev/nvidia<minor>.
        memory_bytes: its total memory.
        mig: it is divided into MIG instances.
        persistent: the driver keeps its state while no process uses it (persistence mode).
        fault: why it cannot be used; empty when it can.
    """

    device_id: str
    name: str
    minor: int
    memory_bytes: int
    mig: bool = False
    persistent: bool = True
    fault: str = ""


@dataclass(frozen=True)
class Traits:
    """What an accelerator is, for those who choose one; fields that the driver does not tell are empty.

    Attributes:
        bus_id: where it is on PCI, as sysfs spells it ("0000:3b:00.0").
        architecture: such as "Hopper".
        compute_capability: such as (9, 0).
        numa_node: whose memory is its own, on machines where GPUs are NUMA nodes; None on all others.
    """

    bus_id: str = ""
    architecture: str = ""
    compute_capability: tuple[int, int] = (0, 0)
    numa_node: int | None = None


@dataclass(frozen=True)
class Memory:
    """Device memory now (bytes)."""

    total: int
    free: int
    used: int


@dataclass(frozen=True)
class DeviceProcess:
    """A process that NVML lists on a device.

    Attributes:
        used_bytes: device memory that it has there; None when the driver does not tell.
        instance: its MIG instance; None outside of one.
    """

    pid: int
    device_id: str
    used_bytes: int | None
    instance: int | None = None


class Nvml:
    """NVML as blocking calls. Use it from one thread at a time.

    Args:
        library: path of libnvidia-ml.so.1 when it is not to be found by the dynamic linker's own rules.
    """

    def __init__(self, library: str = "") -> None:
        self._library = library
        self._handles: dict[str, Any] = {}

    def open(self) -> None:
        """Starts the library.

        Raises:
            InventoryError: there is no library, driver or permission.
        """
        try:
            if self._library:
                ctypes.CDLL(self._library)  # pynvml's own dlopen then finds it by its soname
            pynvml.nvmlInit()
        except (OSError, UnicodeError) as error:  # the linker repeats the path, whatever its bytes are
            raise InventoryError(f"cannot load {self._library}: {error}") from error
        except pynvml.NVMLError as error:
            raise _unavailable(error) from error

    def close(self) -> None:
        """Ends the use of the library. Safe to repeat."""
        self._handles.clear()
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return

    def driver_version(self) -> str:
        """Such as "570.86.10"."""
        return str(self._call(pynvml.nvmlSystemGetDriverVersion))

    def devices(self) -> tuple[Device, ...]:
        """Every accelerator, those at fault too."""
        return self._call(lambda: tuple(self._each_device()))

    def memory(self, device_id: str) -> Memory:
        """Device memory now.

        Raises:
            InventoryError: there is no such device, or it does not answer.
        """
        info = self._call(lambda: pynvml.nvmlDeviceGetMemoryInfo(self._handle(device_id)))
        return Memory(total=int(info.total), free=int(info.free), used=int(info.used))

    def traits(self, device_id: str) -> Traits:
        """What a device is.

        Raises:
            InventoryError: there is no such device, or it does not answer.
        """
        return self._call(lambda: _traits(self._handle(device_id)))

    def processes(self) -> tuple[DeviceProcess, ...]:
        """What every sound device lists: compute and graphics processes merged, one entry per process and device."""
        return self._call(
            lambda: tuple(entry for device_id in self._sound() for entry in self._processes_of(device_id))
        )

    def mps_clients(self) -> frozenset[int]:
        """Pids that reach a device through the MPS server."""
        function = pynvml.nvmlDeviceGetMPSComputeRunningProcesses
        return self._call(
            lambda: frozenset(
                int(entry.pid) for each in self._sound() for entry in _list(function, self._handles[each])
            )
        )

    def _each_device(self) -> Iterator[Device]:
        self._handles.clear()
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                device = _describe(handle)
                self._handles[device.device_id] = handle
                yield device
            except (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired) as error:
                yield Device(f"lost-{index}", "unknown", minor=index, memory_bytes=0, fault=str(_unavailable(error)))

    def _sound(self) -> tuple[str, ...]:
        if not self._handles:
            tuple(self._each_device())
        return tuple(self._handles)

    def _handle(self, device_id: str) -> Any:
        if device_id not in self._sound():
            raise InventoryError(f"there is no device {device_id}")
        return self._handles[device_id]

    def _processes_of(self, device_id: str) -> Iterator[DeviceProcess]:
        handle = self._handles[device_id]
        merged = {entry.pid: entry for entry in _list(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle)}
        merged |= {entry.pid: entry for entry in _list(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)}
        for entry in merged.values():
            instance = None if entry.gpuInstanceId == _NO_INSTANCE else int(entry.gpuInstanceId)
            used = None if entry.usedGpuMemory is None else int(entry.usedGpuMemory)
            yield DeviceProcess(int(entry.pid), device_id, used, instance)

    def _call(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except pynvml.NVMLError as error:
            if error.value not in _STALE:
                raise _unavailable(error) from error
            log.warning("NVML answered %s; starting it anew", error)
        self.close()
        self.open()
        try:
            return function()
        except pynvml.NVMLError as error:
            raise _unavailable(error) from error


def _list(function: Callable[[Any], list[Any]], handle: Any) -> list[Any]:
    try:
        return function(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return []


def _describe(handle: Any) -> Device:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Device(
        device_id=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        minor=int(pynvml.nvmlDeviceGetMinorNumber(handle)),
        memory_bytes=int(memory.total),
        mig=_mode(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], default=0) == pynvml.NVML_DEVICE_MIG_ENABLE,
        persistent=_mode(lambda: pynvml.nvmlDeviceGetPersistenceMode(handle), default=1) == pynvml.NVML_FEATURE_ENABLED,
    )


def _traits(handle: Any) -> Traits:
    architecture = _told(lambda: pynvml.nvmlDeviceGetArchitecture(handle))
    capability = _told(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    numa_node = _told(lambda: pynvml.nvmlDeviceGetNumaNodeId(handle))
    return Traits(
        bus_id=sysfs_bus_id(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        architecture=_ARCHITECTURES.get(architecture, ""),
        compute_capability=(int(capability[0]), int(capability[1])) if capability else (0, 0),
        numa_node=None if numa_node is None else int(numa_node),
    )


def sysfs_bus_id(bus_id: str) -> str:
    """NVML's spelling of a PCI address ("00000000:3B:00.0") as sysfs spells it ("0000:3b:00.0")."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if rest and re.fullmatch("[0-9a-f]{1,8}", domain) else ""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _told(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None


def _mode(read: Callable[[], int], *, default: int) -> int:
    try:
        return int(read())
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return default


def _unavailable(error: pynvml.NVMLError) -> InventoryError:
    return InventoryError(f"NVML: {error}", _HINTS.get(error.value, ""))


class Inventory:
    """NVML for an event loop: each call in one thread of its own, with a time limit.

    A call that outlasts its limit is given up together with its thread, and the next one gets a new thread; meanwhile
    the inventory counts as unavailable.

    Args:
        nvml: the blocking calls.
        timeout_s: limit of one call (seconds).
    """

    def __init__(self, nvml: Nvml, *, timeout_s: float = 10.0) -> None:
        self._nvml = nvml
        self._timeout_s = timeout_s
        self._thread = _new_thread()

    async def open(self) -> None:
        """Starts the library. Raises InventoryError."""
        await self.run(self._nvml.open)

    async def close(self) -> None:
        """Ends the use of the library."""
        try:
            await self.run(self._nvml.close)
        except InventoryError:
            log.warning("NVML did not end in time")
        self._thread.shutdown(wait=False)

    async def devices(self) -> tuple[Device, ...]:
        """See `Nvml.devices`."""
        return await self.run(self._nvml.devices)

    async def driver_version(self) -> str:
        """See `Nvml.driver_version`."""
        return await self.run(self._nvml.driver_version)

    async def traits(self, device_id: str) -> Traits:
        """See `Nvml.traits`."""
        return await self.run(lambda: self._nvml.traits(device_id))

    async def processes(self) -> tuple[DeviceProcess, ...]:
        """See `Nvml.processes`."""
        return await self.run(self._nvml.processes)

    async def memory(self, device_id: str) -> Memory:
        """See `Nvml.memory`."""
        return await self.run(lambda: self._nvml.memory(device_id))

    async def run(self, function: Callable[[], T]) -> T:
        """Runs a function in NVML's thread, so that it may use the blocking calls together with others.

        Raises:
            InventoryError: it took longer than the time limit, or NVML failed.
        """
        call = asyncio.get_running_loop().run_in_executor(self._thread, function)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call
        except TimeoutError as error:
            self._thread.shutdown(wait=False)
            self._thread = _new_thread()
            raise InventoryError(
                f"NVML did not answer within {self._timeout_s:g} s", "look for Xid errors in the kernel log (`dmesg`)"
            ) from error


def _new_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="nvml")
