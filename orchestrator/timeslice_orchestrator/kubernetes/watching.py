"""Watches groups, claims, pods and slices: tells discovery of the groups, keeps what belongs to them, and tells people
why their pods wait."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field
from typing import Protocol

from dra_kubeletplugin.apiserver import ApiServer, UnavailableError
from timeslice_api.tasks import cancelled

from timeslice_orchestrator.core.model import GroupId, LeaseTimes, Setback
from timeslice_orchestrator.discovery.groups_file import FileGroup
from timeslice_orchestrator.kubernetes.claims import Claim
from timeslice_orchestrator.kubernetes.cluster import Cluster, Listener
from timeslice_orchestrator.kubernetes.events import Events
from timeslice_orchestrator.kubernetes.evictions import Evictions, EvictionTimes
from timeslice_orchestrator.kubernetes.group_status import GroupStatus
from timeslice_orchestrator.kubernetes.passes import Passes
from timeslice_orchestrator.kubernetes.pods import Pod
from timeslice_orchestrator.kubernetes.reports import Reports

_log = logging.getLogger(__name__)


class GroupsListener(Protocol):
    """Who is told which groups there are: discovery."""

    def groups_said(self, groups: tuple[FileGroup, ...]) -> None:
        """Takes the whole set."""


@dataclass(frozen=True)
class WatchTimes:
    """How soon and how often (seconds).

    Attributes:
        groups_s: changes are gathered so long before groups are put right: a new job waits for it.
        reports_s: changes are gathered so long before people are told.
        patience_s: a reason that may pass by itself is told only after so long.
        again_s: what stays is said again so often.
        linger_s: a job stays in status.jobs so long after its last claim.
        sync_s: `start` waits so long for the groups.
        events_per_minute: no more are made in any 60 s.
        evictions: see there.
    """

    groups_s: float = 0.05
    reports_s: float = 1.0
    patience_s: float = 15.0
    again_s: float = 600.0
    linger_s: float = 10.0
    sync_s: float = 20.0
    events_per_minute: int = 60
    evictions: EvictionTimes = field(default_factory=EvictionTimes)


class Watching(Listener):
    """What the leader does on Kubernetes beside granting: `await start()`, later `await stop()`. Only the leader may.

    Of the engine it needs only what `setbacks_said` is told. `start` returns when `discovery` was told of all groups,
    so call it before nodes and clients are served: a group that discovery does not know yet would look gone to the
    core. From then on discovery is told, in the running loop, of each change of the set: a group's devices are those
    that nodes declare (`FileGroup.devices` is None), its jobs are spec.jobs. A group that is being deleted stays in the
    set until its last claim is gone.

    What it writes: DeviceClasses of groups; of TimesliceGroups the finalizer `timeslice.dev/claims` and, by server-side
    apply as a field manager of its own, status.jobs and the conditions of `conditions.MINE`. Whoever else writes their
    status must leave these alone, and will find that resourceVersion rises. Beside that events, and evictions.

    Args:
        api: stays the caller's, to be closed after `stop`.
        discovery: see above.
        times: how soon and how often.
        instance: name of this process in events.
    """

    def __init__(
        self, api: ApiServer, discovery: GroupsListener, *, times: WatchTimes | None = None, instance: str = ""
    ) -> None:
        self._times = times or WatchTimes()
        self._discovery = discovery
        self._told: tuple[FileGroup, ...] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.cluster = Cluster(api, self)
        self._events = Events(
            api, instance or socket.gethostname(), per_minute=self._times.events_per_minute, again_s=self._times.again_s
        )
        self._status = GroupStatus(api, self.cluster, self._events, linger_s=self._times.linger_s)
        self._reports = Reports(
            api, self.cluster, self._events, patience_s=self._times.patience_s, again_s=self._times.again_s
        )
        self._evictions = Evictions(api, self.cluster, self._events, self._times.evictions)
        self._passes = {
            "groups": Passes("groups", self._status.step, gather_s=self._times.groups_s),
            "reports": Passes("reports", self._reports.step, gather_s=self._times.reports_s),
            "evictions": Passes("evictions", self._evictions.step, gather_s=self._times.reports_s),
        }

    @property
    def disagreements(self) -> int:
        """Labels seen that are not followed, since the start; for a counter."""
        return self._reports.disagreements

    @property
    def evicted(self) -> int:
        """Pods evicted since the start; for a counter."""
        return self._evictions.evicted

    async def start(self) -> None:
        """Starts to watch; returns when discovery knows all groups.

        Raises:
            UnavailableError: the API server did not give them in time. Nothing runs then.
        """
        work = (asyncio.create_task(self._work()), asyncio.create_task(self._events.run()))
        self._tasks = [*self.cluster.running(), *work]
        for task in self._tasks:
            task.add_done_callback(_ended)
        try:
            async with asyncio.timeout(self._times.sync_s):
                await self.cluster.groups_synced()
        except TimeoutError as error:
            await self.stop()
            message = f"the API server did not list the TimesliceGroups within {self._times.sync_s:g} s"
            raise UnavailableError(0, "Timeout", message) from error
        except BaseException:
            await self.stop()
            raise
        self._tell_discovery()

    async def stop(self) -> None:
        """Ends everything; a request that is on its way is cut off. Safe to repeat."""
        tasks, self._tasks = self._tasks, []
        await cancelled(*tasks)

    async def _work(self) -> None:
        """Nothing is decided on half of what there is."""
        await self.cluster.synced()
        await asyncio.gather(*(passes.run() for passes in self._passes.values()))

    def group_changed(self, name: str, *, in_spec: bool) -> None:
        """See `Listener`."""
        if in_spec and self._told is not None:
            self._tell_discovery()
        self._status.touch([name])
        self._passes["groups"].wake()
        if in_spec:
            self._passes["reports"].wake()

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        """See `Listener`."""
        if old is not None and new is None:
            self._events.forget(old.uid)
        self._reports.touch([claim for claim in (old, new) if claim])

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """See `Listener`."""
        if old is not None and new is None:
            self._events.forget(old.uid)
        self._reports.touch(claim for pod in (old, new) if pod for claim in self.cluster.occupancy.claims_of(pod))

    def groups_touched(self, names: set[str]) -> None:
        """See `Listener`."""
        self._status.touch(names)
        for passes in self._passes.values():
            passes.wake()

    def setbacks_said(self, group_id: GroupId, setbacks: tuple[Setback, ...]) -> None:
        """Why those who wait for the group are not served; nothing when they are."""
        if self.cluster.setbacks.get(group_id, ()) != setbacks:
            self.cluster.setbacks[group_id] = setbacks
            if not setbacks:
                del self.cluster.setbacks[group_id]
            self.groups_touched({group_id})

    def _tell_discovery(self) -> None:
        groups = tuple(
            FileGroup(
                name,
                None,
                None if group.spec.jobs is None else frozenset(group.spec.jobs),
                LeaseTimes(group.spec.lease.ttl_seconds, group.spec.lease.grace_seconds),
            )
            for name, group in sorted(self.cluster.groups.good.items())
        )
        if groups != self._told:
            self._told = groups
            self._discovery.groups_said(groups)


def _ended(task: asyncio.Task[None]) -> None:
    """A defect of ours; what is watched goes stale from here on, so it must not go unseen."""
    if not task.cancelled() and (error := task.exception()):
        _log.critical("a part of the watch has ended, and does nothing until the next leader", exc_info=error)
