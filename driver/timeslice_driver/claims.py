"""A prepared claim, as the kubelet plugin hands it to the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timeslice_driver.parts import Member


@dataclass(frozen=True)
class PreparedClaim:
    """Which pods may use which devices of this node, for which job in which group.

    Attributes:
        uid: of the ResourceClaim; it names the claim for good.
        namespace, name: of the ResourceClaim, for people: another claim may get the same ones later.
        device_ids: UUIDs of the GPUs.
        pods: names by UID of the pods for which it is prepared.
        host_memory_bytes: set aside on the host for what is parked of it; 0 when nothing says.
    """

    uid: str
    namespace: str
    name: str
    job_id: str
    group_id: str
    device_ids: tuple[str, ...]
    pods: Mapping[str, str]
    host_memory_bytes: int = 0

    @property
    def member(self) -> Member:
        """Whose part it makes."""
        return Member(self.job_id, self.group_id)

    @property
    def about(self) -> dict[str, str]:
        """Fields of a line of the log about it (`extra`)."""
        return {"claim_uid": self.uid, **self.member.about}

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"
