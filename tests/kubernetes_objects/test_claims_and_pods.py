from __future__ import annotations

from cluster_objects import claim, occupancy, pod, refused, small, small_pod
from timeslice_orchestrator.kubernetes.claims import PodRef, Refusal, claim_of
from timeslice_orchestrator.kubernetes.lanes import slice_of
from timeslice_orchestrator.kubernetes.pods import pod_of


def test_a_claim_of_other_drivers_is_none_of_ours() -> None:
    theirs = claim("c", "rl-a")
    theirs["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "gpu.nvidia.com"
    assert claim_of(theirs) is None


def test_a_claim_tells_what_it_asks_and_has() -> None:
    raw = claim("c", "rl-a", job="a", count=2, memory="1Gi", on=[("node-a", 0), ("node-a", 1)], pod="p")
    seen = small(raw)
    (request,) = seen.requests
    assert (request.group_id, request.count, request.host_memory) == ("rl-a", 2, 1 << 30)
    assert [(use.pool, use.device, use.host_memory, use.job_keys) for use in seen.uses] == [
        ("node-a", "gpu-0-rl-a", 1 << 30, ("job_a",)),
        ("node-a", "gpu-1-rl-a", 1 << 30, ("job_a",)),
    ]
    assert seen.pods == (PodRef("uid-p", "p"),)


def test_alternatives_of_one_request_are_all_seen_and_a_subrequest_is_the_requests() -> None:
    raw = claim("c", "rl-a", job="a", on=[("node-a", 0)])
    raw["spec"]["devices"]["requests"] = [
        {
            "name": "gpu",
            "firstAvailable": [
                {"name": "best", "deviceClassName": "rl-a.timeslice.dev", "count": 1},
                {"name": "else", "deviceClassName": "gpu.nvidia.com"},
            ],
        }
    ]
    raw["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu/best"
    seen = small(raw)
    assert seen.groups == ("rl-a",)
    assert seen.uses[0].request == "gpu"


def test_a_refusal_is_the_condition_that_our_driver_wrote() -> None:
    raw = refused(claim("c", "rl-a", on=[("node-a", 0)]), "SeatsTaken", "full")
    assert small(raw).refusal == Refusal("SeatsTaken", "full")
    raw["status"]["devices"][0]["driver"] = "another.driver"
    assert small(raw).refusal is None


def test_pods_without_claims_are_not_kept() -> None:
    assert pod_of(pod("p")) is None


def test_a_template_claims_name_comes_from_the_pods_status() -> None:
    raw = pod("p")
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    assert small_pod(raw).claims == ()
    raw["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu-x7"}]
    assert small_pod(raw).claims == ("p-gpu-x7",)


def test_slices_of_other_drivers_are_not_read() -> None:
    assert slice_of({"metadata": {"uid": "1"}, "spec": {"driver": "gpu.nvidia.com"}}) is None


def test_the_job_that_a_class_configures_is_the_claims_unless_it_says_another_itself() -> None:
    def configured(source: str, job: str) -> dict[str, object]:
        parameters = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig", "job": job}
        return {"source": source, "opaque": {"driver": "gpu.timeslice.dev", "parameters": parameters}}

    raw = claim("c", "rl-a", job="label", on=[("node-a", 0)])
    config = raw["status"]["allocation"]["devices"]["config"]
    config += [configured("FromClass", "class")]
    assert small(raw).config_job == "class"
    config.insert(0, configured("FromClaim", "own"))
    assert small(raw).config_job == "own"


def test_a_pod_acts_for_the_job_of_its_claim_and_where_that_says_none_for_what_its_pods_say() -> None:
    named, unnamed = claim("c", "rl-a", job="a", pod="p"), claim("d", "rl-a", pod="p")
    found = occupancy([], [named, unnamed], [pod("p", "c", "d", job="b")])
    assert [found.jobs_of(small(each)) for each in (named, unnamed)] == [{"a"}, {"b"}]
    assert found.jobs_of(small(claim("e", "rl-a"))) == frozenset()
