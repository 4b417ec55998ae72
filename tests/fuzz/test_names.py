"""Path tricks in names, at every door: one rule refuses them, and nothing is made by them."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from dra_samples import record
from running_orchestrator import Running
from timeslice import OrchestratorClient
from timeslice.cli.main import main
from timeslice.settings import chosen_groups
from timeslice_api.errors import InvalidRequest
from timeslice_api.kinds import decode_config
from timeslice_api.kinds.group import decode_group
from timeslice_api.names import ENV_ORCHESTRATOR, path_part
from timeslice_api.v1alpha1 import agent_link_pb2, types_pb2
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_driver.dra.preparation import _check_uid
from timeslice_driver.dra.refusals import RefusedError
from timeslice_orchestrator.access import tokens_file
from timeslice_orchestrator.core.model import Settings
from timeslice_orchestrator.discovery import groups_file
from timeslice_orchestrator.rpc import reports

TRICKS = {
    "upwards": "../../etc/passwd",
    "upwards inside": "a/../../b",
    "absolute": "/etc/passwd",
    "nul": "a\0b",
    "newline": "a\nb",
    "carriage return": "job\r\nother: header",
    "escape": "a\x1b[2Jb",
    "cyrillic a": "job-\u0430",
    "full width": "\uff2aob",
    "right to left": "job\u202egnp",
    "zero width": "jo\u200bb",
    "combining": "jo\u0301b",
    "blank": "a b",
    "shell": "$(id)",
    "option": "--help",
    "hidden": ".ssh",
    "double slash": "a//b",
    "trailing slash": "a/",
    "long": "x" * 254,
}
GROUP = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceGroup", "spec": {}}
CONFIG = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig"}


def in_groups_file(text: dict[str, Any]) -> Any:
    return groups_file.parsed(json.dumps({"groups": text}), "groups.yaml")


def in_tokens_file(**fields: Any) -> Any:
    entry = {"name": "t", "token_sha256": "0" * 64, "role": "job", **fields}
    return tokens_file.parsed(json.dumps({"tokens": [entry]}), "tokens.yaml")


DOORS: dict[str, Callable[[str], Any]] = {
    "client's job": lambda name: OrchestratorClient("h:1", job_id=name),
    "client's group": lambda name: OrchestratorClient("h:1", job_id="a", group_id=name),
    "a call's group": lambda name: chosen_groups(name, "g"),
    "groups file": lambda name: in_groups_file({name: {"devices": {}}}),
    "job in the groups file": lambda name: in_groups_file({"g": {"devices": {}, "jobs": [name]}}),
    "node in the groups file": lambda name: in_groups_file({"g": {"devices": {name: "all"}}}),
    "job in the tokens file": lambda name: in_tokens_file(jobs=[name]),
    "group in the tokens file": lambda name: in_tokens_file(groups=[name]),
    "node in the tokens file": lambda name: in_tokens_file(role="node", node=name),
    "job in a claim": lambda name: decode_config({**CONFIG, "job": name}),
    "group in a claim": lambda name: decode_config({**CONFIG, "group": name}),
    "TimesliceGroup": lambda name: decode_group({**GROUP, "metadata": {"name": name, "uid": "u"}}),
    "job of a TimesliceGroup": lambda name: decode_group(
        {**GROUP, "metadata": {"name": "g", "uid": "u"}, "spec": {"jobs": [name]}}
    ),
    "a node's hello": lambda name: reports.hello(agent_link_pb2.Hello(node=name)),
    "a node's groups": lambda name: reports.hello(
        agent_link_pb2.Hello(node="n", groups=[agent_link_pb2.NodeGroup(group_id=name)])
    ),
    "a node's parts": lambda name: reports.hello(
        agent_link_pb2.Hello(
            node="n",
            parts=[
                types_pb2.Part(member=types_pb2.MemberKey(job_id=name, group_id="g"), state=types_pb2.PART_STATE_PARKED)
            ],
        )
    ),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_no_door_takes_a_name_that_leads_elsewhere_or_looks_like_another(
    door: Callable[[str], Any],
) -> None:
    for trick in TRICKS.values():
        with pytest.raises(InvalidRequest):
            door(trick)


async def test_no_call_takes_such_a_name(running: Running) -> None:
    for trick in TRICKS.values():
        for call in calls(running.stub, trick):
            with pytest.raises(InvalidRequest):
                await running.call(call)


def calls(stub: Any, trick: str) -> list[Awaitable[Any]]:
    return [
        stub.Acquire(pb.AcquireRequest(request_id="r", job_id=trick, group_id="g")),
        stub.Acquire(pb.AcquireRequest(request_id="r", job_id="a", group_id=trick)),
        stub.Acquire(pb.AcquireRequest(request_id="r", job_id="a", group_ids=["g", trick])),
        stub.Yield(pb.YieldRequest(lease_id="l", job_id=trick)),
        stub.KeepAlive(pb.KeepAliveRequest(job_id=trick)),
        stub.Withdraw(pb.WithdrawRequest(request_id="r", job_id=trick)),
        stub.ForceRelease(pb.ForceReleaseRequest(group_id=trick)),
        stub.Drain(pb.DrainRequest(group_id=trick)),
        stub.Resume(pb.ResumeRequest(group_id=trick)),
        stub.Reset(pb.ResetRequest(job_id=trick)),
        stub.Reset(pb.ResetRequest(job_id="a", group_id=trick)),
        stub.WatchGroup(pb.WatchGroupRequest(group_id=trick)).read(),
        stub.GetGroup(pb.GetGroupRequest(group_id=trick)),
    ]


@pytest.fixture
async def running(folder: Path) -> Any:
    running = Running(folder, Settings())
    await running.start()
    yield running
    await running.close()


def test_the_command_line_takes_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--job", "../a", "--group", "g"], ["--job", "a", "--group", "а"]):
        assert main(["run", "--no-node", "--orchestrator", "h:1", *arguments, "--", "true"]) == 125
        assert "is not a name of letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        *(["status"], ["drain"], ["resume"], ["release", "--force"], ["release", "--force", "g", "--job"]),
        *(["reset"], ["reset", "a", "--group"], ["token", "--role", "job", "--out", "t", "--job"]),
        *(["token", "--role", "job", "--out", "t", "--group"], ["token", "--role", "node", "--out", "t", "--node"]),
    ],
    ids=" ".join,
)
def test_no_command_sends_such_a_name(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ENV_ORCHESTRATOR, f"unix://{tmp_path}/nobody")
    for trick in {**TRICKS, "no text": "\udcff"}.values():
        if not trick.startswith("--"):
            assert main([*command, trick]) == 2
            assert re.match("error: (job|group|node) ", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trick", [*TRICKS.values(), "a/b", ""], ids=[*TRICKS, "one below", "empty"])
def test_no_file_of_a_claim_is_called_by_a_uid_that_leads_elsewhere(trick: str) -> None:
    with pytest.raises(InvalidRequest):
        path_part(trick, "uid")
    with pytest.raises(RefusedError, match="UID"):
        _check_uid(trick)
    assert record("uid-1", "GPU-0").uid == path_part("uid-1", "uid")
