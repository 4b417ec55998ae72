"""The gRPC service that prepares claims, in both versions that kubelets speak (k8s.io/kubelet, pkg/apis/dra)."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_kubeletplugin.calls import Calls
from dra_kubeletplugin.claims import ClaimRef, base_request
from dra_kubeletplugin.driver import PreparedDevice, PrepareError
from dra_kubeletplugin.requests import CallReport, request_id

log = logging.getLogger(__name__)

_numbers = itertools.count(1)


class NodeService:
    """The servicer of one version. The versions differ in the share id alone, which v1beta1 does not have.

    Args:
        calls: does the work.
        messages: the module of the version's messages.
        observe: told of each call that was answered.
    """

    def __init__(self, calls: Calls, messages: Any, observe: Callable[[CallReport], None]) -> None:
        self._calls = calls
        self._messages = messages
        self._observe = observe
        self._knows_shares = "share_id" in messages.Device.DESCRIPTOR.fields_by_name

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802  the name on the wire
        """One entry for each claim of the request: its devices, or an error for people."""
        with _Call("NodePrepareResources", request, self._observe) as call:
            prepared = await self._calls.prepare(call.refs, left_s=context.time_remaining())
            response = self._messages.NodePrepareResourcesResponse()
            for uid, devices in prepared.items():
                self._enter(response.claims[uid], devices)
            call.answered(response, prepared)
            return response

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802  the name on the wire
        """One entry for each claim of the request, empty or with an error for people."""
        with _Call("NodeUnprepareResources", request, self._observe) as call:
            unprepared = await self._calls.unprepare(call.refs, left_s=context.time_remaining())
            response = self._messages.NodeUnprepareResourcesResponse()
            for uid, error in unprepared.items():
                response.claims[uid].SetInParent()
                response.claims[uid].error = _text(error)
            call.answered(response, unprepared)
            return response

    def _enter(self, entry: Any, devices: Sequence[PreparedDevice] | PrepareError) -> None:
        entry.SetInParent()
        if isinstance(devices, PrepareError):
            entry.error = _text(devices)
            return
        for device in devices:
            added = entry.devices.add(pool_name=device.pool, device_name=device.device)
            added.request_names.extend(dict.fromkeys(map(base_request, device.requests)))
            added.cdi_device_ids.extend(device.cdi_ids)
            if device.share_id and self._knows_shares:
                added.share_id = device.share_id


class _Call:
    """A call as it is logged and counted, under an id of its own."""

    def __init__(self, method: str, request: Any, observe: Callable[[CallReport], None]) -> None:
        self._method = method
        self._observe = observe
        self._id = str(next(_numbers))
        self._started = time.monotonic()
        self._request = request
        asked = {claim.uid: ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims}
        self.refs = tuple(asked.values())

    def __enter__(self) -> _Call:
        self._token = request_id.set(self._id)
        log.debug("call %s: %s %s", self._id, self._method, self._request)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            log.warning("call %s: %s was given up by the caller", self._id, self._method)
        request_id.reset(self._token)

    def answered(self, response: Any, results: Mapping[str, object]) -> None:
        failures = {uid: error for uid, error in results.items() if isinstance(error, PrepareError)}
        for ref in self.refs:
            if ref.uid in failures:
                told = self._id, self._method, ref, failures[ref.uid]
                log.warning("call %s: %s of claim %s failed: %s", *told, extra=ref.about)
        seconds = time.monotonic() - self._started
        log.debug("call %s: answer after %.3f s %s", self._id, seconds, response)
        if self.refs:
            self._observe(CallReport(self._method, seconds, len(self.refs), len(failures)))


def _text(error: PrepareError | None) -> str:
    """An empty error would count as success."""
    return "" if error is None else str(error) or "failed without a reason"
