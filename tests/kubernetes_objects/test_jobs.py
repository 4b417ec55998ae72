from __future__ import annotations

from cluster_objects import Object, claim, group, groups_of, occupancy, pod
from timeslice_orchestrator.kubernetes.jobs import Jobs, jobs_of
from timeslice_orchestrator.kubernetes.lingering import Lingering


def jobs(raw_group: Object, claims: list[Object], pods: list[Object] | None = None) -> Jobs:
    (seen,) = groups_of([raw_group]).values()
    return jobs_of(seen, occupancy([], claims, pods or []))


def at(raw: Object, minute: int) -> Object:
    raw["metadata"]["creationTimestamp"] = f"2026-11-29T16:{minute:02}:00Z"
    return raw


def test_jobs_with_claims_are_listed_once_in_the_order_of_their_claims() -> None:
    claims = [
        at(claim("c", "rl-a", job="b"), 2),
        at(claim("d", "rl-a", job="a"), 1),
        at(claim("e", "rl-a", job="b"), 3),
    ]
    assert jobs(group("rl-a"), claims) == Jobs(("a", "b"))


def test_claims_of_other_groups_and_without_a_job_add_none() -> None:
    assert jobs(group("rl-a"), [claim("c", "rl-b", job="b"), claim("d", "rl-a")]) == Jobs()


def test_the_pods_label_names_the_job_of_a_claim_without_one() -> None:
    assert jobs(group("rl-a"), [claim("c", "rl-a", pod="p")], [pod("p", "c", job="a")]) == Jobs(("a",))


def test_jobs_keep_their_places_so_that_a_full_group_does_not_change_its_mind() -> None:
    there = [f"j{n:02}" for n in range(16)]
    claims = [at(claim(f"c{job}", "rl-a", job=job), 30) for job in there]
    early = at(claim("early", "rl-a", job="early"), 1)
    found = jobs(group("rl-a", status_jobs=there), [early, *claims])
    assert found == Jobs(tuple(there), ("early",))


def test_a_job_that_has_a_gpu_comes_before_one_that_waits() -> None:
    claims = [at(claim(f"c{n:02}", "rl-a", job=f"j{n:02}"), 1) for n in range(16)]
    holder = at(claim("h", "rl-a", job="holder", on=[("node-a", 0)]), 50)
    found = jobs(group("rl-a"), [*claims, holder])
    assert "holder" in found.listed
    assert found.beyond == ("j15",)


def test_a_group_with_a_list_gets_no_other_jobs_from_waiting_claims() -> None:
    claims = [claim("c", "rl-a", job="a"), claim("z", "rl-a", job="z")]
    assert jobs(group("rl-a", jobs=["a", "b"]), claims) == Jobs(("a",))


def test_claims_of_namespaces_that_are_not_admitted_add_no_job() -> None:
    assert jobs(group("rl-a", namespaces=["other"]), [claim("c", "rl-a", job="a")]) == Jobs()


def test_a_claim_that_is_in_counts_whatever_was_changed_since() -> None:
    inside = claim("c", "rl-a", job="z", on=[("node-a", 0)])
    assert jobs(group("rl-a", jobs=["a"], namespaces=["other"]), [inside]) == Jobs(("z",))


def test_a_group_that_is_being_deleted_gets_no_new_jobs() -> None:
    leaving = group("rl-a")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-29T16:00:00Z"
    claims = [claim("new", "rl-a", job="b"), claim("c", "rl-a", job="a", on=[("node-a", 0)])]
    assert jobs(leaving, claims) == Jobs(("a",))


def test_a_name_that_no_capacity_can_have_is_no_job() -> None:
    config = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig", "job": "no name!"}
    assert jobs(group("rl-a"), [claim("c", "rl-a", config=config)]) == Jobs()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_job_without_claims_stays_for_a_while_at_its_place() -> None:
    clock = Clock()
    lingering = Lingering(10, clock)
    (seen,) = groups_of([group("rl-a", status_jobs=["gone", "here"])]).values()
    assert lingering.kept(seen, Jobs(("here", "new"))).listed == ("gone", "here", "new")
    assert lingering.over_in("rl-a") == 10
    clock.now += 9
    assert lingering.kept(seen, Jobs(("here",))).listed == ("gone", "here")
    assert lingering.over_in("rl-a") == 1
    clock.now += 1
    assert lingering.kept(seen, Jobs(("here",))).listed == ("here",)


def test_a_job_that_came_back_has_its_whole_while_again() -> None:
    clock = Clock()
    lingering = Lingering(10, clock)
    (seen,) = groups_of([group("rl-a", status_jobs=["a"])]).values()
    lingering.kept(seen, Jobs())
    clock.now += 9
    lingering.kept(seen, Jobs(("a",)))
    clock.now += 9
    assert lingering.kept(seen, Jobs()).listed == ("a",)


def test_no_job_stays_in_the_place_of_one_that_has_claims() -> None:
    lingering = Lingering(10, Clock())
    there = [f"j{n}" for n in range(16)]
    (seen,) = groups_of([group("rl-a", status_jobs=["gone", *there[:15]])]).values()
    assert lingering.kept(seen, Jobs(tuple(there))).listed == tuple(there)
    assert "gone" not in lingering.kept(seen, Jobs(tuple(there[:15]), ("more",))).listed


def test_groups_that_are_gone_are_forgotten() -> None:
    lingering = Lingering(10, Clock())
    (seen,) = groups_of([group("rl-a", status_jobs=["a"])]).values()
    lingering.kept(seen, Jobs())
    lingering.forget("rl-a")
    assert lingering.over_in("rl-a") is None
