"""Tokens of service accounts, as the API server judges them."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dra_kubeletplugin.apiserver import PODS
from fake_api_server import FakeApiServer, Refusal
from timeslice_api.errors import Unauthenticated, Unavailable
from timeslice_orchestrator.access.caller import Kind
from timeslice_orchestrator.kubernetes import token_reviews
from timeslice_orchestrator.kubernetes.token_reviews import TokenReviews


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Judged:
    """A fake API server, and who asks it."""

    def __init__(self, server: FakeApiServer, tokens: TokenReviews, clock: Clock) -> None:
        self.server, self.tokens, self.clock = server, tokens, clock

    async def pod_token(self, name: str = "p", **options: object) -> str:
        raw = {"metadata": {"name": name, "namespace": "team"}, "spec": {"nodeName": "n1"}}
        pod = await self.server.put(PODS, raw)
        return self.server.accounts.issue("team", "default", pod=pod, **options)  # type: ignore[arg-type]

    @property
    def reviews(self) -> int:
        return sum(call.place.plural == "tokenreviews" for call in self.server.calls)


@pytest_asyncio.fixture
async def judged() -> AsyncIterator[Judged]:
    clock = Clock()
    async with FakeApiServer() as server, server.connect(timeout_s=2.0) as api:
        yield Judged(server, TokenReviews(api, clock=clock), clock)


async def test_a_token_of_a_pod_says_which_pod_where(judged: Judged) -> None:
    caller = await judged.tokens.caller(await judged.pod_token())
    assert (caller.kind, caller.name, caller.namespace, caller.node) == (Kind.POD, "pod team/p", "team", "n1")
    assert caller.user == "system:serviceaccount:team:default"
    stored = judged.server.one(PODS, "p", namespace="team")
    assert stored
    assert caller.pod_uid == stored["metadata"]["uid"]


async def test_a_token_that_is_bound_to_no_pod_is_a_users(judged: Judged) -> None:
    caller = await judged.tokens.caller(judged.server.accounts.issue("team", "admin"))
    assert (caller.kind, caller.pod_uid, caller.namespace) == (Kind.USER, "", "")


async def test_a_token_costs_one_review_for_two_minutes_however_many_calls_present_it(judged: Judged) -> None:
    token = await judged.pod_token()
    await asyncio.gather(*(judged.tokens.caller(token) for _ in range(50)))
    await judged.tokens.caller(token)
    assert judged.reviews == 1
    judged.clock.ahead = token_reviews.GOOD_S + 1
    await judged.tokens.caller(token)
    assert judged.reviews == 2


async def test_a_forged_token_is_refused_and_not_asked_about_again_at_once(judged: Judged) -> None:
    head, body, _ = (await judged.pod_token()).split(".")
    forged = f"{head}.{body}.signature"
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="forged, or its pod is gone") as refused:
            await judged.tokens.caller(forged)
        assert forged not in str(refused.value)
        assert not refused.value.retryable
    assert judged.reviews == 1


@pytest.mark.parametrize("token", ["x", "a.b", "a.b.c", "a.!!.c", "e30.W10.x", "e30.e30.x", "." * 50, "e30.Wzt.x"])
async def test_what_is_no_token_for_us_does_not_reach_the_api_server(judged: Judged, token: str) -> None:
    with pytest.raises(Unauthenticated):
        await judged.tokens.caller(token)
    assert judged.reviews == 0


async def test_a_token_for_another_audience_is_refused_though_it_is_good(judged: Judged) -> None:
    token = await judged.pod_token(audiences=["https://kubernetes.default.svc"])
    with pytest.raises(Unauthenticated, match=r"for audience https://kubernetes.default.svc, not for timeslice"):
        await judged.tokens.caller(token)


async def test_an_api_server_that_knows_no_audiences_vouches_for_nothing(judged: Judged) -> None:
    token = await judged.pod_token()
    judged.server.accounts.answer = lambda place, body: {"status": {"authenticated": True, "user": {"username": "u"}}}  # type: ignore[method-assign]
    with pytest.raises(Unauthenticated):
        await judged.tokens.caller(token)


async def test_an_old_token_is_refused_and_may_be_shown_again_when_it_was_renewed(judged: Judged) -> None:
    with pytest.raises(Unauthenticated, match=r"the token ended \d+ s ago") as refused:
        await judged.tokens.caller(await judged.pod_token(lasts_s=-5))
    assert refused.value.retryable


async def test_the_token_of_a_pod_that_is_gone_ends_with_it(judged: Judged) -> None:
    token = await judged.pod_token()
    await judged.tokens.caller(token)
    await judged.server.remove(PODS, "p", namespace="team")
    judged.clock.ahead = token_reviews.GOOD_S + 1
    with pytest.raises(Unauthenticated, match="its pod is gone"):
        await judged.tokens.caller(token)


async def test_without_an_api_server_known_tokens_go_on_until_they_end_and_others_wait(judged: Judged) -> None:
    token, other = await judged.pod_token(), await judged.pod_token("other")
    await judged.tokens.caller(token)
    await judged.server.stop()
    judged.clock.ahead = 1800
    assert (await judged.tokens.caller(token)).name == "pod team/p"
    with pytest.raises(Unavailable, match="nobody can tell now") as refused:
        await judged.tokens.caller(other)
    assert refused.value.retryable
    judged.clock.ahead = 3601
    with pytest.raises(Unavailable):
        await judged.tokens.caller(token)


async def test_an_orchestrator_without_the_right_to_review_says_so(judged: Judged) -> None:
    judged.server.refuse("POST", "tokenreviews", Refusal(403, "Forbidden", "cannot create tokenreviews"))
    with pytest.raises(Unavailable, match="cannot create tokenreviews"):
        await judged.tokens.caller(await judged.pod_token())


async def test_what_is_kept_of_tokens_is_bounded(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_reviews, "_MOST_BAD", 5)
    payload = base64.urlsafe_b64encode(json.dumps({"aud": ["timeslice"]}).encode()).decode().rstrip("=")
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await judged.tokens.caller(f"e30.{payload}.{number}")
    assert len(judged.tokens._bad) == 5


async def test_a_caller_that_gives_up_takes_no_other_down(judged: Judged) -> None:
    token = await judged.pod_token()
    judged.server.pause()
    first, second = (asyncio.create_task(judged.tokens.caller(token)) for _ in range(2))
    await asyncio.sleep(0.05)
    first.cancel()
    judged.server.go_on()
    assert (await second).name == "pod team/p"


async def test_a_slow_api_server_keeps_a_caller_that_was_good_but_a_moment_and_the_next_ones_not_at_all(
    judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_reviews, "_PATIENCE_S", 0.1)
    token = await judged.pod_token()
    await judged.tokens.caller(token)
    judged.clock.ahead = token_reviews.GOOD_S + 1
    judged.server.pause()
    async with asyncio.timeout(1.0):
        await judged.tokens.caller(token)
    async with asyncio.timeout(0.05):
        await judged.tokens.caller(token)
    judged.server.go_on()


async def test_a_token_that_is_found_bad_behind_a_call_is_refused_from_then_on(
    judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_reviews, "_PATIENCE_S", 0.1)
    token = await judged.pod_token()
    await judged.tokens.caller(token)
    await judged.server.remove(PODS, "p", namespace="team")
    judged.clock.ahead = token_reviews.GOOD_S + 1
    judged.server.pause()
    await judged.tokens.caller(token)
    judged.server.go_on()
    async with asyncio.timeout(2.0):
        while token_reviews.sha256(token.encode()).digest() not in judged.tokens._bad:
            await asyncio.sleep(0.01)
    with pytest.raises(Unauthenticated):
        await judged.tokens.caller(token)
