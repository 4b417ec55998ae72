from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from dra_kubeletplugin import Claim
from dra_samples import DRIVER, GIB, gpu, group, opaque, raw_claim, record
from timeslice_driver.dra.candidate import NodeView, candidate
from timeslice_driver.dra.records import ClaimRecord
from timeslice_driver.dra.refusals import RefusedError

GROUPS = {each.name: each for each in (group("rl-a", seats=2), group("rl-b", seats=2))}
VIEW = NodeView((gpu(0), gpu(1)), GROUPS, {}, 320 * GIB)
LABELS = {"timeslice.dev/job": "trainer"}


def made(
    *devices: str, labels: Mapping[str, str] | None = None, config: Sequence[Mapping[str, Any]] = (),
    pods: Sequence[Mapping[str, Any]] = (), others: Sequence[ClaimRecord] = (), view: NodeView = VIEW, **claim: Any,
) -> ClaimRecord:  # fmt: skip
    raw = raw_claim("u", *devices, labels=LABELS if labels is None else labels, config=config, **claim)
    return candidate(replace(Claim.of(raw, driver=DRIVER), pod_objects=tuple(pods)), view, others)


def refused(*devices: str, **options: Any) -> tuple[str, str]:
    """Reason and text."""
    with pytest.raises(RefusedError) as error:
        made(*devices, **options)
    assert error.value.mend, "a refusal says what to do"
    return error.value.reason.value, str(error.value)


class TestWhose:
    def test_the_job_is_that_of_configuration_before_the_claim_s_label_before_the_pod_s(self) -> None:
        pod = {"metadata": {"name": "p", "uid": "x", "labels": {"timeslice.dev/job": "of-pod"}}}
        assert made("gpu-0-rl-a", labels={}, pods=[pod]).job == "of-pod"
        assert made("gpu-0-rl-a", pods=[pod]).job == "trainer"
        assert made("gpu-0-rl-a", config=[opaque(job="of-class")]).job == "of-class"
        both = [opaque("FromClaim", job="of-claim"), opaque(job="of-class")]
        assert made("gpu-0-rl-a", config=both).job == "of-claim"

    def test_a_later_entry_of_one_source_wins_and_entries_of_other_requests_do_not_count(self) -> None:
        entries = [opaque("FromClaim", job="one"), opaque("FromClaim", job="two", requests=["gpu"])]
        assert made("gpu-0-rl-a", config=[*entries, opaque("FromClaim", job="x", requests=["other"])]).job == "two"

    def test_other_drivers_configuration_is_none_of_ours(self) -> None:
        assert made("gpu-0-rl-a", config=[opaque(driver="gpu.example.com", nonsense=1)]).job == "trainer"

    def test_without_a_job_the_claim_is_refused_with_the_label_to_set(self) -> None:
        reason, text = refused("gpu-0-rl-a", labels={})
        assert reason == "JobUnknown"
        assert "label timeslice.dev/job" in text

    def test_a_lane_s_own_group_is_the_truth(self) -> None:
        assert made("gpu-0-rl-b").group == "rl-b"
        reason, text = refused("gpu-0-rl-a", config=[opaque("FromClaim", group="rl-b")])
        assert reason == "ConfigInvalid"
        assert "gpu-0-rl-a is in group rl-a, but its own configuration says rl-b" in text

    def test_a_slot_gets_the_group_of_its_class_and_no_other(self) -> None:
        assert made("gpu-0-slot-0", config=[opaque(group="rl-b")], shared=False).group == "rl-b"
        assert refused("gpu-0-slot-0", config=[opaque("FromClaim", group="rl-b")])[0] == "ConfigInvalid"
        both = [opaque(group="rl-a"), opaque("FromClaim", group="rl-b")]
        assert "says rl-b" in refused("gpu-0-slot-0", config=both)[1]
        assert "<group>.timeslice.dev" in refused("gpu-0-slot-0")[1]

    def test_one_claim_is_in_one_group(self) -> None:
        assert "in several groups" in refused("gpu-0-rl-a", "gpu-1-rl-b")[1]

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            (opaque("FromClaim", grop="rl-a"), "grop is not a field of it; did you mean group?"),
            (opaque("FromClaim", kind="Other"), "kind"),
            (opaque("FromClaim", apiVersion="timeslice.dev/v2"), "apiVersion"),
            (opaque(job=7), "TimesliceConfig of the DeviceClass: job is 7"),
            (opaque("FromClaim", backend="magic"), "backend"),
        ],
    )
    def test_wrong_configuration_is_refused_with_the_field_that_is_wrong(self, entry: Any, said: str) -> None:
        reason, text = refused("gpu-0-rl-a", config=[entry])
        assert reason == "ConfigInvalid"
        assert said in text

    def test_a_label_that_is_no_job_s_name_is_refused(self) -> None:
        assert refused("gpu-0-rl-a", labels={"timeslice.dev/job": "a/b"})[0] == "ConfigInvalid"

    def test_admin_access_is_refused(self) -> None:
        raw = raw_claim("u", "gpu-0-rl-a", labels=LABELS)
        raw["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
        with pytest.raises(RefusedError, match="adminAccess"):
            candidate(Claim.of(raw, driver=DRIVER), VIEW, ())


class TestDevices:
    def test_the_record_has_the_gpus_the_shares_and_their_host_memory(self) -> None:
        record = made("gpu-0-rl-a", "gpu-1-rl-a", memory="3Gi")
        assert record.state == "started"
        assert [(each.uuid, each.host_memory, each.share_id) for each in record.devices] == [
            ("GPU-0", 3 * GIB, "u-gpu-0-rl-a"),
            ("GPU-1", 3 * GIB, "u-gpu-1-rl-a"),
        ]
        assert record.pods == {"pod-1-uid": "pod-1"}
        assert record.prepared.host_memory_bytes == 6 * GIB

    def test_where_the_scheduler_tells_no_host_memory_it_is_the_default(self) -> None:
        slot = made("gpu-0-slot-0", config=[opaque(group="rl-a")], shared=False)
        assert slot.devices[0].host_memory == 80 * GIB

    def test_a_device_that_is_not_here_is_refused_with_those_that_are(self) -> None:
        reason, text = refused("gpu-7-rl-a")
        assert reason == "UnknownDevice"
        assert "no device gpu-7-rl-a; it has gpu-0, gpu-1" in text
        assert refused("mig-1")[0] == "UnknownDevice"

    def test_a_sick_gpu_is_refused_with_its_fault(self) -> None:
        view = NodeView((gpu(0, fault="GPU is lost"),), GROUPS, {}, 160 * GIB)
        reason, text = refused("gpu-0-rl-a", view=view)
        assert reason == "DeviceUnhealthy"
        assert "gpu-0 (GPU-0) cannot be used: GPU is lost" in text


class TestAdmission:
    def test_a_group_that_is_not_here_is_refused_with_those_that_are(self) -> None:
        assert "there are rl-a, rl-b" in refused("gpu-0-rl-x")[1]
        picky = {"rl-a": group("rl-a", nodeSelector={"pool": "h100"})}
        assert refused("gpu-0-rl-a", view=NodeView(VIEW.gpus, picky, {"pool": "a100"}, GIB))[0] == "Draining"

    def test_groups_that_have_not_been_heard_of_yet_refuse_nobody(self) -> None:
        assert made("gpu-0-rl-x", view=NodeView(VIEW.gpus, None, {}, 320 * GIB)).group == "rl-x"

    def test_a_draining_group_takes_claims_that_came_before_and_no_later_ones(self) -> None:
        draining = {"rl-a": group("rl-a", deleted="2026-01-01T12:00:00Z")}
        view = NodeView(VIEW.gpus, draining, {}, 320 * GIB)
        assert made("gpu-0-rl-a", view=view, allocated_at="2026-01-01T11:59:59Z")
        assert made("gpu-0-rl-a", view=view, allocated_at="")
        assert refused("gpu-0-rl-a", view=view, allocated_at="2026-01-01T12:00:01Z")[0] == "Draining"

    def test_a_group_s_list_of_namespaces_and_jobs_holds_here_too(self) -> None:
        own = {"rl-a": group("rl-a", namespaces=["team-a"])}
        reason, text = refused("gpu-0-rl-a", view=NodeView(VIEW.gpus, own, {}, 320 * GIB))
        assert (reason, "it admits team-a" in text) == ("NotAdmitted", True)
        own = {"rl-a": group("rl-a", jobs=["evaluator"])}
        reason, text = refused("gpu-0-rl-a", view=NodeView(VIEW.gpus, own, {}, 320 * GIB))
        assert (reason, "not for job trainer; it admits evaluator" in text) == ("NotAdmitted", True)


class TestNeighbours:
    def test_another_job_of_the_group_is_welcome(self) -> None:
        assert made("gpu-0-rl-a", others=[record("v", "GPU-0", job="evaluator", memory=GIB)])

    def test_another_group_on_the_gpu_is_a_conflict_that_names_it_and_its_claim(self) -> None:
        other = record("v", "GPU-0", job="evaluator", group="rl-b")
        reason, text = refused("gpu-0-rl-a", others=[other])
        assert reason == "GroupConflict"
        assert "gpu-0 (GPU-0) is in group rl-b through claim rl/claim-v, so group rl-a cannot have it" in text

    def test_the_same_job_is_never_twice_on_a_gpu(self) -> None:
        reason, text = refused("gpu-0-rl-a", others=[record("v", "GPU-0", job="trainer")])
        assert reason == "SameJobTwice"
        assert "job trainer has gpu-0 (GPU-0) already through claim rl/claim-v" in text
        assert made("gpu-1-rl-a", others=[record("v", "GPU-0", job="trainer")])

    def test_another_namespace_does_not_join_a_job_by_its_name(self) -> None:
        stranger = replace(record("v", "GPU-0", job="trainer"), namespace="other")
        reason, text = refused("gpu-1-rl-a", others=[stranger])
        assert reason == "NotAdmitted"
        assert "the name trainer is taken in group rl-a by a job of namespace other; call the job by another" in text
        assert made("gpu-1-rl-a", others=[replace(stranger, job="evaluator")])
        assert made("gpu-1-rl-a", others=[replace(stranger, group="rl-b")])

    def test_two_devices_of_a_claim_are_two_gpus(self) -> None:
        reason, text = refused("gpu-0-slot-0", "gpu-0-slot-1", config=[opaque(group="rl-a")])
        assert reason == "SameJobTwice"
        assert "gpu-0-slot-0 and gpu-0-slot-1 of the claim are one GPU" in text

    def test_no_more_jobs_than_seats(self) -> None:
        others = [record("v", "GPU-0", job="a"), record("w", "GPU-0", job="b")]
        reason, text = refused("gpu-0-rl-a", others=others)
        assert reason == "SeatsTaken"
        assert "has 2 jobs on its 2 seats: a, b" in text

    def test_snapshots_of_all_jobs_fit_into_the_gpu_s_share_of_host_memory(self) -> None:
        other = record("v", "GPU-0", job="a", memory=100 * GIB)
        assert made("gpu-0-rl-a", others=[other], memory="60Gi")
        reason, text = refused("gpu-0-rl-a", others=[other], memory="61Gi")
        assert reason == "HostMemory"
        assert "61.0 GiB does not fit" in text
        assert "160.0 GiB of host memory for snapshots, of which 100.0 GiB are taken" in text

    def test_a_claim_that_is_still_being_prepared_counts(self) -> None:
        assert refused("gpu-0-rl-a", others=[record("v", "GPU-0", group="rl-b", state="started")])[0] == "GroupConflict"


def pod(*, limit: str = "", whole: str = "", request: str = "", entry: str = "accelerators") -> dict[str, Any]:
    use = {"name": entry} | ({"request": request} if request else {})
    resources = {"claims": [use]} | ({"limits": {"memory": limit}} if limit else {})
    spec: dict[str, Any] = {"containers": [{"name": "train", "resources": resources}, {"name": "sidecar"}]}
    if whole:
        spec["resources"] = {"limits": {"memory": whole}}
    status = {"resourceClaimStatuses": [{"name": "accelerators", "resourceClaimName": "claim-u"}]}
    return {"metadata": {"name": "trainer-0", "uid": "pod-1-uid", "labels": {}}, "spec": spec, "status": status}


class TestPodMemory:
    def test_a_container_whose_limit_is_below_its_snapshots_is_refused_with_both_numbers(self) -> None:
        reason, text = refused("gpu-0-rl-a", "gpu-1-rl-a", memory="2Gi", pods=[pod(limit="3Gi")])
        assert reason == "PodMemory"
        assert "container train of pod trainer-0 may take 3.0 GiB of memory, but its snapshot is up to 4.0 GiB" in text
        assert made("gpu-0-rl-a", "gpu-1-rl-a", memory="2Gi", pods=[pod(limit="4Gi")])

    def test_the_limit_of_the_whole_pod_counts_too(self) -> None:
        assert "the whole of pod trainer-0" in refused("gpu-0-rl-a", memory="2Gi", pods=[pod(whole="1Gi")])[1]

    def test_without_a_limit_or_without_the_claim_nothing_is_refused(self) -> None:
        assert made("gpu-0-rl-a", memory="2Gi", pods=[pod()])
        assert made("gpu-0-rl-a", memory="2Gi", pods=[pod(limit="1Gi", entry="another")])

    def test_only_the_requests_that_a_container_names_count(self) -> None:
        assert made("gpu-0-rl-a", memory="2Gi", pods=[pod(limit="1Gi", request="other")])
        assert refused("gpu-0-rl-a", memory="2Gi", pods=[pod(limit="1Gi", request="gpu")])[0] == "PodMemory"
