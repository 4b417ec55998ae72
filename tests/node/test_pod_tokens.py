"""Tokens for pods of prepared claims: made beside prepare, renewed before they end, and never for anybody else."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from dra_kubeletplugin.apiserver import PODS
from fake_accounts import account_name
from fake_api_server import Call, FakeApiServer, Refusal
from timeslice_driver import pod_tokens
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.pod_tokens import PodTokens


class Node:
    """A node with claims and their folders, whose tokens are kept."""

    def __init__(self, server: FakeApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.parts = ClaimParts()

    async def pod(self, name: str, account: str = "") -> dict[str, str]:
        spec = {"nodeName": "n1", **({"serviceAccountName": account} if account else {})}
        made = await self.server.put(PODS, {"metadata": {"name": name, "namespace": "team"}, "spec": spec})
        return {made["metadata"]["uid"]: name}

    async def prepare(self, uid: str, pods: dict[str, str]) -> PreparedClaim:
        (self.folder / uid).mkdir(exist_ok=True)
        claim = PreparedClaim(uid, "team", f"claim-{uid}", "job-a", "g", ("GPU-0",), pods)
        await self.parts.add(claim)
        return claim

    def path(self, uid: str) -> Path:
        return self.folder / uid / pod_tokens.NAME

    def owner(self, uid: str) -> str:
        """The pod for which the claim's token is; empty when there is none."""
        if not self.path(uid).exists():
            return ""
        return str(self.server.accounts.issued[self.path(uid).read_text().strip()]["pod"]["metadata"]["name"])

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not true():
                await asyncio.sleep(0.01)

    @property
    def requests(self) -> list[Call]:
        return [call for call in self.server.calls if call.subresource == "token"]


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with FakeApiServer() as server, server.connect(timeout_s=1.0) as api:
        found = Node(server, tmp_path)
        task = asyncio.create_task(PodTokens(api, found.parts, tmp_path).run())
        yield found
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_prepared_claim_has_a_token_of_its_pod_for_timeslice_alone(node: Node) -> None:
    await node.prepare("c1", await node.pod("p", account="trainer"))
    await node.until(lambda: node.owner("c1") == "p")
    (call,) = node.requests
    assert (call.place.namespace, call.place.name) == ("team", "trainer")
    assert call.body["spec"]["audiences"] == ["timeslice"]
    assert call.body["spec"]["boundObjectRef"]["kind"] == "Pod"
    issued = node.server.accounts.issued[node.path("c1").read_text().strip()]
    assert issued["user"] == account_name("team", "trainer")


async def test_any_user_of_the_pod_can_read_it_whatever_the_umask_and_nobody_can_change_it(node: Node) -> None:
    before = os.umask(0o077)
    try:
        await node.prepare("c1", await node.pod("p"))
        await node.until(lambda: node.path("c1").exists())
    finally:
        os.umask(before)
    assert stat.S_IMODE(node.path("c1").stat().st_mode) == 0o444
    assert [path.name for path in (node.folder / "c1").iterdir()] == ["token"]


async def test_a_token_is_renewed_long_before_it_ends(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_tokens, "LASTS_S", 1)  # the server tells the end in whole seconds
    await node.prepare("c1", await node.pod("p"))
    await node.until(lambda: node.path("c1").exists())
    first = node.path("c1").read_text()
    await node.until(lambda: node.path("c1").read_text() != first)


async def test_without_an_api_server_prepare_goes_on_and_the_token_comes_later(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    pods = await node.pod("p")
    for _ in range(2):
        node.server.refuse("POST", "serviceaccounts", Refusal(403, "Forbidden", "no right"), subresource="token")
    with caplog.at_level(logging.INFO):
        async with asyncio.timeout(0.2):
            await node.prepare("c1", pods)
        await node.until(lambda: node.owner("c1") == "p" and "have their token" in caplog.text)
    told = [record for record in caplog.records if record.name == pod_tokens.__name__]
    assert [record.levelname for record in told] == ["WARNING", "INFO"]
    assert "no token for the pods of claim team/claim-c1: no right" in told[0].getMessage()


async def test_when_its_pod_has_left_the_claim_the_token_is_for_another(node: Node) -> None:
    first, second = await node.pod("p1"), await node.pod("p2")
    await node.prepare("c1", first | second)
    await node.until(lambda: node.owner("c1") == "p1")
    await node.server.remove(PODS, "p1", namespace="team")
    await node.parts.refresh_pods("c1", second)
    await node.until(lambda: node.owner("c1") == "p2")


async def test_a_pod_of_the_same_name_that_is_another_one_gets_nothing(node: Node) -> None:
    await node.pod("p")
    await node.prepare("c1", {"an-older-uid": "p"})
    await asyncio.sleep(0.3)
    assert not node.requests


async def test_an_unprepared_claim_gets_no_more_tokens_and_its_folder_stays_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_tokens, "LASTS_S", 1)
    await node.prepare("c1", await node.pod("p"))
    await node.until(lambda: node.path("c1").exists())
    await node.parts.remove("c1")
    node.path("c1").unlink()
    (node.folder / "c1").rmdir()
    asked = len(node.requests)
    await asyncio.sleep(1.2)
    assert len(node.requests) <= asked + 1  # one may have been on its way
    assert not (node.folder / "c1").exists()


async def test_each_claim_has_its_own_and_one_that_fails_hinders_no_other(node: Node) -> None:
    await node.prepare("bad", {"gone": "nobody"})
    claims = [await node.prepare(f"c{number}", await node.pod(f"p{number}")) for number in range(20)]
    await node.until(lambda: all(node.owner(claim.uid) == f"p{claim.uid[1:]}" for claim in claims))


async def test_a_change_that_is_none_of_the_pods_makes_no_new_token(node: Node) -> None:
    claim = await node.prepare("c1", await node.pod("p"))
    await node.until(lambda: node.owner("c1") == "p")
    changed: Any = replace(claim, device_ids=("GPU-1",))
    await node.parts.add(changed)
    await asyncio.sleep(0.2)
    assert len(node.requests) == 1
