from __future__ import annotations

import io

from comparison.board import Board
from comparison.jobs import Told
from comparison.plan import Plan
from comparison.screen import PlainScreen, picture, sparkline
from demo_stories import JOBS
from rich.console import Console
from timeslice_api.v1alpha1 import orchestrator_pb2, types_pb2

TOGETHER = Plan(JOBS, steps=8).together


def console() -> Console:
    return Console(file=io.StringIO(), width=100, force_terminal=False)


def shown(board: Board) -> str:
    output = console()
    output.print(picture(board))
    return str(output.file.getvalue())  # type: ignore[attr-defined]


def told(job: str, event: str, **details: object) -> Told:
    return Told("together", job, {"event": event, "t": 5.0, **details})


def board() -> Board:
    made = Board()
    made.begin(TOGETHER)
    return made


def test_the_table_shows_step_phase_and_reward_of_every_job() -> None:
    followed = board()
    followed.take(told("job-a", "waiting", step=2))
    followed.take(told("job-b", "holding", step=3))
    followed.take(told("job-b", "phase", phase="train", step=2))
    followed.take(told("job-a", "reward", step=1, mean=0.25))
    text = shown(followed)
    assert all(part in text for part in ("3/4 both together", "2/8", "3/8", "holds: train", "waits", "0.250"))


def test_the_holder_and_the_parked_come_from_the_orchestrator() -> None:
    followed = board()
    part = orchestrator_pb2.NodePart(state=types_pb2.PART_STATE_PARKED, bytes=166 << 20)
    followed.group = orchestrator_pb2.Group(
        holders=[orchestrator_pb2.GroupHolder(job_id="job-b")],
        members=[orchestrator_pb2.GroupMember(job_id="job-a", parts=[part])],
        handoffs=4,
    )
    assert "device: held by job-b, job-a parked (166 MiB), 4 hand-offs so far" in shown(followed)
    followed.group.switching_to_job_id = "job-a"
    assert "switching to job-a" in shown(followed)


def test_events_of_other_runs_are_not_shown() -> None:
    followed = board()
    assert not followed.take(Told("job-a alone", "job-a", {"event": "reward", "t": 1.0, "step": 1, "mean": 0.9}))
    assert "0.900" not in shown(followed)


def test_without_a_terminal_each_reward_is_a_line() -> None:
    output = console()
    screen = PlainScreen(output, Board())
    screen.begin(TOGETHER)
    for event in (told("job-a", "waiting", step=1), told("job-a", "reward", step=1, mean=0.5)):
        screen.take(event)
    lines = output.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == TOGETHER.title
    assert len(lines) == 2
    assert "reward 0.500" in lines[1]


def test_the_sparkline_shows_the_newest_rewards_from_low_to_high() -> None:
    assert sparkline([0.0, 0.1, 0.2]) == "▁▅█"
    assert sparkline([0.9, 0.0, 0.0], width=2) == "▁▁"
    assert sparkline([0.0, 0.0]) == "▁▁"


def test_in_the_run_without_turns_nobody_is_said_to_hold_the_device() -> None:
    followed = board()
    followed.group = orchestrator_pb2.Group(holders=[orchestrator_pb2.GroupHolder(job_id="job-b")])
    followed.begin(Plan(JOBS, steps=8).unmanaged)
    assert "every job takes what it can get" in shown(followed)
    assert "1/1" in shown(followed)
