from __future__ import annotations

from dataclasses import replace

import pytest
from comparison.claims import check
from comparison.measures import rises
from demo_stories import JOBS, Stories, Story, refused_run

GOOD = Stories()
HALF_SAME = replace(GOOD, together={**GOOD.together, "job-b": Story(JOBS[1], sha="cd" * 32)})
FLAT_B = replace(GOOD, together={**GOOD.together, "job-b": Story(JOBS[1], curve=(0.3, 0.4, 0.2, 0.31))})


def broken(stories: Stories) -> set[str]:
    return {claim.key for claim in check(stories.outcome()) if not claim.holds}


def test_a_good_run_keeps_every_claim() -> None:
    assert broken(GOOD) == set()


@pytest.mark.parametrize(
    ("stories", "claim"),
    [
        (HALF_SAME, "weights_identical"),
        (FLAT_B, "rewards_rise"),
        (replace(GOOD, unmanaged=refused_run()), "out_of_memory_without_time_slicing"),
        (replace(GOOD, unmanaged=refused_run("job-a", "job-b")), "out_of_memory_without_time_slicing"),
        (GOOD.sharing(waits_s=30.0), "faster_together"),
        (replace(GOOD, alone={**GOOD.alone, "job-b": Story(JOBS[1], on_s=7.1)}), "reward_share"),
        (replace(GOOD, handoffs=0), "state_was_parked"),
        (replace(GOOD, bytes_parked=0), "state_was_parked"),
    ],
)
def test_a_claim_that_does_not_hold_is_reported(stories: Stories, claim: str) -> None:
    assert broken(stories) == {claim}


def test_runs_that_never_finished_do_not_count_as_identical() -> None:
    outcome = GOOD.outcome()
    for run in (*outcome.alone.values(), outcome.together):
        for job in run.jobs.values():
            job.events.pop()
    assert not check(outcome)[0].holds


@pytest.mark.parametrize(
    ("curve", "risen"),
    [([0.1, 0.5, 0.1, 0.2], True), ([0.1, 0.9, 0.9, 0.11], False), ([0.2, 0.1], False), ([0.5], False), ([], False)],
)
def test_a_curve_rises_when_its_last_quarter_is_above_its_first_by_the_margin(curve: list[float], risen: bool) -> None:
    assert rises(curve, 0.02) is risen
