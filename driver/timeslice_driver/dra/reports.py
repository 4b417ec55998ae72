"""Tells people how a claim's preparation went: conditions in the claim's status, events on its pods and on itself.

Nothing waits for it, and a failure to tell is logged and harms nobody: on clusters that give node plugins no right to
write claim status, pods start all the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from dra_kubeletplugin import AllocatedDevice, Claim, ClaimRef, PodRef
from dra_kubeletplugin.apiserver import CLAIMS, EVENTS, AlreadyExistsError, ApiServer, ApiServerError
from timeslice_api.kinds import names as kinds

from timeslice_driver.dra.refusals import RefusedError

log = logging.getLogger(__name__)

_MOST_WAITING: Final = 256
_MOST_REMEMBERED: Final = 4096
_MAX_NOTE: Final = 1024  # characters of an event
_READY: Final = "Prepared"


@dataclass(frozen=True)
class Report:
    """How it went: `reason` in a word, `message` in a sentence."""

    claim: Claim
    ready: bool
    reason: str
    message: str


class Reports:
    """Sends reports one after the other. A report that says what the claim's last one said is not sent.

    Args:
        api: the API server.
        node: the node's name.
        instance: which pod of the plugin speaks.
    """

    def __init__(self, api: ApiServer, *, node: str, instance: str = "") -> None:
        self._api = api
        self._node = node
        self._instance = instance or node
        self._waiting: asyncio.Queue[Report] = asyncio.Queue(_MOST_WAITING)
        self._told: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def prepared(self, claim: Claim) -> None:
        """It is prepared."""
        self._send(Report(claim, ready=True, reason=_READY, message=f"prepared on {self._node}"))

    def refused(self, claim: Claim, error: RefusedError) -> None:
        """It is not, and why."""
        self._send(Report(claim, ready=False, reason=error.reason.value, message=str(error)))

    def forget(self, uid: str) -> None:
        """The claim is unprepared; should it come back, that is news."""
        self._told.pop(uid, None)

    async def run(self) -> None:
        """Sends, until it is cancelled."""
        while True:
            report = await self._waiting.get()
            try:
                await self._tell(report)
            finally:
                self._waiting.task_done()

    async def flush(self) -> None:
        """Returns when everything up to now is sent, or has failed."""
        await self._waiting.join()

    def _send(self, report: Report) -> None:
        said = (report.reason, report.message)
        if self._told.get(report.claim.ref.uid) == said:
            return
        try:
            self._waiting.put_nowait(report)
        except asyncio.QueueFull:
            ref, text = report.claim.ref, "too many reports are waiting; left out: claim %s: %s"
            log.warning(text, ref, report.message, extra=ref.about)
            return
        self._told[report.claim.ref.uid] = said
        if len(self._told) > _MOST_REMEMBERED:
            self._told.popitem(last=False)

    async def _tell(self, report: Report) -> None:
        claim = report.claim
        await self._attempt(self._write_status(report), f"the status of claim {claim.ref}")
        if not report.ready:
            regarding = [_claim_reference(claim.ref), *(_pod_reference(claim.ref, pod) for pod in claim.pods)]
            for each in regarding:
                await self._attempt(self._write_event(report, each), f"an event on {each['kind']} {each['name']}")

    async def _attempt(self, call: Any, what: str) -> None:
        try:
            await call
        except AlreadyExistsError:
            return  # told before a restart
        except ApiServerError as error:
            log.warning("cannot write %s: %s", what, error)

    async def _write_status(self, report: Report) -> None:
        """Our entries alone, by server-side apply, which leaves those of other drivers.

        Kubernetes refuses every patch of a claim's status ("status.allocation: field cannot be modified once set") when
        the opaque configuration of its class was sent otherwise than Go sends it; `ApiServer` sends it as Go does.
        """
        ref = report.claim.ref
        body = {
            "apiVersion": CLAIMS.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "status": {"devices": [_device_status(share, report) for share in report.claim.results]},
        }
        await self._api.patch(
            CLAIMS,
            ref.name,
            body,
            namespace=ref.namespace,
            subresource="status",
            how="apply",
            manager=kinds.DRIVER,
        )

    async def _write_event(self, report: Report, regarding: Mapping[str, str]) -> None:
        name = hashlib.sha256("/".join((regarding["uid"], report.reason, report.message)).encode()).hexdigest()[:16]
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {"name": f"timeslice-{name}", "namespace": report.claim.ref.namespace},
            "eventTime": _now().isoformat().replace("+00:00", "Z"),
            "type": "Warning",
            "reason": report.reason,
            "action": "PrepareResourceClaim",
            "note": f"claim {report.claim.ref.name}: {report.message}"[:_MAX_NOTE],
            "regarding": dict(regarding),
            "reportingController": f"{kinds.DRIVER}/kubelet-plugin",
            "reportingInstance": self._instance,
        }
        await self._api.create(EVENTS, body)


def _device_status(share: AllocatedDevice, report: Report) -> dict[str, Any]:
    """Ours alone, named exactly as they are allocated: the API server takes no others from us."""
    condition = {
        "type": "Ready",
        "status": "True" if report.ready else "False",
        "reason": report.reason,
        "message": report.message,
        "lastTransitionTime": _now().replace(microsecond=0).isoformat().replace("+00:00", "Z"),
    }
    name = {"driver": kinds.DRIVER, "pool": share.pool, "device": share.device}
    return name | ({"shareID": share.share_id} if share.share_id else {}) | {"conditions": [condition]}


def _claim_reference(ref: ClaimRef) -> dict[str, str]:
    place = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
    return {"apiVersion": CLAIMS.api_version, "kind": "ResourceClaim"} | place


def _pod_reference(ref: ClaimRef, pod: PodRef) -> dict[str, str]:
    place = {"namespace": ref.namespace, "name": pod.name, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod"} | place


def _now() -> datetime:
    return datetime.now(UTC)
