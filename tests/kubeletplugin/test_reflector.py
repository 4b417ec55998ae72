from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from dra_kubeletplugin.apiserver import CLAIMS, ApiServer, Change, Object, Reflector
from fake_api_server import Call, FakeApiServer, Refusal


def claim(name: str, namespace: str = "a", **labels: str) -> Object:
    return {"kind": "ResourceClaim", "metadata": {"namespace": namespace, "name": name, "labels": labels}}


class Seen:
    """The changes so far, and a wait for the next."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._news = asyncio.Event()

    def __call__(self, change: Change) -> None:
        self.changes.append(change)
        self._news.set()

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(change.kind, ((change.new or change.old) or {})["metadata"]["name"]) for change in self.changes]

    async def until(self, true: Callable[[], bool], within_s: float = 5) -> None:
        async with asyncio.timeout(within_s):
            while not true():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def following(reflector: Reflector) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(5):
            await reflector.synced.wait()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def test_what_is_there_is_known_once_it_is_synced(server: FakeApiServer, api: ApiServer, seen: Seen) -> None:
    stored = await server.put(CLAIMS, claim("x"))
    reflector = Reflector(api, CLAIMS, on_change=seen)
    assert not reflector.synced.is_set()
    async with following(reflector):
        assert reflector.objects == {stored["metadata"]["uid"]: stored}
        assert reflector.by_name("x", "a") == stored
        assert reflector.by_name("x", "b") is None
        assert seen.kinds == [("added", "x")]


async def test_every_change_is_told_with_before_and_after(server: FakeApiServer, api: ApiServer, seen: Seen) -> None:
    async with following(Reflector(api, CLAIMS, on_change=seen)):
        first = await server.put(CLAIMS, claim("x"))
        second = await server.put(CLAIMS, claim("x", l="1"))
        await server.remove(CLAIMS, "x", namespace="a")
        await seen.until(lambda: len(seen.changes) == 3)
    added, modified, deleted = seen.changes
    assert (added.kind, added.old, added.new) == ("added", None, first)
    assert (modified.kind, modified.old, modified.new) == ("modified", first, second)
    assert (deleted.kind, deleted.new) == ("deleted", None)
    assert deleted.old
    assert deleted.old["metadata"]["labels"] == {"l": "1"}


async def test_a_name_that_is_used_again_leads_to_the_new_object(
    server: FakeApiServer, api: ApiServer, seen: Seen
) -> None:
    reflector = Reflector(api, CLAIMS, on_change=seen)
    async with following(reflector):
        await server.put(CLAIMS, claim("x"))
        await server.remove(CLAIMS, "x", namespace="a")
        second = await server.put(CLAIMS, claim("x"))
        await seen.until(lambda: len(seen.changes) == 3)
        assert reflector.by_name("x", "a") == second
        assert list(reflector.objects) == [second["metadata"]["uid"]]


async def test_what_the_selector_no_longer_chooses_is_deleted(
    server: FakeApiServer, api: ApiServer, seen: Seen
) -> None:
    async with following(Reflector(api, CLAIMS, labels="l=1", on_change=seen)):
        await server.put(CLAIMS, claim("x", l="1"))
        await server.put(CLAIMS, claim("x", l="2"))
        await seen.until(lambda: len(seen.changes) == 2)
    assert seen.kinds == [("added", "x"), ("deleted", "x")]


async def test_a_watch_that_ends_goes_on_where_it_was(server: FakeApiServer, api: ApiServer, seen: Seen) -> None:
    await server.put(CLAIMS, claim("x"))
    async with following(Reflector(api, CLAIMS, on_change=seen)):
        await server.end_watches()
        await server.put(CLAIMS, claim("y"))
        await seen.until(lambda: len(seen.changes) == 2)
    assert seen.kinds == [("added", "x"), ("added", "y")]
    assert len([call for call in server.calls if not call.is_watch]) == 1, "it need not list again"


async def test_an_expired_version_leads_to_a_new_list_that_misses_nothing(
    server: FakeApiServer, api: ApiServer, seen: Seen
) -> None:
    for name in ("stays", "changes", "goes"):
        await server.put(CLAIMS, claim(name))
    reflector = Reflector(api, CLAIMS, on_change=seen)
    async with following(reflector):
        server.fall_silent()
        await server.put(CLAIMS, claim("changes", l="1"))
        await server.remove(CLAIMS, "goes", namespace="a")
        await server.put(CLAIMS, claim("comes"))
        await server.forget_history()
        server.fall_silent(False)
        await seen.until(lambda: len(seen.changes) == 6)
    assert sorted(seen.kinds[3:]) == [("added", "comes"), ("deleted", "goes"), ("modified", "changes")]


async def test_an_expired_version_leads_to_a_new_list_at_once_however_long_the_server_was_away(
    server: FakeApiServer, api: ApiServer
) -> None:
    watched, listed = [0.0], [0.0]

    def note(call: Call) -> None:
        (watched if call.is_watch else listed).append(time.monotonic())

    async with following(Reflector(api, CLAIMS)):
        server.hooks.append(note)
        server.refuse("WATCH", "resourceclaims", Refusal(503, "ServiceUnavailable"), times=4)
        await server.forget_history()
        async with asyncio.timeout(9):
            while not listed[1:]:
                await asyncio.sleep(0.02)
    expired = max(at for at in watched if at < listed[1])
    assert listed[1] - expired < 1, "the next wait after a failure would have been more than two seconds"


async def test_a_silent_connection_is_given_up(server: FakeApiServer, api: ApiServer, seen: Seen) -> None:
    reflector = Reflector(api, CLAIMS, on_change=seen, silence_s=0.6)
    async with following(reflector):
        await asyncio.sleep(1)  # bookmarks keep it
        assert len([call for call in server.calls if call.is_watch]) == 1
        server.fall_silent()
        await server.put(CLAIMS, claim("x"))
        await asyncio.sleep(0.7)
        server.fall_silent(False)
        await seen.until(lambda: len(seen.changes) == 1)
        assert len([call for call in server.calls if call.is_watch]) >= 2


async def test_it_outlives_a_server_that_is_away(server: FakeApiServer, api: ApiServer, seen: Seen) -> None:
    async with following(Reflector(api, CLAIMS, on_change=seen)):
        await server.stop()
        await asyncio.sleep(0.3)
        await server.start()
        await server.put(CLAIMS, claim("x"))
        await seen.until(lambda: len(seen.changes) == 1)


async def test_it_waits_for_a_resource_that_is_not_served_yet(
    server: FakeApiServer, api: ApiServer, seen: Seen
) -> None:
    server.refuse("GET", "resourceclaims", Refusal(404, "NotFound"), times=2)
    async with following(Reflector(api, CLAIMS, on_change=seen)):
        assert len(server.calls) >= 3


async def test_a_server_that_ends_every_watch_at_once_is_not_flooded(server: FakeApiServer, api: ApiServer) -> None:
    async with following(Reflector(api, CLAIMS)):
        for _ in range(300):
            await server.end_watches()
            await asyncio.sleep(0.005)
        assert len(server.calls) < 8


async def test_a_server_that_refuses_every_watch_is_not_flooded(server: FakeApiServer, api: ApiServer) -> None:
    server.refuse("WATCH", "resourceclaims", Refusal(500, "InternalError"), times=1000)
    async with following(Reflector(api, CLAIMS)):
        await asyncio.sleep(1.5)
        assert 2 <= len(server.calls) < 8


async def test_what_the_callback_raises_ends_it(server: FakeApiServer, api: ApiServer) -> None:
    def fail(change: Change) -> None:
        raise OSError("no room")

    await server.put(CLAIMS, claim("x"))
    with pytest.raises(OSError, match="no room"):
        await Reflector(api, CLAIMS, on_change=fail).run()


async def test_an_object_larger_than_any_buffer_arrives_whole(
    server: FakeApiServer, api: ApiServer, seen: Seen
) -> None:
    async with following(Reflector(api, CLAIMS, on_change=seen)):
        await server.put(CLAIMS, claim("x") | {"spec": {"big": "x" * (5 << 20)}})
        await seen.until(lambda: len(seen.changes) == 1)
    assert seen.changes[0].new
    assert len(seen.changes[0].new["spec"]["big"]) == 5 << 20


async def test_what_is_not_kept_takes_no_room_and_what_is_no_longer_kept_counts_as_deleted(
    server: FakeApiServer, api: ApiServer, seen: Seen
) -> None:
    def names_alone(item: Object) -> Object | None:
        return {"metadata": item["metadata"]} if item["spec"].get("ours") else None

    for name, spec in (("ours", {"ours": True}), ("theirs", {})):
        await server.put(CLAIMS, claim(name) | {"spec": spec})
    reflector = Reflector(api, CLAIMS, on_change=seen, keep=names_alone)
    async with following(reflector):
        assert [set(item) for item in reflector.objects.values()] == [{"metadata"}]
        await server.put(CLAIMS, claim("ours") | {"spec": {}})
        await seen.until(lambda: len(seen.changes) == 2)
    assert [change.kind for change in seen.changes] == ["added", "deleted"]
    assert not reflector.objects
