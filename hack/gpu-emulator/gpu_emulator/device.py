"""One emulated GPU."""

import hashlib
import time
from dataclasses import dataclass, field
from uuid import UUID

from gpu_emulator.arena import Arena

_PCI_DEVICE_ID = 0x233010DE


@dataclass
class Device:
    """Inventory, modes and memory. Modes can be changed at run time through the control connection."""

    index: int
    uuid: UUID
    name: str
    arena: Arena
    compute_capability: tuple[int, int] = (9, 0)
    architecture: int = 9  # NVML_DEVICE_ARCH_HOPPER
    numa_node: int = 0
    persistence: bool = True
    mig: bool = False
    compute_mode: int = 0
    busy_until: float = field(default=0.0, repr=False)

    @property
    def uuid_text(self) -> str:
        return f"GPU-{self.uuid}"

    @property
    def bus(self) -> int:
        return self.index + 1

    @property
    def bus_id(self) -> str:
        """As NVML spells it, with a domain of eight digits."""
        return f"{0:08X}:{self.bus:02X}:00.0"

    @property
    def pci_device_id(self) -> int:
        return _PCI_DEVICE_ID

    @property
    def is_busy(self) -> bool:
        return time.monotonic() < self.busy_until

    def inventory_line(self) -> str:
        """For cuInit: total, minor, domain, bus, slot, compute capability, UUID, bus id in CUDA's spelling, name."""
        major, minor = self.compute_capability
        return (
            f"{self.arena.total} {self.index} 0 {self.bus} 0 {major} {minor} {self.uuid.hex} "
            f"0000:{self.bus:02X}:00.0 {self.name}"
        )


def make_uuid(seed: str, index: int) -> UUID:
    """The same seed gives the same devices, different seeds give different ones."""
    return UUID(bytes=hashlib.sha256(f"{seed}/{index}".encode()).digest()[:16], version=4)
