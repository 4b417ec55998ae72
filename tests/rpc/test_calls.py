"""What surrounds every call: defects become INTERNAL and a log entry; log lines have a form."""

from __future__ import annotations

import json
import logging
import sys

import grpc
import pytest
from running_orchestrator import Running
from timeslice_api.errors import TimesliceError
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator import log
from timeslice_orchestrator.core.machine import Core


async def test_a_defect_is_told_without_details_and_logged_with_them(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defective(*_: object) -> None:
        raise ZeroDivisionError("a secret of the house")

    monkeypatch.setattr(Core, "view", defective)
    with pytest.raises(TimesliceError, match="internal error") as caught:
        await running.call(running.stub.GetGroup(pb.GetGroupRequest(group_id="g")))
    assert "secret" not in str(caught.value)
    assert "GetGroup group_id=g failed by a defect" in caplog.text
    assert "ZeroDivisionError: a secret of the house" in caplog.text
    monkeypatch.undo()
    await running.call(running.stub.ListGroups(pb.ListGroupsRequest()))  # the server goes on


async def test_a_refusal_is_logged_with_what_it_was_about(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(TimesliceError):
        await running.acquire("r1", "job-a", "nowhere/")
    (line,) = [line for line in caplog.messages if line.startswith("refused")]
    assert "Acquire request_id=r1 job_id=job-a group_id=nowhere/" in line


async def test_an_error_has_the_status_of_its_class(running: Running) -> None:
    call = running.stub.GetGroup(pb.GetGroupRequest(group_id="nowhere"))
    assert await call.code() is grpc.StatusCode.NOT_FOUND


def record(**changes: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "timeslice", "levelname": "INFO", "msg": "node lost node=%s", "args": ("n1",)}
    )
    vars(made).update(changes)
    return made


def test_a_json_line_has_time_level_logger_and_message() -> None:
    line = json.loads(log.JsonFormatter().format(record()))
    assert {**line, "time": ""} == {"time": "", "level": "INFO", "logger": "timeslice", "message": "node lost node=n1"}


def test_a_json_line_has_the_traceback_of_an_error() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        line = log.JsonFormatter().format(record(exc_info=sys.exc_info()))
    assert "ValueError: why" in json.loads(line)["error"]
    assert "\n" not in line


FORGED = "x{}2026-01-01 00:00:00,000 INFO timeslice.audit audit: release group=g by token 'operators': done"


@pytest.mark.parametrize("formatter", [log.TextFormatter(), log.JsonFormatter()])
@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\x1b[1A", "\0", "\ud800"])
def test_what_a_stranger_sends_makes_no_line_of_its_own(formatter: logging.Formatter, end: str) -> None:
    line = formatter.format(record(args=(FORGED.format(end),)))
    assert line.isprintable()
    assert "timeslice.audit audit: release" in line, "it is told, within the line"


def test_the_words_of_an_error_are_lines_of_its_traceback() -> None:
    try:
        raise ValueError(FORGED.format("\n"))
    except ValueError:
        first, *below = log.TextFormatter().format(record(exc_info=sys.exc_info())).splitlines()
    assert first.endswith("node lost node=n1")
    assert all(line.startswith("  ") for line in below)


async def test_the_log_of_a_program_is_written_so(running: Running, capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    log.configure()
    try:
        with pytest.raises(TimesliceError):
            await running.acquire("r1", FORGED.format("\n"), "g")
    finally:
        root.handlers[:], root.level = before, level
    assert not [line for line in capfd.readouterr().err.splitlines() if line.startswith("2026-01-01")]
