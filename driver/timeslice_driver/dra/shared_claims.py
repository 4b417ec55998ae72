"""Follows the claims that several pods may share: the kubelet calls for the first of them alone.

A claim made from a template belongs to one pod, which never changes; those are not followed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from dra_kubeletplugin import Claim
from dra_kubeletplugin.apiserver import CLAIMS, ApiServer, Change, Object, Reflector
from timeslice_api.kinds import names as kinds

from timeslice_driver.dra.records import ClaimRecord

log = logging.getLogger(__name__)


def shareable(claim: Claim) -> bool:
    """Whether more pods than one may come to have it."""
    owners = claim.raw["metadata"].get("ownerReferences") or ()
    return not any(owner.get("kind") == "Pod" and owner.get("controller") for owner in owners)


class SharedClaims:
    """One watch for each such claim that is prepared here: there are few of them.

    Args:
        api: the API server.
        refresh: told the pods (names by UID) of a claim, by UID, when they are others than before.
    """

    def __init__(self, api: ApiServer, refresh: Callable[[str, Mapping[str, str]], Awaitable[None]]) -> None:
        self._api = api
        self._refresh = refresh
        self._news: asyncio.Queue[tuple[str, dict[str, str]]] = asyncio.Queue()
        self._watches: dict[str, asyncio.Task[None]] = {}

    def follow(self, claims: Iterable[ClaimRecord]) -> None:
        """From now on these, as far as they can be shared, and no others."""
        wanted = {claim.uid: claim for claim in claims if claim.shared}
        for uid in self._watches.keys() - wanted.keys():
            self._watches.pop(uid).cancel()
        for uid in wanted.keys() - self._watches.keys():
            self._watches[uid] = asyncio.create_task(self._watch(wanted[uid]), name=f"pods of {wanted[uid]}")

    async def run(self) -> None:
        """Passes on what is seen, until it is cancelled."""
        try:
            while True:
                await self._refresh(*await self._news.get())
        finally:
            self.follow(())

    async def _watch(self, claim: ClaimRecord) -> None:
        def changed(change: Change) -> None:
            pods = _pods(change.new, claim.uid)
            if pods and pods != _pods(change.old, claim.uid):
                self._news.put_nowait((claim.uid, pods))

        name = f"metadata.name={claim.name}"
        await Reflector(self._api, CLAIMS, namespace=claim.namespace, fields=name, on_change=changed).run()


def _pods(raw: Object | None, uid: str) -> dict[str, str]:
    if raw is None or raw["metadata"]["uid"] != uid:
        return {}
    return {pod.uid: pod.name for pod in Claim.of(raw, driver=kinds.DRIVER).pods}
