"""What libnvidia-ml.so.1 asks: each function answers with a code and the fields that follow it on the line."""

from collections.abc import Callable

from gpu_emulator import procfs
from gpu_emulator.arena import PAGE
from gpu_emulator.codes import Nvml, State
from gpu_emulator.device import Device
from gpu_emulator.process import Job
from gpu_emulator.silicon import Silicon

Answer = tuple[object, ...]

_PCIE_GENERATION = 5
_PCIE_WIDTH = 16

# Functions of one device that only read.
_OF_DEVICE: dict[str, Callable[[Device], Answer]] = {
    "nvmlDeviceGetName": lambda device: (device.name,),
    "nvmlDeviceGetUUID": lambda device: (device.uuid_text,),
    "nvmlDeviceGetSerial": lambda device: (f"{device.uuid.int % 10**13:013d}",),
    "nvmlDeviceGetIndex": lambda device: (device.index,),
    "nvmlDeviceGetMinorNumber": lambda device: (device.index,),
    "nvmlDeviceGetArchitecture": lambda device: (device.architecture,),
    "nvmlDeviceGetNumaNodeId": lambda device: (device.numa_node,),
    "nvmlDeviceGetCudaComputeCapability": lambda device: device.compute_capability,
    "nvmlDeviceGetPciInfo": lambda device: (0, device.bus, 0, device.pci_device_id),
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: (_PCIE_GENERATION,),
    "nvmlDeviceGetMaxPcieLinkWidth": lambda _: (_PCIE_WIDTH,),
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: (_PCIE_GENERATION,),
    "nvmlDeviceGetCurrPcieLinkWidth": lambda _: (_PCIE_WIDTH,),
    "nvmlDeviceGetPcieThroughput": lambda _: (0,),
    "nvmlDeviceGetPersistenceMode": lambda device: (int(device.persistence),),
    "nvmlDeviceGetComputeMode": lambda device: (device.compute_mode,),
    "nvmlDeviceGetMigMode": lambda device: (int(device.mig),),
    "nvmlDeviceGetMaxMigDeviceCount": lambda _: (7,),
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda _: (),
    "nvmlDeviceGetMemoryInfo": lambda device: (
        device.arena.total,
        device.arena.total - device.arena.used,
        device.arena.used,
    ),
    "nvmlDeviceGetUtilizationRates": lambda device: (100 if device.is_busy else 0, 0),
}


class NvmlService:
    """Answers for the devices and processes on the silicon."""

    def __init__(self, silicon: Silicon, *, driver_version: str, cuda_version: int) -> None:
        self._silicon = silicon
        self._system: dict[str, Answer] = {
            "nvmlInit": (),
            "nvmlSystemGetDriverVersion": (driver_version,),
            "nvmlSystemGetNVMLVersion": (f"{cuda_version // 1000}.{driver_version}",),
            "nvmlSystemGetCudaDriverVersion": (cuda_version,),
            "nvmlDeviceGetCount": (len(silicon.devices),),
        }

    def answer(self, function: str, index: int, argument: str, *, caller_uid: int) -> Answer:
        """Code first."""
        if function in self._system:
            return (Nvml.SUCCESS, *self._system[function])
        if function == "nvmlSystemGetProcessName":
            name = procfs.process_name(int(argument))
            return (Nvml.SUCCESS, name) if name else (Nvml.NOT_FOUND,)
        if function.startswith("nvmlDeviceGetHandleBy"):
            return self._find(function, argument)
        device = self._silicon.device(index)
        if device is None:
            return (Nvml.INVALID_ARGUMENT,)
        if function == "nvmlDeviceSetPersistenceMode":
            return self._set_persistence(device, argument == "1", caller_uid)
        if function.endswith("RunningProcesses"):
            return (Nvml.SUCCESS, *self._processes(device, function))
        read = _OF_DEVICE.get(function)
        return (Nvml.NOT_SUPPORTED,) if read is None else (Nvml.SUCCESS, *read(device))

    def _find(self, function: str, argument: str) -> Answer:
        def matches(device: Device) -> bool:
            match function.removeprefix("nvmlDeviceGetHandleBy"):
                case "Index":
                    return argument == str(device.index)
                case "UUID":
                    return argument.lower() == device.uuid_text.lower()
                case _:
                    # The domain is written with four or with eight digits.
                    return argument.upper().zfill(len(device.bus_id)) == device.bus_id

        found = [device.index for device in self._silicon.devices if matches(device)]
        if found:
            return (Nvml.SUCCESS, found[0])
        return (Nvml.INVALID_ARGUMENT if function.endswith("Index") else Nvml.NOT_FOUND,)

    @staticmethod
    def _set_persistence(device: Device, on: bool, caller_uid: int) -> Answer:
        if caller_uid != 0:
            return (Nvml.NO_PERMISSION,)
        device.persistence = on
        return (Nvml.SUCCESS,)

    def _processes(self, device: Device, function: str) -> list[object]:
        """Count, then host pid and bytes of each."""
        kind = function.removeprefix("nvmlDeviceGet").removesuffix("RunningProcesses")
        listed = [job for job in self._silicon.jobs.values() if _kind(job) == kind and _is_listed(job, device.index)]
        fields: list[object] = [len(listed)]
        for job in listed:
            fields += [job.pid, job.pages_on(device.index) * PAGE]
        return fields


def _kind(job: Job) -> str:
    if "graphics" in job.flags:
        return "Graphics"
    return "MPSCompute" if "mps" in job.flags else "Compute"


def _is_listed(job: Job, index: int) -> bool:
    """A parked process vanishes; the flags imitate processes that are listed without a context, and the reverse."""
    if "unlisted" in job.flags or job.state is State.CHECKPOINTED:
        return False
    return index in job.contexts or "listed" in job.flags
