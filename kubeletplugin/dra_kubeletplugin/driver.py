"""What the author of a driver writes: three methods. The library calls them, and keeps the promises made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dra_kubeletplugin.apiserver import Object
from dra_kubeletplugin.claims import AllocatedDevice, Claim, ClaimRef


class PrepareError(Exception):
    """A claim could not be prepared or unprepared. The text reaches the user in an event of the pod.

    kubelet tries to prepare again for as long as the pod is bound to the node, at its next look at the pod: after 60 to
    90 seconds with its default `syncFrequency` (a failed prepare is no error of the sync, so there is no shorter
    back-off; kuberuntime_manager.go, SyncPod of 1.37). It never sends the pod elsewhere. An unprepare it repeats after
    10 to 15 seconds.
    """


@dataclass(frozen=True)
class PreparedDevice:
    """A device of a claim, ready for the containers.

    Attributes:
        requests: the requests of the claim that it is for, sub-requests allowed; empty means all. A container gets
            only the devices of the requests that it references.
        cdi_ids: fully qualified CDI devices (`vendor/class=name`) that the runtime puts into the containers. kubelet
            keeps them for as long as the pod's sandbox lives, so their specs must stay until unprepare.
        share_id: as in the allocation (kubelet 1.35 and newer use it).
        metadata: attributes for the device metadata file of the container, as a ResourceSlice has them
            (`{"model": {"string": "x"}}`); None for no such file. Needs `Plugin(metadata=...)`.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share_id: str = ""
    metadata: Mapping[str, Object] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, result: AllocatedDevice, *cdi_ids: str, metadata: Mapping[str, Object] | None = None) -> PreparedDevice:
        """The device of that allocation result, for its request and share."""
        return cls(result.pool, result.device, (result.request,), cdi_ids, result.share_id, metadata)


class Driver(Protocol):
    """A driver's side. No method may block the event loop.

    `prepare` and `unprepare` are never under way at the same time, on this node, for this driver: the library holds a
    lock across processes (`Plugin(serialize=False)` leaves that to the driver). They are not cancelled when kubelet
    gives up after its 45 seconds; kubelet's next try waits until they have returned. Keep them well below that. What
    takes longer goes on in the background, behind a PrepareError that says so; but then a minute or more passes before
    kubelet asks again, so wait for what may be done in seconds.
    """

    async def prepare(self, claims: Sequence[Claim]) -> Mapping[str, Sequence[PreparedDevice] | PrepareError]:
        """Makes the devices of each claim ready for containers on this node.

        The claims have been read from the API server for this call and are allocated, and their UIDs are those that
        kubelet asked for. `claim.results` may be empty, when all of a claim's devices are other drivers'.

        Must be idempotent: kubelet calls again for the same UID after its own restart, after a reboot, when its answer
        got lost, and when another driver's part of the same pod failed; whatever containers need (CDI specs) must be
        there again afterwards. A claim that several pods share is prepared once, for the first of them. Nothing
        survives a reboot but what the driver itself keeps on disk. With two instances in a rolling update either may
        get any call, so no state may be in memory only.

        Returns:
            For the UID of each claim its devices, in any order, or why not. A claim that is left out counts as failed.

        Raises:
            PrepareError: nothing was done, for any claim. Other exceptions are reported likewise, as internal errors.
        """
        ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareError | None]:
        """Undoes `prepare`, after the last pod that used the claim has ended, and before it may be deleted.

        Must be idempotent and succeed for UIDs that were never prepared or are unprepared. The claim object may be gone
        or, under the same name, another one: only the reference is given. kubelet repeats it until it succeeds, and
        the pod stays Terminating for so long.

        Returns:
            For the UID of each claim None, or why not. A claim that is left out counts as failed.

        Raises:
            PrepareError: nothing was undone, for any claim. Other exceptions are reported likewise.
        """
        ...

    async def failed(self, error: Exception) -> None:
        """Something in the background went wrong, and nobody else is told.

        `DroppedFieldsError` and `InvalidPoolError`: the pool will not be published until `Plugin.publish` is called
        with something else. `PublishError` and `RegistrationError`: it is being retried. Anything else is a defect or
        the end of a server: the process should exit, to be started anew.
        """
        ...
