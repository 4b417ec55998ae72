"""Looks at the GPUs again and again: which there are, and which of them are well."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from time import time

from dra_kubeletplugin import DeviceHealth, Health

from timeslice_driver.dra import upkeep
from timeslice_driver.dra.checkpoint import Checkpoint, CheckpointError
from timeslice_driver.dra.device_names import parse
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.dra.look import Look
from timeslice_driver.dra.metrics import PluginMetrics
from timeslice_driver.inventory import InventoryError

log = logging.getLogger(__name__)


class GpuWatch:
    """The GPUs as of the last look, with the numbers and faults that the records give them.

    Args:
        look: at the GPUs.
        checkpoint: remembers them.
        metrics: counts.
        changed: called when they became others; it must not block.
    """

    def __init__(self, look: Look, checkpoint: Checkpoint, metrics: PluginMetrics, changed: Callable[[], None]) -> None:
        self._look = look
        self._checkpoint = checkpoint
        self._metrics = metrics
        self._changed = changed
        self.gpus: tuple[Gpu, ...] = ()
        self.found: tuple[Gpu, ...] | None = None  # by the last look; None when the driver did not answer
        self.records_lost = False
        self._looked_at = 0.0

    async def look(self) -> None:
        """Looks now.

        Raises:
            CheckpointError: what was found cannot be remembered; the GPUs are as before.
        """
        fault, self._looked_at = "", time()
        try:
            self.found = await self._look.found()
        except InventoryError as error:
            self.found, fault = None, f"{error}; {error.hint}" if error.hint else str(error)
        found = self.found
        records = await asyncio.to_thread(upkeep.remember_gpus, self._checkpoint, found, fault)
        self.records_lost = records.incomplete
        if fault and not records.gpus:
            log.error("the NVIDIA driver does not answer, and no GPU is known: %s", fault)
        self.take(records.gpus)

    def take(self, gpus: tuple[Gpu, ...]) -> None:
        """These are the GPUs from now on."""
        before, self.gpus = self.gpus, gpus
        if gpus != before:
            self._tell(before)
            self._changed()

    async def run(self, interval_s: float) -> None:
        """Looks, until it is cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.look()
            except CheckpointError as error:
                log.error("%s", error)

    def health(self, pool: str, devices: Iterable[str]) -> list[DeviceHealth]:
        """Of devices (names), as of the last look."""
        gpus = {gpu.number: gpu for gpu in self.gpus}
        named = [(device, gpus[name.number]) for device in devices if (name := parse(device)) and name.number in gpus]
        return [
            DeviceHealth(pool, device, _health(gpu), gpu.fault, checked_at=self._looked_at) for device, gpu in named
        ]

    def _tell(self, before: Sequence[Gpu]) -> None:
        faults = {gpu.uuid: gpu.fault for gpu in before}
        for gpu in self.gpus:
            if gpu.fault != faults.get(gpu.uuid, ""):
                log.warning("gpu-%d (%s): %s", gpu.number, gpu.uuid, gpu.fault or "it is well again")
        self._metrics.unhealthy_gpus.set(sum(bool(gpu.fault) for gpu in self.gpus))


def _health(gpu: Gpu) -> Health:
    return Health.UNHEALTHY if gpu.fault else Health.HEALTHY
