"""The node's GPUs as the scheduler is to know them: each with a number that stays its own. Pure.

The scheduler counts by device name. Were a name to mean another GPU after a reboot, because the kernel numbered the
device files anew, two groups could be given one GPU. So a number belongs to a UUID as long as the node remembers it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from re import fullmatch
from typing import Final

from timeslice_driver.inventory import Device, Traits

GONE: Final = "it is gone from the machine, or its driver does not answer for it"
DIVIDED: Final = "it is divided into MIG instances, whose state cannot be parked"
_UNKNOWN_VERSION: Final = "0.0.0"


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        number: in the names of its devices; the minor number of its device file when the node first saw it.
        minor: of its device file now (/dev/nvidia<minor>); -1 while it is gone.
        compute_capability, driver_version: semantic versions, "0.0.0" when unknown.
        bus_id, pcie_root: as sysfs has them ("0000:3b:00.0", "pci0000:3a"); empty when unknown.
        numa_node: -1 when unknown.
        fault: why no new claim may have it; empty when it is sound.
    """

    number: int
    uuid: str
    minor: int = -1
    product_name: str = "unknown"
    memory_bytes: int = 0
    architecture: str = ""
    compute_capability: str = _UNKNOWN_VERSION
    driver_version: str = _UNKNOWN_VERSION
    bus_id: str = ""
    pcie_root: str = ""
    numa_node: int = -1
    fault: str = ""


def semantic(version: str) -> str:
    """A driver's version ("550.54.04") as a semantic one ("550.54.4"), which alone CEL can compare."""
    parts = version.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        return _UNKNOWN_VERSION
    return ".".join(str(int(part)) for part in (*parts, "0", "0")[:3])


def describe(device: Device, traits: Traits, *, driver_version: str, sysfs: Path = Path("/sys")) -> Gpu:
    """A device of the inventory, numbered by its device file."""
    major, minor = traits.compute_capability
    folder = sysfs / "bus/pci/devices" / traits.bus_id
    return Gpu(
        number=device.minor,
        uuid=device.device_id,
        minor=device.minor,
        product_name=device.name,
        memory_bytes=device.memory_bytes,
        architecture=traits.architecture,
        compute_capability=f"{major}.{minor}.0",
        driver_version=semantic(driver_version),
        bus_id=traits.bus_id,
        pcie_root=pcie_root(folder) if traits.bus_id else "",
        numa_node=_numa_node(folder, traits),
        fault=device.fault or (DIVIDED if device.mig else ""),
    )


def pcie_root(folder: Path) -> str:
    """The root complex above a PCI device ("pci0000:3a"), from its place in sysfs; empty when it has none there.

    Source: Documentation/PCI/sysfs-pci.rst of Linux; the value is that of `resource.kubernetes.io/pcieRoot`.
    """
    try:
        place = folder.resolve(strict=True)
    except OSError:
        return ""
    return next((part for part in place.parts if fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part)), "")


def _numa_node(folder: Path, traits: Traits) -> int:
    """Of the host memory next to the device: sysfs knows it; where it does not, NVML may."""
    try:
        node = int((folder / "numa_node").read_text())
    except (OSError, ValueError):
        node = -1
    return node if node >= 0 or traits.numa_node is None else traits.numa_node


def numbered(found: Sequence[Gpu], known: Sequence[Gpu], *, needed: Collection[str]) -> tuple[Gpu, ...]:
    """The GPUs found now with the numbers that the node knows them by, and those that are missing, with a fault.

    Args:
        found: as `describe` makes them.
        known: as this function returned them last; of an earlier boot too.
        needed: UUIDs that stay although they are missing; the others are forgotten.
    """
    numbers = {gpu.uuid: gpu.number for gpu in known}
    present = {gpu.uuid for gpu in found}
    missing = [replace(gpu, minor=-1, fault=GONE) for gpu in known if gpu.uuid not in present and gpu.uuid in needed]
    taken = {gpu.number for gpu in missing} | {numbers[uuid] for uuid in present & numbers.keys()}
    kept = [replace(gpu, number=numbers[gpu.uuid]) for gpu in found if gpu.uuid in numbers]
    fresh = list(_fresh([gpu for gpu in found if gpu.uuid not in numbers], taken))
    return tuple(sorted((*kept, *fresh, *missing), key=lambda gpu: gpu.number))


def _fresh(gpus: Sequence[Gpu], taken: set[int]) -> Iterator[Gpu]:
    """New ones: by their minor where that number is free, else the lowest free one."""
    wanted = sorted(gpus, key=lambda gpu: (gpu.minor in taken, gpu.minor))
    for gpu in wanted:
        number = gpu.minor if gpu.minor >= 0 and gpu.minor not in taken else _lowest_free(taken)
        taken.add(number)
        yield replace(gpu, number=number)


def _lowest_free(taken: set[int]) -> int:
    return next(number for number in range(len(taken) + 1) if number not in taken)


def without_driver(known: Sequence[Gpu], fault: str) -> tuple[Gpu, ...]:
    """What is offered while the NVIDIA driver does not answer: all that was known, and none of it to new claims."""
    return tuple(replace(gpu, fault=fault) for gpu in known)


def by_number(gpus: Sequence[Gpu]) -> Mapping[int, Gpu]:
    """For names of devices."""
    return {gpu.number: gpu for gpu in gpus}
