from __future__ import annotations

import io
import json
from typing import Any

import pytest
from comparison import verdict
from comparison.__main__ import main
from comparison.claims import check
from comparison.demonstration import Demonstration
from comparison.report import report
from demo_stories import SETTING, Stories
from rich.console import Console

KEYS = {
    *(
        "alone",
        "together",
        "closed_form_duty_cycle",
        "stretch",
        "speedup",
        "handoffs",
        "bytes_parked",
        "bytes_restored",
    ),
    *("snapshot_s", "restore_s", "weights_identical", "weights_sha256", "out_of_memory_without_time_slicing"),
    *("rewards_rise", "reward_curves", "workload", "hardware"),
}


def report_of(stories: Stories) -> dict[str, Any]:
    outcome = stories.outcome()
    return report(outcome, stories.counted(), SETTING, claims=check(outcome), whole_s=93.4)


def test_the_report_has_every_key_and_is_json() -> None:
    made = json.loads(json.dumps(report_of(Stories())))
    assert made.keys() >= KEYS
    assert made["ok"] is made["weights_identical"] is made["rewards_rise"] is True
    for run in ("alone", "together"):
        assert made[run].keys() >= {"wall_s", "duty_cycle", "jobs"}


def test_wall_time_alone_is_the_sum_and_together_the_longest() -> None:
    made = report_of(Stories())
    assert made["alone"]["wall_s"] == pytest.approx(2 * 22)  # five times on the device, four rewards
    assert made["together"]["wall_s"] == pytest.approx(27)  # and five waits
    assert made["speedup"] == pytest.approx(44 / 27)
    assert made["stretch"] == pytest.approx({"job-a": 27 / 22, "job-b": 27 / 22})


def test_the_duty_cycle_is_the_sum_of_holds_over_wall_time() -> None:
    made = report_of(Stories())
    assert made["alone"]["duty_cycle"] == pytest.approx(10 / 22)
    assert made["together"]["duty_cycle"] == pytest.approx(20 / 27)


def test_the_closed_form_takes_the_measured_phases() -> None:
    made = report_of(Stories())
    assert made["closed_form_duty_cycle"] == pytest.approx(4 / (0.08 + 2 + 3))  # not saturated: R + T_on + T_off
    assert made["snapshot_s"]["p50"] == pytest.approx(0.1)


@pytest.mark.parametrize(("waits_s", "near"), [(1.0, True), (2.0, False)])
def test_how_near_the_duty_cycle_is_to_the_closed_form_is_told(waits_s: float, near: bool) -> None:
    made = report_of(Stories().sharing(waits_s=waits_s))
    assert made["duty_cycle_near_closed_form"] is near
    ratio = made["together"]["duty_cycle"] / made["closed_form_duty_cycle"]
    assert made["duty_cycle_of_closed_form"] == pytest.approx(ratio)


def test_a_failed_claim_makes_the_report_not_ok() -> None:
    assert report_of(Stories(bytes_parked=0))["ok"] is False


@pytest.mark.parametrize(("stories", "status"), [(Stories(), 0), (Stories(bytes_parked=0), 1)], ids=["good", "failed"])
def test_the_status_tells_whether_every_claim_holds_and_the_last_line_which_does_not(
    stories: Stories, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Demonstration, "run", lambda self: report_of(stories))
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    assert main([]) == status
    said = " ".join(capsys.readouterr().out.split())
    failed = (
        "Does not hold: The jobs took turns, and their state went to host memory and back (7 hand-offs, 0 MiB parked)."
    )
    assert said.endswith(failed) is bool(status)


def test_the_tables_fit_a_hundred_columns_and_cut_nothing() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    verdict.show(report_of(Stories()), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert all(
        figure in text for figure in ("job-a when sharing", "1.63 x as fast", "1.23 x", "yes", "45.5%", "took 93 s")
    )
