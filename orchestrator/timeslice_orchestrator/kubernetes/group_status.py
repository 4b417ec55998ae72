"""Keeps what belongs to a TimesliceGroup as it has to be: finalizer, DeviceClass, jobs and conditions of its status."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dra_kubeletplugin.apiserver import (
    CLAIMS,
    DEVICE_CLASSES,
    AlreadyExistsError,
    ApiServer,
    ApiServerError,
    ConflictError,
    NotFoundError,
    Object,
)
from timeslice_api.kinds.group import TimesliceGroup
from timeslice_api.kinds.names import API_VERSION, FINALIZER, KIND_GROUP, class_name

from timeslice_orchestrator.kubernetes import device_classes, notes
from timeslice_orchestrator.kubernetes.claims import Claim, claim_of
from timeslice_orchestrator.kubernetes.cluster import GROUPS, Cluster
from timeslice_orchestrator.kubernetes.conditions import JOBS_FULL, Condition, applied, conditions, differ, invalid
from timeslice_orchestrator.kubernetes.device_classes import Step
from timeslice_orchestrator.kubernetes.events import Events, Note
from timeslice_orchestrator.kubernetes.jobs import jobs_of
from timeslice_orchestrator.kubernetes.lingering import Lingering
from timeslice_orchestrator.kubernetes.raw import Raw, at

_log = logging.getLogger(__name__)

MANAGER = "timeslice-orchestrator-watching"  # field manager of our part of the status
_CHANGED_S = 0.5  # until the watch has what changed under our hands
_SETTLE_S = 2.0  # the scheduler may still know a DeviceClass that is gone


@dataclass(frozen=True, slots=True)
class _Wanted:
    jobs: tuple[str, ...]
    conditions: tuple[Condition, ...]


class GroupStatus:
    """Mends groups in `step`; see `Passes`.

    Args:
        api: where they are.
        cluster: what is known.
        events: where people are told of groups that are full.
        linger_s: how long a job stays in status.jobs after its last claim; it spares the nodes two changes of their
            slices for each pod that is replaced.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        api: ApiServer,
        cluster: Cluster,
        events: Events,
        *,
        linger_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._events = events
        self._clock = clock
        self._lingering = Lingering(linger_s, clock)
        self._touched: dict[str, None] = {}
        self._due: dict[str, float] = {}  # when groups are to be looked at though nothing changed
        self._classless_since: dict[str, float] = {}  # of groups that are being deleted, by UID
        self._in_use: frozenset[str] = frozenset()  # the groups of all claims, as the API server told them last
        self._asked_at = -math.inf  # when it was asked

    def touch(self, names: Iterable[str]) -> None:
        """Something changed that these groups depend on; "" stands for all of them."""
        for name in names:
            self._touched.update(dict.fromkeys([name] if name else self._cluster.groups.raw))

    async def step(self) -> float | None:
        """Brings the groups that were touched to what they have to be, and those whose time has come; returns after how
        many seconds there is more to do.

        Raises:
            ApiServerError: the first of those that groups met; the others were served, and these are touched again.
        """
        self.touch([name for name, due in self._due.items() if due <= self._clock()])
        touched, self._touched = self._touched, {}
        failures: list[ApiServerError] = []
        for name in touched:
            self._due.pop(name, None)
            try:
                wait_s = await self._one(name)
            except (ConflictError, NotFoundError) as error:
                _log.debug("group %s changed meanwhile, and is looked at again: %s", name, error)
                wait_s = _CHANGED_S
            except ApiServerError as error:
                _log.warning("group %s: %s", name, error)
                failures.append(error)
                self.touch([name])
                continue
            if wait_s is not None:
                self._due[name] = self._clock() + wait_s
            await asyncio.sleep(0)  # at the start there may be hundreds
        if failures:
            raise failures[0]
        return max(0.0, min(self._due.values()) - self._clock()) if self._due else None

    async def _one(self, name: str) -> float | None:
        raw = self._cluster.groups.raw.get(name)
        group = self._cluster.groups.good.get(name)
        problem = self._cluster.groups.problems.get(name)
        if raw is None:
            self._lingering.forget(name)
            return None
        if group is None:
            await self._tell(raw, _Wanted((), (invalid(problem or ""),)))
            return None
        if not group.deleted and FINALIZER not in group.metadata.finalizers:
            await self._set_finalizers(raw, [*group.metadata.finalizers, FINALIZER])
        taken = await self._mend_class(group)
        jobs = self._lingering.kept(group, jobs_of(group, self._cluster.occupancy))
        allocated = self._cluster.occupancy.allocated_in(name)
        offered = self._cluster.occupancy.offered(name)
        setbacks = self._cluster.setbacks.get(name, ())
        told = conditions(group, offered, jobs=jobs, allocated=allocated, setbacks=setbacks, class_taken=taken)
        if problem:
            told = (invalid(f"{problem}; the last good version is in force"), *told[1:])
        await self._tell(raw, _Wanted(jobs.listed, told))
        waits = (self._lingering.over_in(name), await self._let_go(raw, group, allocated))
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def _mend_class(self, group: TimesliceGroup) -> bool:
        """True when somebody else has a class of that name."""
        name = class_name(group.name)
        found = self._cluster.device_class(name)
        todo = device_classes.step(group, found)
        if todo is Step.CREATE:
            await self._create_class(group)
        elif todo is Step.REPLACE and found is not None:
            _log.info("DeviceClass %s differs from what it has to be, and is put right", name)
            await self._api.replace(DEVICE_CLASSES, device_classes.healed(group, found))
        elif todo is Step.DELETE and found is not None:
            await self._api.delete(DEVICE_CLASSES, name, uid=found["metadata"]["uid"])
        return todo is Step.REPORT

    async def _create_class(self, group: TimesliceGroup) -> None:
        try:
            await self._api.create(DEVICE_CLASSES, device_classes.wanted(group))
        except AlreadyExistsError:
            _log.debug("DeviceClass %s is there already; the watch will tell whose it is", class_name(group.name))

    async def _set_finalizers(self, raw: Raw, finalizers: list[str]) -> None:
        metadata = {"finalizers": finalizers, "resourceVersion": raw["metadata"]["resourceVersion"]}
        await self._api.patch(GROUPS, raw["metadata"]["name"], {"metadata": metadata})

    async def _tell(self, raw: Raw, wanted: _Wanted) -> None:
        """Writes jobs and conditions, when they differ. Our fields alone: leases and records are another writer's."""
        metadata = raw["metadata"]
        for condition in wanted.conditions:
            if condition.type == JOBS_FULL:
                about = notes.of_group(metadata["name"], metadata["uid"])
                self._events.say(Note(about, condition.reason, "Admitting", condition.message))
        if list(at(raw, "status").get("jobs", ())) == list(wanted.jobs) and not differ(raw, wanted.conditions):
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: Object = {
            "apiVersion": API_VERSION,
            "kind": KIND_GROUP,
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "status": {"jobs": list(wanted.jobs), "conditions": applied(raw, wanted.conditions, now)},
        }
        await self._api.patch(GROUPS, metadata["name"], body, subresource="status", how="apply", manager=MANAGER)

    async def _let_go(self, raw: Raw, group: TimesliceGroup, allocated: Sequence[Claim]) -> float | None:
        """Takes the finalizer off when nothing is allocated in the group and nothing can be any more."""
        uid = group.metadata.uid
        if not group.deleted or FINALIZER not in group.metadata.finalizers or allocated:
            self._classless_since.pop(uid, None)
            return None
        found = self._cluster.device_class(class_name(group.name))
        if found is not None and device_classes.is_ours(found):
            return None  # the watch tells when it is gone
        settled = self._classless_since.setdefault(uid, self._clock()) + _SETTLE_S
        if (wait_s := settled - self._clock()) > 0:
            return wait_s
        if await self._is_allocated(group.name, settled):  # the watch is a moment late
            self._classless_since[uid] = self._clock()
            return _SETTLE_S
        await self._set_finalizers(raw, [one for one in group.metadata.finalizers if one != FINALIZER])
        del self._classless_since[uid]
        return None

    async def _is_allocated(self, group_id: str, settled: float) -> bool:
        """By a state of the API server that is no older than `settled`; groups that go together share one answer."""
        if self._asked_at < settled:
            asked_at = self._clock()
            raw, _ = await self._api.list(CLAIMS)
            claims = [claim for one in raw if (claim := claim_of(one))]
            groups = (self._cluster.occupancy.group_of(claim, use) for claim in claims for use in claim.uses)
            self._in_use, self._asked_at = frozenset(filter(None, groups)), asked_at
        return group_id in self._in_use
