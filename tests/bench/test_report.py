import json
from pathlib import Path

from timeslice_bench.case import CASES, CLUSTER_CASES, SCALE_CASES, TAKEOVER_CASES, Failure, Measurement
from timeslice_bench.report import as_object, table, write_json

NAMES = [
    *("acquire_p50_ms", "handoff_1_p50_ms", "handoff_8_p50_ms", "handoff_64_p50_ms"),
    *("handoffs_per_s", "groups_served", "parked_lost", "parked_rss_mb"),
    *("park_vs_memcpy", "restore_vs_memcpy", "cycles_growth_mb"),
]
ON_A_CLUSTER = [
    *("prepare_p50_ms", "prepare_p99_ms", "prepare_64_s", "unprepare_p50_ms", "unprepare_p99_ms", "unprepare_64_s"),
    *("republished_s", "pod_start_ratio", "pod_start_new_job_ratio"),
    *("kubelet_prepare_mean_ms", "kubelet_unprepare_mean_ms"),
    *("node_rss_mb", "node_cpu_percent", "orchestrator_rss_mb", "orchestrator_cpu_percent"),
]
OF_TWO = [
    *("takeover_after_kill_ms", "takeover_clean_ms"),
    *("takeover_lease_after_kill_ms", "takeover_lease_clean_ms"),
]
AT_SCALE = [
    *("scale_handoffs_per_s", "scale_acquire_p99_ms", "scale_rss_mb", "scale_handoff_growth"),
    *("sick_nodes_delay", "soak_growth_mb"),
]
KEYS = {"case", "value", "unit", "empty_calls", "goal", "met"}


def test_the_cases_have_the_names_that_others_rely_on() -> None:
    assert list(CASES) == NAMES
    assert list(CLUSTER_CASES) == ON_A_CLUSTER
    assert list(TAKEOVER_CASES) == OF_TWO
    assert list(SCALE_CASES) == AT_SCALE


def test_every_element_of_the_json_has_the_keys_that_others_rely_on(tmp_path: Path) -> None:
    results = [Measurement("acquire_p50_ms", 2.5, 2.0), Failure("parked_lost", "the orchestrator ended")]
    write_json(results, str(tmp_path / "result.json"))
    objects = json.loads((tmp_path / "result.json").read_text())
    assert [each["case"] for each in objects] == ["acquire_p50_ms", "parked_lost"]
    assert all(each.keys() >= KEYS for each in objects)
    assert (objects[0]["value"], objects[0]["unit"], objects[0]["empty_calls"]) == (2.5, "ms", 2.0)


def test_a_time_must_not_be_longer_than_its_goal_and_a_rate_not_lower() -> None:
    met = {
        (case, value): as_object(Measurement(case, value))["met"]
        for case in ("handoff_1_p50_ms", "handoffs_per_s")
        for value in (7, 8, 9, 299, 300, 301)
    }
    assert [met["handoff_1_p50_ms", value] for value in (7, 8, 9)] == [True, True, False]
    assert [met["handoffs_per_s", value] for value in (299, 300, 301)] == [False, True, True]


def test_a_case_that_could_not_be_measured_is_not_met() -> None:
    failed = as_object(Failure("parked_lost", "the orchestrator ended"))
    assert (failed["value"], failed["met"], failed["detail"]) == (None, False, "the orchestrator ended")


def test_a_value_whose_conditions_failed_is_not_met() -> None:
    assert not as_object(Measurement("cycles_growth_mb", 0.0, detail="threads +3", sound=False))["met"]


def test_the_table_names_value_goal_and_the_nearest_system() -> None:
    text = table([Measurement("handoff_8_p50_ms", 12.34, 9.9), Failure("groups_served", "no answer")])
    assert [row.split()[0] for row in text.splitlines()[2:4]] == ["handoff_8_p50_ms", "groups_served"]
    assert all(word in text.splitlines()[2] for word in ("12.34", "9.9", "<= 15", "yes", "16,700"))
    assert all(word in text.splitlines()[3] for word in ("failed", "NO"))
