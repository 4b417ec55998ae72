"""Pods whose claim the node refused: moved after a grace, so that the scheduler can try elsewhere.

An allocation never moves by itself. When the pod goes, its template's claim goes with it, and what made the pod makes a
new one with a new claim. A bare pod is made by nobody, so it is only told of.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dra_kubeletplugin.apiserver import (
    PODS,
    ApiServer,
    ApiServerError,
    ConflictError,
    NotFoundError,
    ThrottledError,
)

from timeslice_orchestrator.kubernetes import notes
from timeslice_orchestrator.kubernetes.claims import Claim, Refusal
from timeslice_orchestrator.kubernetes.cluster import Cluster
from timeslice_orchestrator.kubernetes.events import Events, Note
from timeslice_orchestrator.kubernetes.pods import Pod

# The node's words for refusals that another node, or a later time, may not have. For the others (ConfigInvalid,
# JobUnknown, NotAdmitted, PodMemory, Stale) a new pod would meet the same: what helps the node's own event says.
MOVABLE = frozenset(
    {
        "DeviceUnhealthy",
        "Draining",
        "GroupConflict",
        "HostMemory",
        "NodeFault",
        "SameJobTwice",
        "SeatsTaken",
        "UnknownDevice",
    }
)
_MINUTE_S = 60.0
_STREAK_S = 3600.0  # a controller whose pods were not evicted for so long starts with the shortest grace again


@dataclass(frozen=True)
class EvictionTimes:
    """How soon and how often pods are evicted (seconds).

    Attributes:
        grace_s: a refusal lasts so long before the pod goes. It doubles with each further eviction of the same
            controller's pods, up to `longest_s`.
        retry_s: after an eviction that a disruption budget did not allow; it doubles too.
        per_minute: no more in any 60 s, whatever a node says.
    """

    grace_s: float = 60.0
    longest_s: float = 600.0
    retry_s: float = 10.0
    per_minute: int = 20


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that waits on a node for a claim that the node refused."""

    pod: Pod
    claim: Claim
    refusal: Refusal


@dataclass(slots=True)
class _Streak:
    count: int
    last: float


class Evictions:
    """Evicts in `step`; see `Passes`.

    Args:
        api: where pods are evicted.
        cluster: what is known.
        events: where people are told.
        times: how soon and how often.
        clock: seconds, monotonic. A refusal counts from when this process first saw it.
    """

    def __init__(
        self,
        api: ApiServer,
        cluster: Cluster,
        events: Events,
        times: EvictionTimes,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._events = events
        self._times = times
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}  # by pod and claim
        self._not_before: dict[str, float] = {}  # by pod
        self._attempts: dict[str, int] = {}  # by pod: those that a budget did not allow
        self._streaks: dict[tuple[str, str], _Streak] = {}  # by namespace and controller
        self._recent: deque[float] = deque(maxlen=times.per_minute)
        self.evicted = 0

    async def step(self) -> float | None:
        """Evicts whose time has come; returns after how many seconds the next one's comes."""
        found = list(refused(self._cluster))
        self._forget_others(found)
        waits = [await self._one(one) for one in found]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def _one(self, one: Refused) -> float | None:
        if one.refusal.reason not in MOVABLE:
            return None
        if not one.pod.controller:
            self._tell(one, "ClaimRefused", "it is a bare pod, so it is not moved: delete it and create it again")
            return None
        wait_s = self._due(one) - self._clock()
        if wait_s > 0:
            return wait_s
        return await self._evict(one)

    def _due(self, one: Refused) -> float:
        since = self._since.setdefault((one.pod.uid, one.claim.uid), self._clock())
        full = len(self._recent) == self._recent.maxlen
        free_at = self._recent[0] + _MINUTE_S if full else 0.0
        return max(since + self._grace_s(one.pod), self._not_before.get(one.pod.uid, 0.0), free_at)

    def _grace_s(self, pod: Pod) -> float:
        streak = self._streaks.get((pod.namespace, pod.controller))
        if streak is None or self._clock() - streak.last > _STREAK_S:
            return self._times.grace_s
        return min(self._times.longest_s, self._times.grace_s * 2.0 ** min(streak.count, 30))

    async def _evict(self, one: Refused) -> float | None:
        """Returns after how many seconds to try again; None when the pod goes."""
        pod = one.pod
        self._recent.append(self._clock())
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            await self._api.create(PODS, body, namespace=pod.namespace, name=pod.name, subresource="eviction")
        except (NotFoundError, ConflictError):  # it is gone, or another pod has its name
            return None
        except ApiServerError as error:
            return self._later(one, error)
        self._gone(one)
        return None

    def _later(self, one: Refused, error: ApiServerError) -> float:
        attempts = self._attempts[one.pod.uid] = self._attempts.get(one.pod.uid, 0) + 1
        wait_s = min(self._times.longest_s, self._times.retry_s * 2.0 ** min(attempts - 1, 30))
        if isinstance(error, ThrottledError):
            wait_s = max(wait_s, error.retry_after_s)
        self._not_before[one.pod.uid] = self._clock() + wait_s
        self._tell(one, "EvictionFailed", f"the pod cannot be evicted yet: {error.message}")
        return wait_s

    def _gone(self, one: Refused) -> None:
        self.evicted += 1
        key = (one.pod.namespace, one.pod.controller)
        before = self._streaks.get(key)
        recent = before is not None and self._clock() - before.last <= _STREAK_S
        self._streaks[key] = _Streak((before.count if before and recent else 0) + 1, self._clock())
        # Until the watch tells that it goes, it is not evicted again.
        self._not_before[one.pod.uid] = self._clock() + self._times.longest_s
        consequence = f"evicted, so that {one.pod.controller} makes a new pod that may find another place"
        self._tell(one, "Evicted", consequence, lasting=True)

    def _tell(self, one: Refused, reason: str, consequence: str, *, lasting: bool = False) -> None:
        why = f"node {one.pod.node} refuses claim {one.claim.name} ({one.refusal.reason}): {one.refusal.message}"
        about = notes.of_pod(one.pod)
        self._events.say(Note(about, reason, "Evicting", f"{why}; {consequence}", lasting=lasting))

    def _forget_others(self, found: list[Refused]) -> None:
        pairs = {(one.pod.uid, one.claim.uid) for one in found}
        pods = {one.pod.uid for one in found}
        self._since = {pair: since for pair, since in self._since.items() if pair in pairs}
        self._not_before = {uid: at for uid, at in self._not_before.items() if uid in pods}
        self._attempts = {uid: count for uid, count in self._attempts.items() if uid in pods}
        now = self._clock()
        self._streaks = {key: streak for key, streak in self._streaks.items() if now - streak.last <= _STREAK_S}


def refused(cluster: Cluster) -> Iterator[Refused]:
    """Pods that wait on their node for a claim that it refused."""
    claims = [claim for claim in cluster.occupancy.claims.values() if claim.refusal and claim.uses]
    for claim in claims:
        for ref in claim.pods:
            pod = cluster.occupancy.pods.get(ref.uid)
            if pod and claim.refusal and pod.pending and pod.node and not pod.deleting:
                yield Refused(pod, claim, claim.refusal)
