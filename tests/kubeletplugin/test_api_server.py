from __future__ import annotations

import asyncio
import importlib
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from dra_kubeletplugin.apiserver import (
    CLAIMS,
    NODES,
    PODS,
    SLICES,
    AlreadyExistsError,
    ApiServer,
    ApiServerError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NoClusterError,
    NotFoundError,
    Object,
    Resource,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
)
from dra_kubeletplugin.apiserver.connection import configuration
from dra_kubeletplugin.apiserver.errors import from_answer
from fake_api_server import Call, FakeApiServer, Refusal


def claim(name: str, **more: object) -> Object:
    return {"kind": "ResourceClaim", "metadata": {"namespace": "a", "name": name}} | more


def test_a_resource_knows_its_path() -> None:
    assert PODS.path(namespace="a", name="p", subresource="eviction") == "/api/v1/namespaces/a/pods/p/eviction"
    assert PODS.path() == "/api/v1/pods"
    assert CLAIMS.path(namespace="a") == "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims"
    assert SLICES.path(name="s") == "/apis/resource.k8s.io/v1/resourceslices/s"


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert PODS.path(namespace="a", name="../../secrets").endswith("/pods/..%2F..%2Fsecrets")


def test_a_path_without_the_namespace_that_it_needs_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs its namespace"):
        PODS.path(name="p")
    with pytest.raises(ValueError, match="has no namespaces"):
        NODES.path(namespace="a")


async def test_an_object_is_created_read_changed_and_deleted(api: ApiServer) -> None:
    created = await api.create(CLAIMS, claim("c", spec={"x": 1}))
    assert created["metadata"]["uid"]
    assert await api.get(CLAIMS, "c", namespace="a") == created
    replaced = await api.replace(CLAIMS, created | {"spec": {"x": 2}})
    assert replaced["spec"] == {"x": 2}
    patched = await api.patch(CLAIMS, "c", {"spec": {"y": 3}}, namespace="a")
    assert patched["spec"] == {"x": 2, "y": 3}
    await api.delete(CLAIMS, "c", namespace="a")
    with pytest.raises(NotFoundError):
        await api.get(CLAIMS, "c", namespace="a")


async def test_unknown_fields_survive_a_replace(api: ApiServer) -> None:
    created = await api.create(CLAIMS, claim("c", spec={"fieldOfTheFuture": {"deep": [1]}}))
    replaced = await api.replace(CLAIMS, created | {"more": 1})
    assert replaced["spec"]["fieldOfTheFuture"] == {"deep": [1]}


async def test_a_status_is_written_through_its_subresource_only(api: ApiServer) -> None:
    created = await api.create(CLAIMS, claim("c"))
    assert "status" not in await api.replace(CLAIMS, created | {"status": {"x": 1}})
    written = await api.replace(CLAIMS, created | {"status": {"x": 1}}, subresource="status")
    assert written["status"] == {"x": 1}
    merged = await api.patch(CLAIMS, "c", {"status": {"y": 2}}, namespace="a", subresource="status")
    assert merged["status"] == {"x": 1, "y": 2}


async def test_the_three_ways_to_patch_are_named_to_the_server(server: FakeApiServer, api: ApiServer) -> None:
    await api.create(CLAIMS, claim("c"))
    operations: list[Object] = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    patched = await api.patch(CLAIMS, "c", operations, namespace="a", how="json")
    assert patched["metadata"]["labels"] == {"a": "b"}
    await api.patch(CLAIMS, "new", claim("new"), namespace="a", how="apply", manager="me")
    assert server.calls[-1].query == {"fieldManager": "me", "force": "true"}
    assert server.one(CLAIMS, "new", namespace="a")


async def test_a_failed_test_of_a_json_patch_is_invalid(api: ApiServer) -> None:
    await api.create(CLAIMS, claim("c"))
    with pytest.raises(InvalidError):
        await api.patch(CLAIMS, "c", [{"op": "test", "path": "/kind", "value": "x"}], namespace="a", how="json")


async def test_a_write_after_somebody_elses_is_a_conflict(server: FakeApiServer, api: ApiServer) -> None:
    created = await api.create(CLAIMS, claim("c"))
    await server.put(CLAIMS, claim("c", spec={"x": 1}))
    with pytest.raises(ConflictError):
        await api.replace(CLAIMS, created | {"spec": {"x": 2}})


async def test_a_delete_spares_the_successor_of_the_same_name(server: FakeApiServer, api: ApiServer) -> None:
    created = await api.create(CLAIMS, claim("c"))
    await server.remove(CLAIMS, "c", namespace="a")
    await server.put(CLAIMS, claim("c"))
    with pytest.raises(ConflictError):
        await api.delete(CLAIMS, "c", namespace="a", uid=created["metadata"]["uid"])
    assert server.one(CLAIMS, "c", namespace="a")


async def test_a_second_create_of_a_name_says_so(api: ApiServer) -> None:
    await api.create(CLAIMS, claim("c"))
    with pytest.raises(AlreadyExistsError):
        await api.create(CLAIMS, claim("c"))


@pytest.mark.parametrize(
    ("refusal", "kind", "retryable"),
    [
        (Refusal(401, "Unauthorized"), UnauthorizedError, True),
        (Refusal(403, "Forbidden"), ForbiddenError, False),
        (Refusal(409, "Conflict"), ConflictError, False),
        (Refusal(410, "Expired"), ExpiredError, False),
        (Refusal(422, "Invalid"), InvalidError, False),
        (Refusal(429, "TooManyRequests"), ThrottledError, True),
        (Refusal(500, "InternalError"), UnavailableError, True),
        (Refusal(503, "ServiceUnavailable"), UnavailableError, True),
        (Refusal(413, "RequestEntityTooLarge"), ApiServerError, False),
    ],
)
async def test_a_refusal_has_the_error_of_its_status(
    server: FakeApiServer, api: ApiServer, refusal: Refusal, kind: type[ApiServerError], retryable: bool
) -> None:
    server.refuse("POST", "resourceclaims", refusal)
    with pytest.raises(ApiServerError) as caught:
        await api.create(CLAIMS, claim("c"))
    assert (type(caught.value), caught.value.retryable) == (kind, retryable)
    assert (caught.value.status, caught.value.reason) == (refusal.status, refusal.reason)


async def test_an_invalid_object_names_its_fields(server: FakeApiServer, api: ApiServer) -> None:
    server.refuse("POST", "resourceclaims", Refusal(422, "Invalid", causes=(("spec.devices", "too many"),)))
    with pytest.raises(InvalidError) as caught:
        await api.create(CLAIMS, claim("c"))
    assert caught.value.causes == (("spec.devices", "too many"),)


async def test_an_eviction_that_a_budget_forbids_says_when_to_ask_again(server: FakeApiServer, api: ApiServer) -> None:
    pod = await server.put(PODS, {"metadata": {"namespace": "a", "name": "p"}})
    server.refuse("POST", "pods", Refusal(429, "TooManyRequests", retry_after_s=7), subresource="eviction")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "a"}}
    with pytest.raises(ThrottledError) as caught:
        await api.create(PODS, body, name="p", namespace="a", subresource="eviction")
    assert caught.value.retry_after_s == 7
    await api.create(PODS, body, name="p", subresource="eviction")
    assert pod["metadata"]["name"] == server.evictions[0].name


async def test_an_answer_that_is_no_status_is_told_as_it_is(server: FakeApiServer, api: ApiServer) -> None:
    unknown = Resource("no.such", "v1", "things", namespaced=False)
    with pytest.raises(NotFoundError, match="things"):
        await api.get(unknown, "x")


async def test_a_server_that_is_away_is_unavailable(server: FakeApiServer, api: ApiServer) -> None:
    await server.stop()
    with pytest.raises(UnavailableError):
        await api.get(NODES, "n")
    await server.start()
    with pytest.raises(NotFoundError):
        await api.get(NODES, "n")


async def test_a_server_that_never_answers_is_unavailable_within_the_limit(server: FakeApiServer) -> None:
    server.pause()
    async with server.connect(timeout_s=0.2) as api:
        started = time.monotonic()
        with pytest.raises(UnavailableError, match="in time"):
            await api.get(NODES, "n")
        assert time.monotonic() - started < 2


async def test_a_list_is_read_page_by_page(server: FakeApiServer, api: ApiServer) -> None:
    for number in range(1201):
        await server.put(NODES, {"metadata": {"name": f"n{number}"}})
    items, version = await api.list(NODES)
    assert len({item["metadata"]["name"] for item in items}) == 1201
    assert version == str(server.store.version)
    assert [call.query.get("limit") for call in server.calls] == ["500", "500", "500"]


async def test_a_list_whose_pages_expire_is_read_at_once(server: FakeApiServer, api: ApiServer) -> None:
    for number in range(501):
        await server.put(NODES, {"metadata": {"name": f"n{number}"}})

    def expire(call: Call) -> Refusal | None:
        return Refusal(410, "Expired") if "continue" in call.query else None

    server.hooks.append(expire)
    assert len((await api.list(NODES))[0]) == 501


async def test_selectors_choose_what_is_listed(server: FakeApiServer, api: ApiServer) -> None:
    for name, label in (("x", "1"), ("y", "2")):
        await server.put(CLAIMS, claim(name) | {"metadata": {"namespace": "a", "name": name, "labels": {"l": label}}})
    assert [item["metadata"]["name"] for item in (await api.list(CLAIMS, labels="l=2"))[0]] == ["y"]
    assert [item["metadata"]["name"] for item in (await api.list(CLAIMS, fields="metadata.name=x"))[0]] == ["x"]
    assert (await api.list(CLAIMS, namespace="b"))[0] == []


async def test_the_version_of_the_server_is_read_from_its_git_version(server: FakeApiServer, api: ApiServer) -> None:
    server.version = "v1.36.4-gke.12+abc"
    assert await api.server_version() == (1, 36, 4)


async def test_a_kubeconfig_leads_to_the_server_with_its_token(server: FakeApiServer, folder: Path) -> None:
    path = server.kubeconfig(folder / "config", token="t0ken")
    async with await ApiServer.connect(kubeconfig=str(path)) as api:
        assert (await api.list(NODES))[0] == []
    assert server.calls[-1].token == "t0ken"


async def test_the_environment_names_the_kubeconfig(
    server: FakeApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(folder / "config")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with await ApiServer.connect() as api:
        assert (await api.list(NODES))[0] == []


async def test_without_any_configuration_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoClusterError, match="no kubeconfig /nonexistent/config"):
        await ApiServer.connect()


async def test_cancelling_a_request_ends_it_at_once(server: FakeApiServer, api: ApiServer) -> None:
    server.pause()
    asking = asyncio.create_task(api.get(NODES, "n"))
    await asyncio.sleep(0.05)
    asking.cancel()
    done, _ = await asyncio.wait([asking], timeout=1)
    assert done


async def test_in_a_pod_the_service_account_leads_to_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "token").write_text("t0ken")
    (folder / "ca.crt").write_text("certificate")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    loader: Any = importlib.import_module("kubernetes.aio.config.incluster_config")
    monkeypatch.setattr(loader, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(loader, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
    found = await configuration()
    assert found.host == "https://10.0.0.1:443"
    assert await found.get_api_key_with_prefix("BearerToken") == "bearer t0ken"


@pytest.mark.parametrize(("left_out", "proxy"), [("", "http://proxy.example.com:3128"), ("127.0.0.1", None)])
async def test_the_environment_names_the_proxy_and_the_servers_without_one(
    server: FakeApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch, left_out: str, proxy: str | None
) -> None:
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://proxy.example.com:3128")
    monkeypatch.setenv("no_proxy", left_out)
    found = await configuration(str(server.kubeconfig(folder / "config")))
    assert found.proxy == proxy


def test_a_word_of_a_proxy_is_told_as_it_is() -> None:
    error = from_answer(502, b"<html>Bad Gateway</html>", {})
    assert isinstance(error, UnavailableError)
    assert "Bad Gateway" in str(error)


@pytest.mark.parametrize(("said", "pause_s"), [("inf", 300), ("nan", 0), ("-1", 0), ("9" * 5000, 300)])
def test_no_server_can_have_us_wait_for_ever(said: str, pause_s: float) -> None:
    error = from_answer(429, b"", {"Retry-After": said})
    assert isinstance(error, ThrottledError)
    assert error.retry_after_s == pause_s


def test_a_date_in_retry_after_is_a_second() -> None:
    error = from_answer(429, b"", {"Retry-After": "Sun, 29 Nov 2026 16:00:00 GMT"})
    assert isinstance(error, ThrottledError)
    assert error.retry_after_s == 1


async def test_the_writer_is_named_by_the_user_agent(server: FakeApiServer) -> None:
    agents: list[str] = []
    server.hooks.append(lambda call: agents.append(call.agent))
    async with server.connect() as api:
        await api.list(NODES)
    assert agents == ["dra-kubeletplugin"]


async def test_however_many_watches_are_open_a_request_finds_a_connection(
    server: FakeApiServer, tmp_path: Path
) -> None:
    async with (
        await ApiServer.connect(kubeconfig=str(server.kubeconfig(tmp_path / "config"))) as api,
        AsyncExitStack() as watches,
    ):
        for _ in range(101):
            watch = api.watch(CLAIMS, version="0", lasting_s=30, silence_s=30)
            await watches.enter_async_context(watch)
        async with asyncio.timeout(2):
            items, _ = await api.list(CLAIMS)
    assert items == []
