"""Keeps the ResourceSlices of a driver on a node as they are wanted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from dra_kubeletplugin.apiserver import (
    NODES,
    SLICES,
    ApiServer,
    ApiServerError,
    Backoff,
    Change,
    ConflictError,
    InvalidError,
    NotFoundError,
    Object,
    Reflector,
)
from dra_kubeletplugin.faults import DroppedFieldsError, InvalidPoolError, PublishError
from dra_kubeletplugin.pools import MOST_DEVICES, Pool
from dra_kubeletplugin.publishing.likeness import alike, dropped
from dra_kubeletplugin.publishing.plan import Owner, content_of, contents, plan
from dra_kubeletplugin.publishing.sight import LASTING_S, Sight

log = logging.getLogger(__name__)

_HEAL_S = 1.0  # first wait before healing; kubelet deletes slices one by one when it starts: let it finish
_FOREVER = float("inf")


@dataclass
class _Work:
    """On one pool.

    Attributes:
        wanted: as it was published; None: the pool is to vanish.
        specs: what of it the server can store.
        lost: fields that it cannot.
        due: when to look after it next, by the monotonic clock.
        error: why it will never be as wanted.
        written: the server has `specs`.
        retry, heal, healing, healed: waits after failures, and after changes by others.
    """

    wanted: list[Object] | None
    specs: list[Object]
    due: float = 0.0
    lost: set[str] = field(default_factory=set)
    error: PublishError | None = None
    written: bool = False
    retry: Backoff = field(default_factory=lambda: Backoff(shortest_s=0.25, longest_s=60.0))
    heal: Backoff = field(default_factory=lambda: Backoff(shortest_s=1.0, longest_s=30.0))
    healing: bool = False
    healed: float = 0.0


class Publisher:
    """Writes pools as ResourceSlices of this node, and writes them again when somebody else changes or deletes them.

    kubelet deletes all slices of a node whenever it starts, and those of a driver half a minute after it has lost its
    plugin; a node that is made anew under its old name takes them with it. All of this heals here.
    """

    def __init__(
        self, owner: Owner, api: ApiServer, *, failed: Callable[[Exception], Awaitable[None]], heal_s: float = _HEAL_S
    ) -> None:
        self._owner = owner
        self._api = api
        self._failed = failed
        self._heal_s = heal_s
        fields = f"spec.driver={owner.driver},spec.nodeName={owner.node}"
        self._reflector = Reflector(api, SLICES, fields=fields, on_change=self._on_change)
        self._sight = Sight(lambda: self._reflector.objects)
        self._work: dict[str, _Work] = {}
        self._used: dict[str, int] = {}  # generations, by pool
        self._wanted = False
        self._unheard: list[Change] | None = None  # what the watch tells while a pool is written
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()

    @property
    def slices(self) -> int:
        """How many there are of this driver on this node."""
        return len(self._sight.slices())

    def publish(self, pools: Mapping[str, Pool]) -> None:
        """From now on there shall be these pools and no others. Returns at once.

        Raises:
            ValueError: a pool names a device twice, or a slice has more than 128 devices.
        """
        for name, pool in pools.items():
            _check(name, pool)
        gone: dict[str, list[Object] | None] = {name: None for name in self._work if name not in pools}
        wanted = {name: contents(pool) for name, pool in pools.items()}
        for name, specs in (gone | wanted).items():
            work = self._work.get(name)
            if work is None or work.wanted != specs:
                self._work[name] = _renewed(work, specs)
        self._wanted = True
        self._wake.set()

    async def published(self) -> None:
        """Waits until the API server has everything that was published last.

        Raises:
            InvalidPoolError, DroppedFieldsError: it never will.
        """
        while True:
            progress = self._progress
            for work in self._work.values():
                if work.error:
                    raise work.error
            if self._wanted and all(work.written for work in self._work.values()):
                return
            await progress.wait()

    async def run(self) -> None:
        """Until it is cancelled. The slices stay behind."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._write())

    async def _write(self) -> None:
        await self._reflector.synced.wait()
        while True:
            self._wake.clear()
            if self._wanted:
                self._find_strangers()
                for name, work in list(self._work.items()):
                    if work.due <= time.monotonic() and self._work.get(name) is work:
                        await self._attend(name, work)
            await self._rest()

    async def _rest(self) -> None:
        """Until something is published, the watch tells news, or a wait is over."""
        due = min((work.due for work in self._work.values()), default=_FOREVER) if self._wanted else _FOREVER
        try:
            async with asyncio.timeout_at(None if due == _FOREVER else due):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _find_strangers(self) -> None:
        """Pools that a former run of the driver has left, and nobody wants."""
        for item in self._sight.slices().values():
            self._work.setdefault(item["spec"]["pool"]["name"], _Work(None, []))

    async def _attend(self, name: str, work: _Work) -> None:
        work.healing, work.due = False, _FOREVER  # what the watch tells from now on counts anew
        error: PublishError | None = None
        try:
            with self._listening_later():
                await self._sync(name, work)
        except InvalidError as refused:
            error = work.error = InvalidPoolError(name, str(refused), refused.causes)
            work.due = _FOREVER
        except (ConflictError, NotFoundError) as behind:  # the watch is late; it knows better in a moment
            log.info("pool %s: somebody else was faster: %s", name, behind)
            work.due = time.monotonic() + work.retry.next_s()
        except (ApiServerError, PublishError) as failure:
            error = failure if isinstance(failure, PublishError) else PublishError(name, str(failure))
            work.due = time.monotonic() + work.retry.next_s()
        else:
            self._written(name, work)
            if work.lost and not work.error:
                error = work.error = DroppedFieldsError(name, sorted(work.lost))
        self._progress.set()
        self._progress = asyncio.Event()
        if error:
            log.warning("%s", error)
            await self._failed(error)

    def _written(self, name: str, work: _Work) -> None:
        work.retry.reset()
        work.written = True
        settles_in_s = self._sight.settles_in_s
        if settles_in_s is not None:
            work.due = min(work.due, time.monotonic() + settles_in_s + 1)
        if work.wanted is None and self._work.get(name) is work:
            del self._work[name]

    async def _sync(self, name: str, work: _Work) -> None:
        """Does what is to be done for the pool."""
        existing = [item for item in self._sight.slices().values() if item["spec"]["pool"]["name"] == name]
        if work.wanted is None:
            await self._delete(existing)
            return
        least = self._used.get(name, 0)
        steps = plan(self._owner, name, work.specs, existing=existing, least=least)
        await self._delete(steps.delete)
        if steps.update or steps.create:
            self._used[name] = steps.generation
        for place, item in steps.update:
            self._stored(work, place, sent=item, stored=await self._api.replace(SLICES, item))
        owner = await self._owner_reference(name) if steps.create else {}
        for place, item in steps.create:
            item["metadata"]["ownerReferences"] = [owner]
            self._stored(work, place, sent=item, stored=await self._api.create(SLICES, item))

    def _stored(self, work: _Work, place: int, *, sent: Object, stored: Object) -> None:
        """Notes what the server made of a slice; that is what is kept up from now on."""
        self._sight.wrote(stored)
        wanted, found = content_of(sent), content_of(stored)
        if not alike(wanted, found):
            work.specs[place] = found
            work.lost.update(dropped(wanted, found))

    async def _delete(self, items: list[Object] | tuple[Object, ...]) -> None:
        for item in items:
            metadata = item["metadata"]
            try:
                await self._api.delete(
                    SLICES, metadata["name"], uid=metadata["uid"], resource_version=metadata["resourceVersion"]
                )
            except NotFoundError:
                pass
            self._sight.deleted(item)

    async def _owner_reference(self, pool: str) -> Object:
        """Read for each batch: a node made anew has another UID, and slices that name the old one are collected."""
        try:
            node = await self._api.get(NODES, self._owner.node)
        except NotFoundError as error:
            raise PublishError(pool, f"there is no node {self._owner.node}") from error
        return {
            "apiVersion": NODES.api_version,
            "kind": "Node",
            "name": self._owner.node,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }

    @contextmanager
    def _listening_later(self) -> Iterator[None]:
        """The watch may be faster than the answer to an own write, which would then look like somebody else's."""
        unheard: list[Change] = []
        self._unheard = unheard
        try:
            yield
        finally:
            self._unheard = None
            for change in unheard:
                self._on_change(change)

    def _on_change(self, change: Change) -> None:
        if self._unheard is not None:
            self._unheard.append(change)
            return
        if not self._sight.seen(change):
            return
        for item in (change.old, change.new):
            if item is not None:
                self._heal(item["spec"]["pool"]["name"])
        self._wake.set()

    def _heal(self, name: str) -> None:
        """Soon, and less soon when it keeps happening: somebody may be at odds with this process."""
        work = self._work.get(name)
        if work is None or isinstance(work.error, InvalidPoolError) or work.healing:
            return
        now = time.monotonic()
        if now - work.healed > 2 * LASTING_S:
            work.heal.reset()
        work.healing, work.healed = True, now
        work.due = min(work.due, now + work.heal.next_s() * self._heal_s)


def _renewed(work: _Work | None, wanted: list[Object] | None) -> _Work:
    """Work on something else, with the waits that were reached before."""
    new = _Work(wanted, list(wanted or ()))
    return replace(new, retry=work.retry, heal=work.heal, healed=work.healed) if work else new


def _check(name: str, pool: Pool) -> None:
    names = [device["name"] for part in pool.slices for device in part.devices]
    twice = {device for device in names if names.count(device) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise ValueError(f"pool {name} names a device twice: {', '.join(sorted(twice))}")
    if any(len(part.devices) > MOST_DEVICES for part in pool.slices):
        raise ValueError(f"pool {name} has a slice with more than {MOST_DEVICES} devices")
