"""A look at the node's GPUs through NVML and sysfs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from timeslice_driver.dra.gpus import Gpu, describe
from timeslice_driver.inventory import Device, Inventory, InventoryError, Nvml, Traits


class Look:
    """Opens the NVIDIA driver's library when it can, and as often as it takes.

    Args:
        libnvml: see `Nvml`.
        sys_root: where sysfs is.
    """

    def __init__(self, libnvml: str, sys_root: Path) -> None:
        self._libnvml = libnvml
        self._sys_root = sys_root
        self._inventory: Inventory | None = None
        self._traits: dict[str, Traits] = {}

    async def found(self) -> tuple[Gpu, ...]:
        """The GPUs that have a UUID, numbered by their device files.

        Raises:
            InventoryError: the driver does not answer; the next look starts it anew.
        """
        try:
            inventory = await self._opened()
            version = await inventory.driver_version()
            devices = [each for each in await inventory.devices() if not each.device_id.startswith("lost-")]
            return tuple([await self._described(inventory, device, version) for device in devices])
        except InventoryError:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the use of the library."""
        inventory, self._inventory = self._inventory, None
        if inventory:
            await inventory.close()

    async def _opened(self) -> Inventory:
        if self._inventory is None:
            self._inventory = Inventory(Nvml(self._libnvml))
            await self._inventory.open()
        return self._inventory

    async def _described(self, inventory: Inventory, device: Device, version: str) -> Gpu:
        fault = ""
        if device.device_id not in self._traits:
            try:
                self._traits[device.device_id] = await inventory.traits(device.device_id)
            except InventoryError as error:  # the others are told all the same
                fault = str(error)
        traits = self._traits.get(device.device_id, Traits())
        gpu = describe(device, traits, driver_version=version, sysfs=self._sys_root)
        return replace(gpu, fault=gpu.fault or fault)
