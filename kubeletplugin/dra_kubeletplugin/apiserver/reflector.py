"""A copy of the API server's objects that follows their changes: list, then watch, for ever."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from dra_kubeletplugin.apiserver.api_server import ApiServer
from dra_kubeletplugin.apiserver.backoff import Backoff
from dra_kubeletplugin.apiserver.errors import ApiServerError, ExpiredError, ThrottledError
from dra_kubeletplugin.apiserver.resource import Object, Resource

log = logging.getLogger(__name__)

_HEALTHY_S = 5.0  # a watch that lasted so long was one; the next failure starts with the shortest wait again


@dataclass(frozen=True)
class Change:
    """What became of an object. `old` is as it was known before, `new` as it is now; None where there is none.

    A deletion that happened while no watch was open has the last known state as `old`. An object that a selector no
    longer chooses counts as deleted.
    """

    kind: Literal["added", "modified", "deleted"]
    old: Object | None
    new: Object | None


class Reflector:
    """The objects that the selectors choose, as the API server has them, a moment late at most.

    `run` follows them until it is cancelled: through lost connections (a server that says nothing for `silence_s`
    seconds, not even a bookmark, counts as lost), through versions that have expired, with growing waits in between.
    `synced` is set once the first list is in. `on_change` is called within `run`, after `objects` has the change, once
    for each; it must not block, and what it raises ends `run`. The objects are shared: do not change them.

    `keep` makes of each object, as it arrives, what is kept of it: itself, or a smaller one that still has uid, name,
    namespace and resourceVersion in its metadata. None leaves it out, as if a selector did.
    """

    def __init__(
        self,
        api: ApiServer,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        on_change: Callable[[Change], None] | None = None,
        keep: Callable[[Object], Object | None] | None = None,
        silence_s: float = 70.0,
    ) -> None:
        self._api = api
        self._resource = resource
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._on_change = on_change or (lambda change: None)
        self._keep = keep or (lambda item: item)
        self._silence_s = silence_s
        self._objects: dict[str, Object] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._version = ""
        self._backoff = Backoff(shortest_s=0.25, longest_s=30.0)
        self.synced = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, Object]:
        """All objects by their UID; a live view."""
        return MappingProxyType(self._objects)

    def by_name(self, name: str, namespace: str = "") -> Object | None:
        """The object that has this name now, if any."""
        uid = self._uids.get((namespace, name))
        return None if uid is None else self._objects[uid]

    async def run(self) -> None:
        """Lists and watches until it is cancelled. Failures of the API server are logged and retried."""
        while True:
            started, listed = time.monotonic(), not self._version
            try:
                if listed:
                    await self._list()
                await self._watch()
            except ExpiredError:
                log.info("%s: the version to watch from has expired, listing again", self._resource)
                self._version = ""
                if not listed:
                    continue  # a list is all that is lacking, however long the waits before it were
            except ApiServerError as error:
                await self._wait_after(error)
                continue
            await self._pace(time.monotonic() - started)

    async def _wait_after(self, error: ApiServerError) -> None:
        wait_s = self._backoff.next_s()
        if isinstance(error, ThrottledError):
            wait_s = max(wait_s, error.retry_after_s)
        log.warning("%s: %s; next try in %.1f s", self._resource, error, wait_s)
        await asyncio.sleep(wait_s)

    async def _pace(self, lasted_s: float) -> None:
        """A server that ends every watch at once must not make this a hot loop."""
        if lasted_s >= _HEALTHY_S:
            self._backoff.reset()
        else:
            await asyncio.sleep(self._backoff.next_s())

    async def _list(self) -> None:
        items, version = await self._api.list(
            self._resource, namespace=self._namespace, labels=self._labels, fields=self._fields, keep=self._keep
        )
        found = {item["metadata"]["uid"]: item for item in items}
        for uid in [uid for uid in self._objects if uid not in found]:
            self._forget(uid)
        for item in items:
            self._store(item)
        self._version = version
        self.synced.set()

    async def _watch(self) -> None:
        lasting_s = random.uniform(240, 480)  # so that the watches of many processes do not all end at once
        watch = self._api.watch(
            self._resource, version=self._version, lasting_s=lasting_s, silence_s=self._silence_s,
            namespace=self._namespace, labels=self._labels, fields=self._fields,
        )  # fmt: skip
        opened = time.monotonic()
        async with watch as events:
            async for event in events:
                if time.monotonic() - opened >= _HEALTHY_S:
                    self._backoff.reset()
                self._take(event["type"], event["object"])

    def _take(self, kind: str, item: Object) -> None:
        self._version = item["metadata"]["resourceVersion"]
        kept = self._keep(item) if kind in ("ADDED", "MODIFIED", "DELETED") else None
        if kept is not None and kind != "DELETED":
            self._store(kept)
        elif kind != "BOOKMARK":
            self._forget(item["metadata"]["uid"], last=kept)

    def _store(self, item: Object) -> None:
        metadata = item["metadata"]
        old = self._objects.get(metadata["uid"])
        if old is not None and old["metadata"]["resourceVersion"] == metadata["resourceVersion"]:
            return
        self._objects[metadata["uid"]] = item
        self._uids[_key(item)] = metadata["uid"]
        self._on_change(Change("added" if old is None else "modified", old, item))

    def _forget(self, uid: str, *, last: Object | None = None) -> None:
        old = self._objects.pop(uid, None)
        if old is None:
            return
        if self._uids.get(_key(old)) == uid:
            del self._uids[_key(old)]
        self._on_change(Change("deleted", last or old, None))


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
