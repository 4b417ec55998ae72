"""A Kubernetes API server for tests, over real HTTP on loopback: any resource, with list, watch, patches and trouble.

    async with FakeApiServer() as server:
        await server.put(CLAIMS, {...})                    # as somebody else would create or change it
        server.refuse("PUT", "leases", Refusal(409, "Conflict"), times=1)
        async with server.connect() as api: ...            # an ApiServer

It knows no schemas, defaults, quotas, owner references or server-side apply of lists (those replace each other).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import yaml
from aiohttp import web
from api_objects import Object, Objects, Place, Refusal, selector, watch_event
from dra_kubeletplugin.apiserver import ApiServer
from fake_accounts import REVIEWS, Accounts
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

__all__ = ["Call", "FakeApiServer", "Place", "Refusal"]


class ResourceLike(Protocol):
    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...


@dataclass
class Call:
    """A request. A hook may change its body, as an admission plugin or an old server's decoder would."""

    method: str
    place: Place
    subresource: str
    query: dict[str, str]
    body: Any
    token: str
    agent: str = ""

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


Hook = Callable[[Call], Refusal | None]


class FakeApiServer:
    """`calls` has every request so far; `hooks` are asked before each, in order, and may refuse it."""

    def __init__(self, *, version: str = "v1.37.2", bookmark_every_s: float = 0.5) -> None:
        self.version = version
        self.bookmark_every_s = bookmark_every_s
        self.store = Objects()
        self.hooks: list[Hook] = []
        self.calls: list[Call] = []
        self.evictions: list[Place] = []
        self.accounts = Accounts(self.store)
        self.port = 0
        self._going = asyncio.Event()
        self._going.set()
        self._silent = False
        self._watches = 0  # counts up to end all open watches
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeApiServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # What a test does with it

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, *, token: str = "", timeout_s: float = 10.0) -> ApiServer:
        configuration: Any = Configuration(host=self.url)
        if token:
            configuration.api_key["BearerToken"] = f"bearer {token}"
        return ApiServer(ApiClient(configuration), timeout_s=timeout_s)

    def kubeconfig(self, path: Path, *, token: str = "secret") -> Path:
        """Writes a kubeconfig for this server, for a process under test."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
            "current-context": "fake",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def all(self, resource: ResourceLike, *, namespace: str = "") -> list[Object]:
        return self.store.collection(Place(resource.group, resource.plural, namespace))

    def one(self, resource: ResourceLike, name: str, *, namespace: str = "") -> Object | None:
        return self.store.stored.get(Place(resource.group, resource.plural, namespace, name))

    async def put(self, resource: ResourceLike, body: Object, *, status: bool = True) -> Object:
        """Creates or replaces it as another client would, its status too; a resourceVersion in `body` is ignored."""
        metadata = body["metadata"]
        place = Place(resource.group, resource.plural, metadata.get("namespace", ""), metadata.get("name", ""))
        dropped = ("resourceVersion", "uid")
        body = body | {"metadata": {key: value for key, value in metadata.items() if key not in dropped}}
        if place.name and place in self.store.stored:
            written = await self.store.replace(place, body)
        else:
            written = await self.store.create(place, body)
        if status and "status" in body:
            place = Place(place.group, place.plural, place.namespace, written["metadata"]["name"])
            return await self.store.replace(place, written | {"status": body["status"]}, subresource="status")
        return written

    async def remove(self, resource: ResourceLike, name: str, *, namespace: str = "") -> None:
        await self.store.delete(Place(resource.group, resource.plural, namespace, name))

    def refuse(self, method: str, plural: str, refusal: Refusal, *, times: int = 1, subresource: str = "") -> None:
        """Answers the next `times` such requests so. Watches are method WATCH, lists and gets are GET."""
        left = [times]

        def hook(call: Call) -> Refusal | None:
            said = "WATCH" if call.is_watch else call.method
            if left[0] > 0 and (said, call.place.plural, call.subresource) == (method, plural, subresource):
                left[0] -= 1
                return refusal
            return None

        self.hooks.append(hook)

    async def forget_history(self) -> None:
        """As after a compaction: who watches from a version before now is told 410. Open watches end."""
        self.store.history.clear()
        self.store.version += 1
        self.store.oldest = self.store.version
        await self.end_watches()

    async def end_watches(self) -> None:
        self._watches += 1
        await self.store.wake()

    def fall_silent(self, silent: bool = True) -> None:
        """Watches stay open and get nothing, as over a connection that is cut without a word."""
        self._silent = silent

    def pause(self) -> None:
        """Requests are taken and never answered, until `go_on`."""
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()

    async def stop(self) -> None:
        """Connections are cut and refused from now on; the objects stay for the next `start`."""
        runner, self._runner = self._runner, None
        self._going.set()
        await self.end_watches()
        if runner:
            await runner.cleanup()

    async def start(self) -> None:
        """On the same port as before, if there was one."""
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    # What it does with requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await self._going.wait()
        try:
            if request.path == "/version":
                return web.json_response({"gitVersion": self.version})
            call = await self._call(request)
            self.calls.append(call)
            for hook in list(self.hooks):
                refusal = hook(call)
                if refusal is not None:
                    raise refusal
            if call.is_watch:
                return await self._watch(request, call)
            return web.json_response(await self._do(call, request.content_type))
        except Refusal as refusal:
            headers = {"Retry-After": str(refusal.retry_after_s)} if refusal.retry_after_s else {}
            return web.json_response(refusal.body(), status=refusal.status, headers=headers)

    async def _call(self, request: web.Request) -> Call:
        parts = request.path.strip("/").split("/")
        group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        plural, name, subresource = [*parts, "", "", ""][:3]
        text = await request.text()
        place = Place(group, plural, namespace, name)
        token = request.headers.get("Authorization", "").partition(" ")[2]
        agent = request.headers.get("User-Agent", "")
        return Call(request.method, place, subresource, dict(request.query), json.loads(text or "{}"), token, agent)

    async def _do(self, call: Call, content_type: str) -> Object:
        place, store = call.place, self.store
        match call.method:
            case "GET" if place.name:
                return store.find(place)
            case "GET":
                return self._list(call)
            case "POST" if call.subresource == "eviction":
                self.evictions.append(place)
                await store.delete(place)
                return {"kind": "Status", "status": "Success"}
            case "POST" if place.plural in REVIEWS or call.subresource == "token":
                return self.accounts.answer(place, call.body)
            case "POST":
                return await store.create(place, call.body)
            case "PUT":
                return await store.replace(place, call.body, subresource=call.subresource)
            case "PATCH":
                return await store.patch(place, call.body, content_type, subresource=call.subresource)
            case "DELETE" if place.name:
                return await store.delete(place, call.body.get("preconditions"))
            case "DELETE":
                await self._delete_all(_names(store.collection(place, _chosen(call))), place)
                return {"kind": "Status", "status": "Success"}
        raise Refusal(405, "MethodNotAllowed", call.method)

    async def _delete_all(self, names: Iterable[tuple[str, str]], place: Place) -> None:
        for namespace, name in names:
            await self.store.delete(Place(place.group, place.plural, namespace, name))

    def _list(self, call: Call) -> Object:
        items = self.store.collection(call.place, _chosen(call))
        version, start = self.store.version, 0
        if call.query.get("continue"):
            version, start = map(int, call.query["continue"].split("."))
            if version < self.store.oldest:
                raise Refusal(410, "Expired", "the provided continue parameter is too old")
        end = start + int(call.query.get("limit") or len(items) or 1)
        more = f"{version}.{end}" if end < len(items) else ""
        return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": items[start:end]}

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            async with asyncio.timeout(float(call.query.get("timeoutSeconds") or 300)):
                await self._send_changes(response, call)
        except (TimeoutError, ConnectionError):
            pass
        return response

    async def _send_changes(self, response: web.StreamResponse, call: Call) -> None:
        version, chosen, mine = int(call.query["resourceVersion"]), _chosen(call), self._watches
        while mine == self._watches:
            if version < self.store.oldest:
                expired = Refusal(410, "Expired", f"too old resource version: {version}")
                await _write(response, {"type": "ERROR", "object": expired.body()})
                return
            news = [event for event in self.store.history if event.version > version]
            if self._silent:
                news = []
            for event in news:
                seen = watch_event(event, call.place, chosen)
                if seen:
                    await _write(response, seen)
                version = event.version
            if not news:
                await self._bookmark(response, version)

    async def _bookmark(self, response: web.StreamResponse, version: int) -> None:
        try:
            async with asyncio.timeout(self.bookmark_every_s), self.store.changed:
                await self.store.changed.wait()
        except TimeoutError:
            if not self._silent:
                bookmark = {"kind": "Bookmark", "metadata": {"resourceVersion": str(version)}}
                await _write(response, {"type": "BOOKMARK", "object": bookmark})


async def _write(response: web.StreamResponse, event: Object) -> None:
    await response.write(json.dumps(event).encode() + b"\n")


def _chosen(call: Call) -> Callable[[Object], bool]:
    return selector(call.query.get("labelSelector", ""), call.query.get("fieldSelector", ""))


def _names(items: Iterable[Object]) -> list[tuple[str, str]]:
    return [(item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items]
