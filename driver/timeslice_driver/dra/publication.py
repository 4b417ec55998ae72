"""Keeps the node's ResourceSlices as groups, GPUs and prepared claims would have them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from dra_kubeletplugin import DroppedFieldsError, Pool

from timeslice_driver.dra.candidate import NodeView
from timeslice_driver.dra.checkpoint import Checkpoint
from timeslice_driver.dra.content import Content
from timeslice_driver.dra.device_names import parse
from timeslice_driver.dra.lanes import lanes
from timeslice_driver.dra.metrics import PluginMetrics
from timeslice_driver.dra.mode import LANES, SLOTS, Choice, Mode, choose
from timeslice_driver.dra.offers import Offer, offers
from timeslice_driver.dra.records import Records
from timeslice_driver.dra.slots import slots

_GATHER_S: Final = 0.05  # for the changes that come with it: 64 claims at once are one


log = logging.getLogger(__name__)


class Publishing(Protocol):
    """What publishes; `dra_kubeletplugin.Plugin` does."""

    def publish(self, pools: dict[str, Pool]) -> None:
        """Takes over what is to be there."""


@dataclass(frozen=True)
class Published:
    """What was last given out to be published."""

    choice: Choice
    content: Content


class Publication:
    """Publishes when something has changed, once for changes that come together.

    Args:
        checkpoint: for the prepared claims, and for the mode.
        view: of the node, now.
        pool: the pool's name.
        wanted: the mode of the configuration.
        metrics: counts.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        view: Callable[[], NodeView],
        metrics: PluginMetrics,
        *,
        pool: str,
        wanted: Literal["auto", "lanes", "slots"],
    ) -> None:
        self._checkpoint = checkpoint
        self._view = view
        self._metrics = metrics
        self._pool = pool
        self._wanted = wanted
        self._dropped: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._basis: object = None  # of what was published last
        self.last: Published | None = None

    def change(self) -> None:
        """Something may have changed."""
        self._changed.set()

    def dropped(self, error: DroppedFieldsError) -> None:
        """The API server did not keep all that was published."""
        log.error("%s", error)
        if self.last and self.last.choice.mode == LANES:
            self._dropped = frozenset(error.fields)
            self.change()

    async def run(self, plugin: Publishing, version: tuple[int, int, int]) -> None:
        """Publishes, until it is cancelled. The version is that of the API server."""
        self.change()
        while True:
            await self._changed.wait()
            await asyncio.sleep(_GATHER_S)
            self._changed.clear()
            await self._publish(plugin, version)

    async def _publish(self, plugin: Publishing, version: tuple[int, int, int]) -> None:
        records = await asyncio.to_thread(self._checkpoint.read)
        choice = choose(self._wanted, version=version, dropped=self._dropped, in_use=mode_in_use(records))
        view = self._view()
        basis = (choice, view.gpus, _offers(view, records), view.host_memory)
        if basis == self._basis:
            return
        self._basis = basis
        made = Published(choice, _content(choice.mode, view, records))
        if made == self.last:
            return
        if self.last is None or self.last.choice != choice:
            _tell(choice)
        for group, jobs in (made.content.left_out or {}).items():
            log.warning("group %s has too many jobs; no room on its devices for %s", group, ", ".join(jobs))
        self.last = made
        self._count(made)
        plugin.publish({self._pool: Pool.of(made.content.devices, made.content.counter_sets)})

    def _count(self, made: Published) -> None:
        for mode in (LANES, SLOTS):
            count = len(made.content.devices) if made.choice.mode == mode else 0
            self._metrics.devices_published.labels(mode).set(count)


def _offers(view: NodeView, records: Records) -> tuple[Offer, ...]:
    return offers((view.groups or {}).values(), view.labels, records.held)


def _tell(choice: Choice) -> None:
    if choice.why:
        log.warning("publishing %s: %s", choice.mode, choice.why)
    else:
        log.info("publishing %s", choice.mode)


def _content(mode: Mode, view: NodeView, records: Records) -> Content:
    publish = {LANES: lanes, SLOTS: slots}[mode]
    return publish(view.gpus, _offers(view, records), host_memory=view.host_memory)


def mode_in_use(records: Records) -> Mode | None:
    """The mode in which the claims here were allocated, from their devices' names; None when there are none."""
    names = [parse(device.device) for claim in records.held for device in claim.devices]
    slots_used = [name.slot is not None for name in names if name]
    if not slots_used:
        return None
    return SLOTS if all(slots_used) else LANES
