"""Reads the claims of a call, and checks that they are those that kubelet means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dra_kubeletplugin.apiserver import (
    CLAIMS,
    PODS,
    ApiServer,
    ApiServerError,
    ForbiddenError,
    NotFoundError,
    Object,
)
from dra_kubeletplugin.claims import Claim, ClaimRef, PodRef
from dra_kubeletplugin.driver import PrepareError

log = logging.getLogger(__name__)

_AT_ONCE = 8  # for 64 pods at once a connection each costs more than their claims


class ClaimReader:
    """Claims as the API server has them now; kubelet's copy may be old, and so would be that of a watch.

    Args:
        api: the API server.
        driver_name: whose devices are looked for in them.
        pods: whether their pods are read too. That happens before the call has the node for itself, so that calls wait
            for the API server side by side.
    """

    def __init__(self, api: ApiServer, driver_name: str, *, pods: bool) -> None:
        self._api = api
        self._driver_name = driver_name
        self._pods = pods
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def read(self, refs: Sequence[ClaimRef]) -> Mapping[str, Claim | PrepareError]:
        """By UID each claim, or why it cannot be prepared."""
        found = await asyncio.gather(*map(self._read, refs))
        return dict(zip([ref.uid for ref in refs], found, strict=True))

    async def _read(self, ref: ClaimRef) -> Claim | PrepareError:
        try:
            async with self._room:
                claim = await self._claim(ref)
                return await self._with_pods(claim) if self._pods and claim.results else claim
        except PrepareError as error:
            return error

    async def _claim(self, ref: ClaimRef) -> Claim:
        try:
            raw = await self._api.get(CLAIMS, ref.name, namespace=ref.namespace)
        except NotFoundError as error:
            raise PrepareError(f"claim {ref.namespace}/{ref.name} does not exist") from error
        except ApiServerError as error:
            raise PrepareError(f"cannot read claim {ref.namespace}/{ref.name}: {error}") from error
        claim = Claim.of(raw, driver=self._driver_name)
        if claim.ref.uid != ref.uid:
            raise PrepareError(f"claim {ref.namespace}/{ref.name} got replaced: it is {claim.ref.uid}, not {ref.uid}")
        if not claim.allocated:
            raise PrepareError(f"claim {ref.namespace}/{ref.name} is not allocated")
        return claim

    async def _with_pods(self, claim: Claim) -> Claim:
        found = await asyncio.gather(*(self._pod(claim.ref.namespace, pod) for pod in claim.pods))
        return replace(claim, pod_objects=tuple(pod for pod in found if pod))

    async def _pod(self, namespace: str, ref: PodRef) -> Object | None:
        """None for one that is not there, whose name another has, or that may not be read."""
        try:
            pod = await self._api.get(PODS, ref.name, namespace=namespace)
        except NotFoundError:
            return None
        except ForbiddenError as error:
            log.warning("pod %s/%s cannot be looked at: %s", namespace, ref.name, error)
            return None
        except ApiServerError as error:
            raise PrepareError(f"cannot read pod {namespace}/{ref.name} of the claim: {error}") from error
        return pod if pod["metadata"]["uid"] == ref.uid else None
