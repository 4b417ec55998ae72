from __future__ import annotations

import pytest
from comparison.closed_form import Phases, Policy, cycle_s, duty_cycle

TABLE = [  # jobs, on, off, snapshot, restore; cycle and duty when blocked by the own snapshot, and when it overlaps
    (1, 41, 59, 0, 0, 100, 0.41, 100, 0.41),
    (2, 41, 59, 0, 0, 100, 0.82, 100, 0.82),
    (2, 41, 59, 10, 5, 115, 0.713, 112, 0.7321),
    (2, 41, 59, 5, 3, 108, 0.7593, 103, 0.7961),
    (3, 41, 59, 1.5, 0.66, 129.48, 0.95, 129.48, 0.95),
    (2, 50, 50, 1.5, 1.1, 105.2, 0.9506, 105.2, 0.9506),
    (4, 20, 80, 2, 1, 103, 0.7767, 101, 0.7921),
    (2, 100, 300, 20, 7, 427, 0.4684, 407, 0.4914),
    (3, 60, 60, 6, 3, 207, 0.8696, 207, 0.8696),
    (8, 10, 90, 1, 1, 102, 0.7843, 101, 0.7921),
]


@pytest.mark.parametrize(("row"), TABLE)
def test_equal_jobs_follow_the_simulated_table(row: tuple[float, ...]) -> None:
    jobs = [Phases(*row[1:5])] * int(row[0])
    assert cycle_s(jobs, "blocking") == pytest.approx(row[5])
    assert duty_cycle(jobs, "blocking") == pytest.approx(row[6], abs=5e-5)
    assert cycle_s(jobs, "overlapped") == pytest.approx(row[7])
    assert duty_cycle(jobs) == pytest.approx(row[8], abs=5e-5)


@pytest.mark.parametrize(("jobs", "on", "off", "cycle"), [(2, 40, 60, 108), (2, 50, 50, 116), (3, 40, 60, 144)])
def test_a_lazy_snapshot_is_on_the_path_of_the_one_who_asks(jobs: int, on: float, off: float, cycle: float) -> None:
    assert cycle_s([Phases(on, off, 5, 3)] * jobs, "lazy") == cycle


def test_unequal_jobs_share_the_longest_cycle() -> None:
    jobs = [Phases(40, 60, 2, 1), Phases(30, 50, 3, 2), Phases(20, 70, 1, 1)]
    assert cycle_s(jobs, "blocking") == 103


def test_prefetching_hides_both_swaps_behind_a_long_off_phase() -> None:
    assert cycle_s([Phases(30, 70, 5, 3)] * 2, "prefetched") == 100


@pytest.mark.parametrize("policy", ["blocking", "overlapped", "lazy", "prefetched"])
def test_one_job_alone_is_never_parked(policy: Policy) -> None:
    assert cycle_s([Phases(40, 60, 5, 3)], policy) == 100
