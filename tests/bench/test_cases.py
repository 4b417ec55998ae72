import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from timeslice_bench.__main__ import main
from timeslice_bench.case import ALL_CASES, CLUSTER_CASES, SCALE_CASES, Effort, Measurement
from timeslice_bench.layout import many_groups
from timeslice_bench.scenario import SCENARIOS, Scenario, run
from timeslice_bench.throughput import Tally

TINY = Effort(
    empty_calls=5,
    acquires=5,
    handoffs={1: 4, 8: 2},
    parked=200,
    parked_granted=60,
    snapshot_bytes=16 << 20,
    snapshots=1,
    takeovers=1,
    cycles=20,
    warm_up_cycles=5,
    warm_up_s=0.0,
    limit_s=30.0,
    throughput_s=0.5,
    scale_nodes=(2, 4),
    paced_s=0.5,
    soak_s=2.0,
    sick_groups=4,
)
ROOT = Path(__file__).resolve().parents[2]


def scenario_of(case: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if case in scenario.cases)


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_acquire_and_hand_offs_over_several_nodes_are_timed_against_an_empty_call() -> None:
    wanted = ["acquire_p50_ms", "handoff_1_p50_ms", "handoff_8_p50_ms"]
    results = await run(scenario_of("acquire_p50_ms"), TINY, wanted, None)
    assert [result.case for result in results] == wanted
    assert all(result.value > 0 and result.empty_calls > 0 for result in results), results


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_waiting_requests_are_granted_or_withdrawn_and_none_is_lost() -> None:
    results = await run(scenario_of("parked_lost"), TINY, ["parked_lost"], None)
    assert [(result.value, result.sound) for result in results] == [(0, True)], results


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_growth_over_cycles_is_measured_in_both_processes() -> None:
    (result,) = await run(scenario_of("cycles_growth_mb"), TINY, ["cycles_growth_mb"], None)
    assert "20 cycles after 5" in result.detail, result


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_snapshot_and_restore_go_through_the_node_and_leave_the_bytes_unchanged() -> None:
    results = await run(scenario_of("park_vs_memcpy"), TINY, ["park_vs_memcpy", "restore_vs_memcpy"], None)
    assert [(result.value > 0, result.sound) for result in results] == [(True, True)] * 2, results


@pytest.mark.processes
@pytest.mark.timeout(90)
async def test_growth_with_the_number_of_nodes_is_measured_and_drawn(tmp_path: Path) -> None:
    drawn = tmp_path / "scale.svg"
    results = await run(scenario_of("scale_rss_mb"), replace(TINY, plot=drawn), SCALE_CASES, None)
    assert [result.value > 0 for result in results] == [True] * 4, results
    assert "2 nodes: " in results[0].detail
    assert "20 waiting" in results[0].detail
    assert "4 nodes" in drawn.read_text()
    assert "src=" not in drawn.read_text()


@pytest.mark.processes
@pytest.mark.timeout(90)
async def test_sick_nodes_stand_still_while_healthy_ones_hand_over() -> None:
    (result,) = await run(scenario_of("sick_nodes_delay"), TINY, ["sick_nodes_delay"], None)
    assert result.value > 0, result
    assert result.detail.endswith("beside 4 sick ones with 0"), result


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_a_long_run_tells_what_grew() -> None:
    (result,) = await run(scenario_of("soak_growth_mb"), TINY, ["soak_growth_mb"], None)
    assert "hand-offs in 2 s" in result.detail, result


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(90)
@pytest.mark.parametrize("kind", ["takeover", "takeover_lease"])
async def test_a_successor_grants_after_a_kill_and_after_a_clean_stop(kind: str) -> None:
    wanted = [f"{kind}_after_kill_ms", f"{kind}_clean_ms"]
    results = await run(scenario_of(wanted[0]), replace(TINY, limit_s=80.0), wanted, None)
    measured = [result.case for result in results if isinstance(result, Measurement)]
    assert measured == wanted, results


def test_only_a_grant_after_the_other_jobs_grant_is_a_hand_off() -> None:
    (group,) = many_groups(1, members=True).groups
    first, second = group.jobs
    tally = Tally()
    for job in (first, first, second, second):
        tally.granted(group.group_id, job)
    assert (tally.handoffs, tally.served((group,))) == (1, 0)
    tally.granted(group.group_id, first)
    assert (tally.handoffs, tally.served((group,))) == (2, 1)


def test_every_case_is_measured_by_one_scenario_and_those_of_a_cluster_by_scenarios_that_need_one() -> None:
    measured = [case for scenario in SCENARIOS for case in scenario.cases]
    assert sorted(measured) == sorted(ALL_CASES)
    assert {case for scenario in SCENARIOS if scenario.on_cluster for case in scenario.cases} == set(CLUSTER_CASES)


def test_without_a_cluster_its_cases_fail_and_say_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIMESLICE_CLUSTER_DIR", str(tmp_path))
    assert main(["cluster", "--quick", "--json", "-"]) == 1
    results = json.loads(capsys.readouterr().out)
    assert [each["case"] for each in results] == list(CLUSTER_CASES)
    assert {each["detail"] for each in results} == {
        "NotReadyError: cluster timeslice is not up: run hack/bench cluster"
    }


async def test_a_scenario_that_breaks_fails_its_cases_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (result,) = await run(scenario_of("cycles_growth_mb"), TINY, ["cycles_growth_mb"], None)
    assert "orchestrator ended" in result.reason


def test_the_list_names_every_case_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "handoff_64_p50_ms" in capsys.readouterr().out


@pytest.mark.processes
@pytest.mark.timeout(60)
def test_the_command_measures_the_case_that_it_is_given(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    command = [str(ROOT / "hack/bench"), "acquire_p50_ms", "--quick", "--json", str(told)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each["case"] for each in json.loads(told.read_text())] == ["acquire_p50_ms"]


@pytest.mark.processes
@pytest.mark.timeout(60)
def test_ctrl_c_ends_the_bench_and_every_process_that_it_started(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    bench_of = [str(ROOT / "hack/bench"), "handoffs_per_s"]
    with subprocess.Popen(bench_of, env=environment, stderr=subprocess.PIPE, text=True) as bench:
        children = _wait_for_children(bench.pid)
        bench.send_signal(signal.SIGINT)
        _, said = bench.communicate(timeout=30)
    assert bench.returncode == 130, said
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert list(tmp_path.iterdir()) == []


def _wait_for_children(pid: int) -> list[int]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        children = list(_children(pid))
        if len(children) == 2:  # the orchestrator and the agents
            return children
        time.sleep(0.05)
    raise AssertionError("the bench did not start its processes")


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())
