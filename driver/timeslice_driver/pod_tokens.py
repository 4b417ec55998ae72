"""Tokens by which the pods of prepared claims say to the orchestrator who they are.

The node asks the API server for one for each claim (TokenRequest), bound to a pod of the claim and good for Timeslice
alone, and puts it into the claim's folder, which its pods have mounted; before it ends comes the next. All of that is
beside prepare, which neither waits for it nor fails with it: a client waits for its token.

https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from dra_kubeletplugin.apiserver import PODS, ApiServer, ApiServerError, Backoff, NotFoundError, Object, Resource
from timeslice_api.tasks import cancelled
from timeslice_api.tokens import AUDIENCE

from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.whole_files import replace_file

log = logging.getLogger(__name__)

NAME: Final = "token"
LASTS_S: Final = 3600
_RENEWED_AT: Final = 0.8  # of its life, as the kubelet does it
_MODE: Final = 0o444  # a pod may run as any user; who can reach the folder at all, the mount decides
_AT_ONCE: Final = 4  # requests on their way: a node that starts has hundreds of claims
_SHORTEST_S: Final = 0.25
_LONGEST_S: Final = 30.0
_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts")


class PodTokens:
    """Keeps a good token in the folder of each claim, for as long as it runs.

    Args:
        api: the API server.
        claims: that are prepared.
        folder: in which each claim has one, named by its UID.
        clock: Unix time.
    """

    def __init__(
        self, api: ApiServer, claims: ClaimParts, folder: Path, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._api = api
        self._claims = claims
        self._folder = folder
        self._clock = clock
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._news = asyncio.Event()
        self._keepers: dict[str, tuple[Mapping[str, str], asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Follows the claims, until it is cancelled."""
        unlisten = self._claims.listen(self._news.set)
        try:
            while True:
                self._news.clear()
                await self._follow()
                await self._news.wait()
        finally:
            unlisten()
            await self._end(list(self._keepers))

    async def _follow(self) -> None:
        """A keeper for each claim; a new one where the pods are others, since a token ends with its pod."""
        claims = dict(self._claims.claims)
        await self._end(
            [uid for uid, (pods, _) in self._keepers.items() if uid not in claims or claims[uid].pods != pods]
        )
        for uid, claim in claims.items():
            if uid not in self._keepers:
                self._keepers[uid] = (claim.pods, asyncio.create_task(self._keep(claim)))

    async def _end(self, uids: list[str]) -> None:
        await cancelled(*(self._keepers.pop(uid)[1] for uid in uids))

    async def _keep(self, claim: PreparedClaim) -> None:
        backoff, failing = Backoff(shortest_s=_SHORTEST_S, longest_s=_LONGEST_S), False
        while True:
            try:
                async with self._room:
                    lasts_s = await self._renew(claim)
            except (ApiServerError, OSError, LookupError, ValueError) as error:
                level = logging.DEBUG if failing else logging.WARNING
                log.log(level, "no token for the pods of %s: %s", claim, error, extra=claim.about)
                failing = True
                await asyncio.sleep(backoff.next_s())
            except Exception:  # the outermost loop of a task that nobody awaits
                log.exception("no token for the pods of %s", claim, extra=claim.about)
                await asyncio.sleep(_LONGEST_S)
            else:
                if failing:
                    log.info("the pods of %s have their token", claim, extra=claim.about)
                backoff, failing = Backoff(shortest_s=_SHORTEST_S, longest_s=_LONGEST_S), False
                await asyncio.sleep(max(_SHORTEST_S, lasts_s * _RENEWED_AT))

    async def _renew(self, claim: PreparedClaim) -> float:
        """Writes a new token; how long it is good (seconds)."""
        pod = await self._pod(claim)
        status = await request_token(self._api, pod)
        path = self._folder / claim.uid / NAME
        await asyncio.to_thread(replace_file, path, f"{status['token']}\n".encode(), mode=_MODE, durable=False)
        return datetime.fromisoformat(status["expirationTimestamp"]).timestamp() - self._clock()

    async def _pod(self, claim: PreparedClaim) -> Object:
        """The first pod of the claim that is there: any of them stands for the claim's job. Raises LookupError."""
        for uid, name in sorted(claim.pods.items(), key=lambda pod: pod[1]):
            try:
                pod = await self._api.get(PODS, name, namespace=claim.namespace)
            except NotFoundError:
                continue
            if pod["metadata"]["uid"] == uid:
                return pod
        raise LookupError(f"none of its pods is there: {', '.join(sorted(claim.pods.values())) or 'it has none'}")


async def request_token(api: ApiServer, pod: Object) -> Object:
    """A new token bound to the pod, as the status of its TokenRequest.

    Raises:
        ApiServerError: the API server refuses or is not there.
    """
    metadata, account = pod["metadata"], pod["spec"].get("serviceAccountName") or "default"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    spec = {"audiences": [AUDIENCE], "expirationSeconds": LASTS_S, "boundObjectRef": bound}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await api.create(_ACCOUNTS, body, namespace=metadata["namespace"], name=account, subresource="token")
    status: Object = answer["status"]
    return status
