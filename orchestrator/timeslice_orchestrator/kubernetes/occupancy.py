"""Who has which GPU: what the nodes publish and what the scheduler allocated, put together and kept up to date.

Each change costs what it touches and no more: with thousands of claims, the loop that grants locks must not wait for a
sum over all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from timeslice_api.kinds.names import capacity_key

from timeslice_orchestrator.kubernetes.claims import Claim, Use
from timeslice_orchestrator.kubernetes.lanes import Lane, Slice, current, gpu_and_rest
from timeslice_orchestrator.kubernetes.pods import Pod

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class User:
    """A claim that has a GPU, and what it takes of it."""

    claim: Claim
    use: Use
    group_id: str


class _Index(Generic[_Value]):
    """Values by a key, each under its UID; a key without values takes no room."""

    def __init__(self) -> None:
        self._all: dict[Hashable, dict[str, _Value]] = {}

    def put(self, key: Hashable, uid: str, value: _Value) -> None:
        self._all.setdefault(key, {})[uid] = value

    def drop(self, key: Hashable, uid: str) -> None:
        values = self._all.get(key)
        if values is not None:
            values.pop(uid, None)
            if not values:
                del self._all[key]

    def of(self, key: Hashable) -> Collection[_Value]:
        return self._all.get(key, {}).values()


class Occupancy:
    """Claims, pods and lanes, with the ways from one to the other."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._pods: dict[str, Pod] = {}
        self._lanes: dict[str, dict[str, Lane]] = {}  # by pool, then device
        self._waiting: dict[str, Claim] = {}
        self._slices: _Index[Slice] = _Index()  # by pool
        self._offered: _Index[Lane] = _Index()  # by group; slots by ""
        self._users: _Index[Claim] = _Index()  # by pool and GPU
        self._concerned: _Index[Claim] = _Index()  # by group: claims that ask for it, or may have a lane of it
        self._named: _Index[Claim] = _Index()  # by namespace and name
        self._of_pod: _Index[Claim] = _Index()  # by the pod's UID
        # claims with devices, by the job, as the claim itself says it, and the group; or the namespace
        self._of_job: _Index[Claim] = _Index()
        self._of_job_in: _Index[Claim] = _Index()
        self._pods_naming: _Index[Pod] = _Index()  # by namespace and claim's name

    # What changes: each returns the groups that it touches

    def change_claim(self, old: Claim | None, new: Claim | None) -> set[str]:
        """A claim was added, has changed, or is gone."""
        if old is not None:
            self._claims.pop(old.uid, None)
            self._waiting.pop(old.uid, None)
            for index, key in self._keys(old):
                index.drop(key, old.uid)
        if new is not None:
            self._claims[new.uid] = new
            if not new.uses:
                self._waiting[new.uid] = new
            for index, key in self._keys(new):
                index.put(key, new.uid, new)
        return {group_id for claim in (old, new) if claim for group_id in _concerns(claim)}

    def change_pod(self, old: Pod | None, new: Pod | None) -> set[str]:
        """A pod was added, has changed, or is gone."""
        if old is not None:
            self._pods.pop(old.uid, None)
            for name in old.claims:
                self._pods_naming.drop((old.namespace, name), old.uid)
        if new is not None:
            self._pods[new.uid] = new
            for name in new.claims:
                self._pods_naming.put((new.namespace, name), new.uid, new)
        claims = {claim.uid: claim for pod in (old, new) if pod for claim in self.claims_of(pod)}
        return {group_id for claim in claims.values() for group_id in _concerns(claim)}

    def change_slice(self, old: Slice | None, new: Slice | None) -> set[str]:
        """A slice was added, has changed, or is gone. Slots touch the group ""."""
        touched: set[str] = set()
        if old is not None:
            self._slices.drop(old.pool, old.uid)
        if new is not None:
            self._slices.put(new.pool, new.uid, new)
        for pool in {one.pool for one in (old, new) if one}:
            touched |= self._republish(pool)
        return touched

    def _republish(self, pool: str) -> set[str]:
        before = self._lanes.pop(pool, {})
        after = {lane.device: lane for lane in current(self._slices.of(pool))}
        for device, lane in before.items():
            self._offered.drop(lane.group_id, f"{pool}/{device}")
        for device, lane in after.items():
            self._offered.put(lane.group_id, f"{pool}/{device}", lane)
        if after:
            self._lanes[pool] = after
        differ = [device for device in before.keys() | after.keys() if before.get(device) != after.get(device)]
        return {lane.group_id for device in differ for lane in (before.get(device), after.get(device)) if lane}

    def _keys(self, claim: Claim) -> Iterator[tuple[_Index[Claim], Hashable]]:
        """Where the claim is found."""
        yield from ((self._concerned, group_id) for group_id in _concerns(claim))
        yield from ((self._users, (use.pool, gpu_and_rest(use.device)[0])) for use in claim.uses)
        yield from ((self._of_pod, ref.uid) for ref in claim.pods)
        if claim.uses and (job := claim.config_job or claim.label_job):
            yield self._of_job_in, (job, claim.namespace)
            yield from ((self._of_job, (job, group_id)) for group_id in claim.groups)
        yield self._named, (claim.namespace, claim.name)

    # What is

    @property
    def claims(self) -> Mapping[str, Claim]:
        """Claims that ask for devices of ours, or have some, by UID."""
        return self._claims

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Pods with claims, or of a job, that have not ended, by UID."""
        return self._pods

    @property
    def waiting(self) -> Collection[Claim]:
        """The claims that have no device."""
        return self._waiting.values()

    def offered(self, group_id: str) -> list[Lane]:
        """The group's lanes, and the slots, which any group may take."""
        return [*self._offered.of(group_id), *(self._offered.of("") if group_id else ())]

    def users(self, lane: Lane) -> list[User]:
        """The claims that have the lane's GPU, by whichever of its lanes or slots; once for each of these."""
        claims = self._users.of((lane.pool, lane.gpu))
        return [
            User(claim, use, self.group_of(claim, use))
            for claim in claims
            for use in claim.uses
            if use.pool == lane.pool and gpu_and_rest(use.device)[0] == lane.gpu
        ]

    def group_of(self, claim: Claim, use: Use) -> str:
        """The group that the device was taken for: the lane's own, and of a slot or a lane that is no longer published
        the one that the claim asked."""
        lane = self._lanes.get(use.pool, {}).get(use.device)
        return (lane.group_id if lane else "") or claim.group_asked(use.request)

    def asking(self, group_id: str) -> list[Claim]:
        """The claims that name the group's DeviceClass."""
        return [claim for claim in self._concerned.of(group_id) if group_id in claim.groups]

    def allocated_in(self, group_id: str) -> list[Claim]:
        """The claims that have devices of the group, by name."""
        found = [
            claim
            for claim in self._concerned.of(group_id)
            if any(self.group_of(claim, use) == group_id for use in claim.uses)
        ]
        return sorted(found, key=lambda claim: (claim.namespace, claim.name))

    def pods_of(self, claim: Claim) -> list[Pod]:
        """The pods of a claim: its owner, those that it is reserved for, and those that name it."""
        referred = {ref.uid: self._pods[ref.uid] for ref in claim.pods if ref.uid in self._pods}
        naming = {pod.uid: pod for pod in self._pods_naming.of((claim.namespace, claim.name))}
        return list((referred | naming).values())

    def claims_of(self, pod: Pod) -> list[Claim]:
        """The claims of a pod, among those that concern us."""
        named = [claim for name in pod.claims for claim in self._named.of((pod.namespace, name))]
        return list({claim.uid: claim for claim in (*named, *self._of_pod.of(pod.uid))}.values())

    def claims_of_pod(self, uid: str) -> Collection[Claim]:
        """The claims that a pod owns or is reserved for."""
        return self._of_pod.of(uid)

    def claims_of_job(self, job: str, group_id: str) -> Collection[Claim]:
        """The claims with devices that name the job themselves and the group's DeviceClass."""
        return self._of_job.of((job, group_id))

    def has_devices(self, job: str, namespace: str) -> bool:
        """Whether claims of the namespace that name the job themselves have devices."""
        return bool(self._of_job_in.of((job, namespace)))

    def job_of(self, claim: Claim) -> str:
        """The claim's job: its configuration's, else its label's, else that of its pods; empty where nobody said."""
        named = claim.config_job or claim.label_job
        return named or next((pod.label_job for pod in self.pods_of(claim) if pod.label_job), "")

    def jobs_of(self, claim: Claim) -> frozenset[str]:
        """The jobs as which its pods may act: its own, or, where only pods say one, any that they say."""
        named = claim.config_job or claim.label_job
        return frozenset({named} if named else {pod.label_job for pod in self.pods_of(claim) if pod.label_job})

    def has_job(self, user: User, job: str) -> bool:
        """Whether the GPU's user counts as that job: the allocation is the truth where it tells."""
        return capacity_key(job) in user.use.job_keys if user.use.job_keys else self.job_of(user.claim) == job


def _concerns(claim: Claim) -> Iterable[str]:
    """Groups that the claim asks for, and those whose lanes it may have by another DeviceClass: their names end so."""
    return dict.fromkeys((*claim.groups, *(gpu_and_rest(use.device)[1] for use in claim.uses)))
