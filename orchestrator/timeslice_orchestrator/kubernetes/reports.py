"""Tells people why their pods wait, who is not admitted, which of their labels are not followed, and whose state cannot
leave the GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dra_kubeletplugin.apiserver import NODES, ApiServer

from timeslice_orchestrator.kubernetes import notes
from timeslice_orchestrator.kubernetes.claims import Claim
from timeslice_orchestrator.kubernetes.cluster import Cluster
from timeslice_orchestrator.kubernetes.disagreements import disagreements
from timeslice_orchestrator.kubernetes.events import Events, Note
from timeslice_orchestrator.kubernetes.pending import Reason, World, barred, why_pending
from timeslice_orchestrator.kubernetes.pods import Pod
from timeslice_orchestrator.kubernetes.wording import said, word

_NODES_S = 30.0  # so long the nodes that a selector chooses are believed


class Reports:
    """Says what there is to say in `step`; see `Passes`.

    Args:
        api: asked for the nodes that a selector chooses.
        cluster: what is known.
        events: where it is told.
        patience_s: a reason that may pass by itself is told only after so many seconds.
        again_s: how often what stays is said again.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        api: ApiServer,
        cluster: Cluster,
        events: Events,
        *,
        patience_s: float,
        again_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._events = events
        self._patience_s = patience_s
        self._again_s = again_s
        self._clock = clock
        self._passing_since: dict[str, float] = {}  # by pod
        self._selected: dict[str, tuple[float, tuple[str, ...]]] = {}  # by selector
        self._touched: dict[str, None] = {}  # claims, by UID
        self._disagreeing: dict[str, tuple[str, ...]] = {}  # by claim
        self.disagreements = 0

    def touch(self, claims: Iterable[Claim]) -> None:
        """Claims whose labels, or whose pods' labels, may differ from what they were."""
        self._touched.update({claim.uid: None for claim in claims})

    async def step(self) -> float | None:
        """Says it all; returns after how many seconds there may be more to say though nothing changed."""
        waiting = list(self._cluster.occupancy.waiting)
        world = World(self._cluster.groups.good, self._cluster.occupancy, await self._selected_by_group(waiting))
        dues = [*self._barred(waiting, world), *self._pending(waiting, world), *self._labels(), *self._blocked()]
        return min(dues, default=None)

    def _barred(self, waiting: Sequence[Claim], world: World) -> Iterator[float]:
        """On the claim itself, since there may be no pod that the scheduler tried."""
        for claim in waiting:
            for text in filter(None, (barred(claim, group_id, world) for group_id in claim.groups)):
                self._events.say(Note(notes.of_claim(claim), "NotAdmitted", "Admitting", text))
                yield self._again_s

    def _pending(self, waiting: Sequence[Claim], world: World) -> Iterator[float]:
        by_pod: dict[str, tuple[Pod, list[Claim]]] = {}
        for claim in waiting:
            for pod in self._cluster.occupancy.pods_of(claim):
                if pod.unschedulable and not pod.node and not pod.deleting:
                    by_pod.setdefault(pod.uid, (pod, []))[1].append(claim)
        self._passing_since = {uid: since for uid, since in self._passing_since.items() if uid in by_pod}
        for pod, claims in by_pod.values():
            reasons = [why_pending(claim, world) for claim in sorted(claims, key=lambda claim: claim.name)]
            yield self._tell(pod, reasons)

    def _tell(self, pod: Pod, reasons: Sequence[Reason]) -> float:
        """Returns after how many seconds it is to be looked at again."""
        staying = [reason for reason in reasons if not reason.passing]
        if staying:
            self._passing_since.pop(pod.uid, None)
        else:
            wait_s = self._passing_since.setdefault(pod.uid, self._clock()) + self._patience_s - self._clock()
            if wait_s > 0:
                return wait_s
        text = "; ".join(dict.fromkeys(reason.text for reason in staying or reasons))
        self._events.say(Note(notes.of_pod(pod), "WaitingForGPU", "Scheduling", text))
        return self._again_s

    def _labels(self) -> Iterator[float]:
        touched, self._touched = self._touched, {}
        for uid in touched:
            claim = self._cluster.occupancy.claims.get(uid)
            found = disagreements(claim, self._cluster.occupancy) if claim else []
            texts = tuple(dict.fromkeys(one.text for one in found))
            self.disagreements += len(set(texts) - set(self._disagreeing.pop(uid, ())))
            if texts:
                self._disagreeing[uid] = texts
        for uid, texts in self._disagreeing.items():
            claim = self._cluster.occupancy.claims[uid]
            for about in (notes.of_claim(claim), *map(notes.of_pod, self._cluster.occupancy.pods_of(claim))):
                self._events.say(Note(about, "LabelNotFollowed", "Reading", "; ".join(texts)))
            yield self._again_s

    def _blocked(self) -> Iterator[float]:
        """To the pods of the job whose state does not leave, or does not come back."""
        for group_id, setbacks in self._cluster.setbacks.items():
            for claim in self._cluster.occupancy.allocated_in(group_id):
                job = self._cluster.occupancy.job_of(claim)
                for fault in (setback.fault for setback in setbacks if setback.job_id == job):
                    text = f"group {group_id} cannot be handed over: {said(fault)}"
                    for pod in self._cluster.occupancy.pods_of(claim):
                        self._events.say(Note(notes.of_pod(pod), word(fault), "HandingOver", text))
                        yield self._again_s

    async def _selected_by_group(self, waiting: Sequence[Claim]) -> dict[str, tuple[str, ...]]:
        """For groups that are asked for, but that no node publishes: whom the nodeSelector chooses."""
        asked = {group_id for claim in waiting for group_id in claim.groups}
        groups = [self._cluster.groups.good[name] for name in asked if name in self._cluster.groups.good]
        missing = [group for group in groups if not self._cluster.occupancy.offered(group.name)]
        return {group.name: await self._nodes(group.spec.node_selector) for group in missing}

    async def _nodes(self, selector: Mapping[str, str]) -> tuple[str, ...]:
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        read, names = self._selected.get(labels, (float("-inf"), ()))
        if self._clock() - read > _NODES_S:
            nodes, _ = await self._api.list(NODES, labels=labels)
            names = tuple(sorted(node["metadata"]["name"] for node in nodes))
            self._selected[labels] = self._clock(), names
        return names
