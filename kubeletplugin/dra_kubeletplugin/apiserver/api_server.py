"""Requests to the API server: raw objects in and out, a limit on every one, errors of one family."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Literal

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from dra_kubeletplugin.apiserver.connection import configuration
from dra_kubeletplugin.apiserver.errors import (
    ApiServerError,
    ExpiredError,
    UnavailableError,
    from_answer,
    from_status,
)
from dra_kubeletplugin.apiserver.resource import Object, Objects, Resource

_PAGE = 500  # objects per answer of a list, as client-go asks for
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


class ApiServer:
    """A connection to the Kubernetes API server, for one event loop. An async context manager.

    Every request ends within `timeout_s` seconds (default 10), with an answer or with `UnavailableError`. Nothing is
    sent twice here: whether it may be is for the caller to say, who has `ApiServerError.retryable` to go by. After an
    `UnavailableError` a write may have been done.
    """

    def __init__(self, client: ApiClient, *, timeout_s: float = 10.0, user_agent: str = "dra-kubeletplugin") -> None:
        self._client: Any = client
        self._client.user_agent = user_agent
        self._timeout_s = timeout_s

    @classmethod
    async def connect(
        cls, *, kubeconfig: str | None = None, timeout_s: float = 10.0, user_agent: str = "dra-kubeletplugin"
    ) -> ApiServer:
        """By the given kubeconfig, else as a pod by its service account, else by $KUBECONFIG or ~/.kube/config.

        Nothing is sent yet, so a server that is away is no error here. The first part of `user_agent`, up to a slash,
        is what the objects' managed fields name as their writer.

        Raises:
            NoClusterError: no configuration of a cluster is found, or it cannot be read.
        """
        return cls(ApiClient(await configuration(kubeconfig)), timeout_s=timeout_s, user_agent=user_agent)

    async def __aenter__(self) -> ApiServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all requests and watches. May be called again."""
        await self._client.close()

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Object:
        """The object as it is now.

        Raises:
            NotFoundError: there is none of that name.
            ApiServerError: any other refusal.
        """
        return await self._ask("GET", resource.path(namespace=namespace, name=name))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        keep: Callable[[Object], Object | None] | None = None,
    ) -> tuple[Objects, str]:
        """All objects that the selectors choose, and the resourceVersion to watch from. Reads page by page.

        `keep` makes of each, as its page comes in, what is returned of it; None leaves it out.

        Raises:
            ApiServerError: refused. Each page has the time limit of a request.
        """
        path, query = resource.path(namespace=namespace), _selectors(labels, fields)
        kept = keep or (lambda item: item)
        try:
            return await self._pages(path, query | {"limit": str(_PAGE)}, kept)
        except ExpiredError:  # the list changed for longer than the server remembers: all at once then
            return await self._pages(path, query, kept)

    async def create(
        self, resource: Resource, body: Object, *, namespace: str = "", name: str = "", subresource: str = ""
    ) -> Object:
        """Creates the object, or posts `body` to a subresource of `name` (an eviction: `subresource="eviction"`).

        A `kind` that `body` lacks is for the server to complain of. The namespace is that of `body`, if not given.

        Raises:
            AlreadyExistsError: the name is taken, possibly by this very request sent before.
            InvalidError, ForbiddenError: it breaks a rule.
            ThrottledError: an eviction that a disruption budget does not allow now.
        """
        namespace = namespace or _namespace(resource, body)
        return await self._ask(
            "POST", resource.path(namespace=namespace, name=name, subresource=subresource), body=body
        )

    async def replace(self, resource: Resource, body: Object, *, subresource: str = "") -> Object:
        """Writes the whole object. With a resourceVersion in `body` only if nobody has written since.

        Raises:
            ConflictError: somebody has.
            NotFoundError: it is gone.
        """
        metadata = body["metadata"]
        path = resource.path(namespace=_namespace(resource, body), name=metadata["name"], subresource=subresource)
        return await self._ask("PUT", path, body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Object | Objects,
        *,
        namespace: str = "",
        subresource: str = "",
        how: Literal["merge", "json", "apply"] = "merge",
        manager: str = "",
    ) -> Object:
        """Changes a part of the object: by JSON merge patch, JSON patch (`body` is a list), or server-side apply.

        An apply is forced (it takes the fields over from other managers) and needs `manager`, its field manager.

        Raises:
            NotFoundError: it is not there. An apply creates it.
            ConflictError: a resourceVersion in `body` is not the current one.
            InvalidError: a `test` of a JSON patch failed, or the result breaks a rule.
        """
        query = {"fieldManager": manager} if manager else {}
        if how == "apply":
            query["force"] = "true"
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._ask("PATCH", path, body=body, query=query, content_type=_PATCH_TYPES[how])

    async def delete(
        self, resource: Resource, name: str, *, namespace: str = "", uid: str = "", resource_version: str = ""
    ) -> None:
        """Deletes the object; with `uid` or `resource_version` only if it is that very one.

        Finalizers may keep it for a while.

        Raises:
            NotFoundError: there is none of that name.
            ConflictError: it is not the one of the preconditions.
        """
        said = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in said.items() if value}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions} if preconditions else None
        await self._ask("DELETE", resource.path(namespace=namespace, name=name), body=body)

    async def server_version(self) -> tuple[int, int, int]:
        """Major, minor and patch version of the API server (which need not be that of the scheduler or a kubelet)."""
        said = (await self._ask("GET", "/version")).get("gitVersion", "")
        found = _VERSION.match(said)
        if not found:
            raise UnavailableError(200, "NoVersion", f"the API server says that its version is {said!r}")
        return int(found[1]), int(found[2]), int(found[3])

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        version: str,
        lasting_s: float,
        silence_s: float,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[AsyncIterator[Object]]:
        """The changes since `version`, as watch events with their bookmarks. `Reflector` is the comfortable way.

        The server ends it after about `lasting_s`. It also ends by `UnavailableError` when nothing, not even a
        bookmark, has come for `silence_s` seconds.

        Raises (also while it is read):
            ExpiredError: `version` is too old.
            ApiServerError: any other refusal.
        """
        query = _selectors(labels, fields) | {"watch": "true", "allowWatchBookmarks": "true"}
        query |= {"resourceVersion": version, "timeoutSeconds": str(round(lasting_s))}
        limits = aiohttp.ClientTimeout(total=lasting_s + silence_s, sock_connect=self._timeout_s, sock_read=silence_s)
        path = resource.path(namespace=namespace)
        with _Transport(f"watch {path}"):
            answer = await self._send("GET", path, query=query, limits=limits)
        try:
            with _Transport(f"watch {path}"):
                await _demand_success(answer)
            yield _events(answer, path)
        finally:
            answer.close()

    async def _pages(
        self, path: str, query: dict[str, str], keep: Callable[[Object], Object | None]
    ) -> tuple[Objects, str]:
        items: Objects = []
        while True:
            page = await self._ask("GET", path, query=query)
            items += [kept for item in page.get("items") or [] if (kept := keep(item)) is not None]
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            query = query | {"continue": metadata["continue"]}

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Object:
        limits = aiohttp.ClientTimeout(total=self._timeout_s)
        with _Transport(f"{method} {path}"):
            answer = await self._send(method, path, query=query, body=body, content_type=content_type, limits=limits)
            try:
                await _demand_success(answer)
                found: Object = json.loads(await answer.read())
            finally:
                answer.release()
        return found

    async def _send(
        self,
        method: str,
        path: str,
        *,
        limits: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        client = self._client
        # Not the generated methods: they take no single time limit for both halves of a watch, and their models drop
        # the fields that they do not know.
        method, url, headers, _, _ = await client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, auth_settings=["BearerToken"]
        )
        rest = client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        proxy = {"proxy": rest.proxy, "proxy_headers": rest.proxy_headers}
        answer: aiohttp.ClientResponse = await rest.pool_manager.request(
            method, url, headers=headers, data=_as_go_writes(body), timeout=limits, **proxy
        )
        return answer


def _as_go_writes(body: Any) -> bytes | None:
    """JSON without blanks, its keys sorted.

    The server keeps opaque parameters byte by byte as they were sent, and its patches write them anew in that form: of
    a claim whose class has them in another form it refuses every patch, since its allocation seems to be changed.
    """
    return None if body is None else json.dumps(body, separators=(",", ":"), sort_keys=True).encode()


class _Transport:
    """Turns what the way to the server does wrong into `UnavailableError`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, TimeoutError):
            raise UnavailableError(0, "Timeout", f"cannot {self._doing}: no answer in time") from error
        if isinstance(error, (aiohttp.ClientError, OSError, ssl.SSLError, json.JSONDecodeError)):
            raise UnavailableError(0, type(error).__name__, f"cannot {self._doing}: {error}") from error


def _selectors(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in chosen.items() if value}


def _namespace(resource: Resource, body: Object) -> str:
    return str(body.get("metadata", {}).get("namespace", "")) if resource.namespaced else ""


async def _demand_success(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 400:
        raise from_answer(answer.status, await answer.read(), answer.headers)


async def _events(answer: aiohttp.ClientResponse, path: str) -> AsyncIterator[Object]:
    """Watch events, one a line; the lines are cut here, since aiohttp's own limit is shorter than an object may be."""
    rest: list[bytes] = []
    with _Transport(f"watch {path}"):
        async for chunk in answer.content.iter_any():
            first, *others = chunk.split(b"\n")
            rest.append(first)
            for other in others:
                line, rest = b"".join(rest), [other]
                if line.strip():
                    yield _event(json.loads(line))


def _event(event: Object) -> Object:
    if event.get("type") != "ERROR":
        return event
    status = event.get("object") or {}
    error: ApiServerError = from_status(int(status.get("code") or 500), status)
    raise error
