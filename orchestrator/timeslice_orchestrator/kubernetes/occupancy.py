"""Who has which GPU: what the nodes publish and what the scheduler allocated, put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from timeslice_api.kinds.names import capacity_key

from timeslice_orchestrator.kubernetes.claims import Claim, Use
from timeslice_orchestrator.kubernetes.lanes import Lane
from timeslice_orchestrator.kubernetes.pods import Pod


@dataclass(frozen=True, slots=True)
class User:
    """A claim that has a GPU, and what it takes of it."""

    claim: Claim
    use: Use
    group_id: str


class Occupancy:
    """An index of one moment.

    Args:
        lanes: of each pool's newest generation.
        claims: all that concern us.
        pods: by UID.
    """

    def __init__(self, lanes: Iterable[Lane], claims: Iterable[Claim], pods: Mapping[str, Pod]) -> None:
        self._lanes = {(lane.pool, lane.device): lane for lane in lanes}
        self._pods = pods
        self._by_group: dict[str, list[Lane]] = defaultdict(list)
        self._users: dict[tuple[str, str], list[User]] = defaultdict(list)
        for lane in self._lanes.values():
            self._by_group["" if lane.slots else lane.group_id].append(lane)
        for claim in claims:
            for use in claim.uses:
                self._users[use.pool, self._gpu(use)].append(User(claim, use, self.group_of(claim, use)))

    def offered(self, group_id: str) -> list[Lane]:
        """The group's lanes, and the slots, which any group may take."""
        return [*self._by_group.get(group_id, ()), *self._by_group.get("", ())]

    def users(self, lane: Lane) -> list[User]:
        """The claims that have the lane's GPU, by whichever of its lanes or slots."""
        return self._users.get((lane.pool, lane.gpu), [])

    def group_of(self, claim: Claim, use: Use) -> str:
        """The group that the device was taken for: the lane's own, and of a slot or a lane that is no longer published
        the one that the claim asked."""
        lane = self._lanes.get((use.pool, use.device))
        return (lane.group_id if lane else "") or claim.group_asked(use.request)

    def job_of(self, claim: Claim) -> str:
        """The claim's job: its configuration's, else its label's, else that of its pods; empty where nobody said."""
        named = claim.config_job or claim.label_job
        pods = (self._pods.get(ref.uid) for ref in claim.pods)
        return named or next((pod.label_job for pod in pods if pod and pod.label_job), "")

    def has_job(self, user: User, job: str) -> bool:
        """Whether the GPU's user counts as that job: the allocation is the truth where it tells."""
        return capacity_key(job) in user.use.job_keys if user.use.job_keys else self.job_of(user.claim) == job

    def allocated_in(self, group_id: str) -> list[Claim]:
        """The claims that have devices of the group, by name."""
        found = {
            user.claim.uid: user.claim for users in self._users.values() for user in users if user.group_id == group_id
        }
        return sorted(found.values(), key=lambda claim: (claim.namespace, claim.name))

    def _gpu(self, use: Use) -> str:
        lane = self._lanes.get((use.pool, use.device))
        return lane.gpu if lane else "-".join(use.device.split("-", 2)[:2])
