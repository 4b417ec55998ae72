"""A look at the node's GPUs through NVML and sysfs."""

from __future__ import annotations

from pathlib import Path

from timeslice_driver.dra.gpus import Gpu, describe
from timeslice_driver.inventory import Inventory, InventoryError, Nvml, Traits


class Look:
    """Opens the NVIDIA driver's library when it can, and as often as it takes.

    Args:
        libnvml: see `Nvml`.
        sys_root: where sysfs is.
    """

    def __init__(self, libnvml: str, sys_root: Path) -> None:
        self._inventory = Inventory(Nvml(libnvml))
        self._sys_root = sys_root
        self._open = False
        self._traits: dict[str, Traits] = {}

    async def found(self) -> tuple[Gpu, ...]:
        """The GPUs that have a UUID, numbered by their device files.

        Raises:
            InventoryError: the driver does not answer; the next look starts it anew.
        """
        if not self._open:
            await self._inventory.open()
            self._open = True
        try:
            version = await self._inventory.driver_version()
            devices = [each for each in await self._inventory.devices() if not each.device_id.startswith("lost-")]
            for device in devices:
                if device.device_id not in self._traits:
                    self._traits[device.device_id] = await self._inventory.traits(device.device_id)
        except InventoryError:
            await self.close()
            raise
        return tuple(
            describe(each, self._traits[each.device_id], driver_version=version, sysfs=self._sys_root)
            for each in devices
        )

    async def close(self) -> None:
        """Ends the use of the library."""
        if self._open:
            self._open = False
            await self._inventory.close()
