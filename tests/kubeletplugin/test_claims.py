from __future__ import annotations

from dra_kubeletplugin import AllocatedDevice, Claim, PodRef
from dra_kubeletplugin.apiserver import Object
from scripted_driver import DRIVER, result


def claim(**status: Object | list[Object]) -> Claim:
    raw = {"metadata": {"namespace": "a", "name": "c", "uid": "u", "labels": {"l": "1"}}, "status": status}
    return Claim.of(raw, driver=DRIVER)


def config(source: str, requests: list[str], value: str, driver: str = DRIVER) -> Object:
    return {"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": {"value": value}}}


def configured(*entries: Object) -> Claim:
    return claim(allocation={"devices": {"results": [], "config": list(entries)}})


def values(found: Claim, request: str = "") -> list[str]:
    return [entry.parameters["value"] for entry in found.configs(request)]


def test_results_are_those_of_the_driver_with_all_that_the_scheduler_says() -> None:
    share = result("gpu-1", request="gpu/large", shareID="s", consumedCapacity={"seats": "1"}, adminAccess=True)
    found = claim(allocation={"devices": {"results": [result("x", driver="other"), share]}}).results
    assert found == (AllocatedDevice("gpu/large", "node-a", "gpu-1", "s", {"seats": "1"}, True, share),)
    assert found[0].base_request == "gpu"


def test_a_claim_without_status_has_nothing_and_is_not_allocated() -> None:
    empty = Claim.of({"metadata": {"name": "c", "uid": "u"}}, driver=DRIVER)
    assert (empty.allocated, empty.results, empty.pods, empty.configs()) == (False, (), (), ())
    assert (empty.labels, empty.annotations) == ({}, {})


def test_pods_are_told_from_other_consumers() -> None:
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "1"}
    reserved = claim(reservedFor=[group, {"resource": "pods", "name": "p", "uid": "2"}])
    assert reserved.pods == (PodRef("p", "2"),)


def test_configuration_of_the_class_comes_before_that_of_the_claim() -> None:
    found = configured(config("FromClaim", [], "mine"), config("FromClass", [], "a"), config("FromClass", [], "b"))
    assert values(found) == ["a", "b", "mine"]


def test_configuration_concerns_its_requests_and_their_sub_requests() -> None:
    found = configured(
        config("FromClass", ["gpu"], "main"),
        config("FromClass", ["gpu/large"], "exact"),
        config("FromClass", ["gpu/small"], "sibling"),
        config("FromClass", [], "all"),
        config("FromClass", ["other"], "other"),
    )
    assert values(found, "gpu/large") == ["main", "exact", "all"]
    assert values(found, "gpu") == ["main", "all"]


def test_configuration_of_other_drivers_is_not_shown() -> None:
    assert values(configured(config("FromClaim", [], "theirs", driver="other"))) == []
