"""The watch against an API server: discovery, classes, finalizers, jobs and conditions."""

from __future__ import annotations

import asyncio

import pytest
from api_objects import Refusal
from cluster_objects import claim, group, lane, node_slice, pod
from cluster_world import World, until
from dra_kubeletplugin.apiserver import CLAIMS, DEVICE_CLASSES, PODS, UnavailableError
from timeslice_api.kinds.names import FINALIZER
from timeslice_orchestrator.core.model import Fault, LeaseTimes, Setback
from timeslice_orchestrator.discovery.groups_file import FileGroup
from timeslice_orchestrator.kubernetes.cluster import GROUPS
from timeslice_orchestrator.kubernetes.watching import Watching


async def test_discovery_knows_all_groups_when_the_watch_has_started(world: World) -> None:
    await world.put_group(group("rl-a", jobs=["a", "b"]))
    await world.put_group(group("rl-b"))
    await world.watch()
    assert world.told.all == [
        (FileGroup("rl-a", None, frozenset({"a", "b"})), FileGroup("rl-b", None, None)),
    ]


async def test_discovery_is_told_of_lease_times(world: World) -> None:
    raw = group("rl-a")
    raw["spec"]["lease"] = {"ttlSeconds": 10}
    await world.put_group(raw)
    await world.watch()
    assert [known.lease for known in world.told.all[-1]] == [LeaseTimes(ttl_s=10)]


async def test_discovery_is_told_of_each_change_of_the_set_and_of_nothing_else(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.watch()
    await until(lambda: "Ready" in world.conditions("rl-a"))
    await world.put_group(group("rl-b"))
    await until(lambda: world.told.names == ["rl-a", "rl-b"])
    await until(lambda: world.device_class("rl-b"))
    assert len(world.told.all) == 2


async def test_start_gives_up_when_the_groups_do_not_come(world: World) -> None:
    world.server.pause()
    with pytest.raises(UnavailableError, match="did not list the TimesliceGroups"):
        await world.watch(sync_s=0.2)
    world.server.go_on()
    assert world.told.all == []


async def test_a_group_gets_its_finalizer_and_its_class(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.watch()
    await until(lambda: world.device_class("rl-a"))
    assert world.group("rl-a")["metadata"]["finalizers"] == [FINALIZER]
    owner = (world.device_class("rl-a") or {})["metadata"]["ownerReferences"][0]
    assert owner["uid"] == world.group("rl-a")["metadata"]["uid"]


async def test_a_class_that_is_deleted_or_changed_is_healed(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.watch()
    await until(lambda: world.device_class("rl-a"))
    original = world.device_class("rl-a")
    assert original
    await world.server.remove(DEVICE_CLASSES, "rl-a.timeslice.dev")
    await until(lambda: world.device_class("rl-a"))
    await world.server.put(DEVICE_CLASSES, {**original, "spec": {"selectors": []}})
    await until(lambda: (world.device_class("rl-a") or {})["spec"] == original["spec"])


async def test_a_class_of_somebody_else_stays_and_is_told_of(world: World) -> None:
    foreign = {"metadata": {"name": "rl-a.timeslice.dev"}, "spec": {"selectors": []}}
    await world.server.put(DEVICE_CLASSES, foreign)
    await world.put_group(group("rl-a"))
    await world.watch()
    await until(lambda: world.conditions("rl-a").get("Ready", {}).get("reason") == "DeviceClassTaken")
    assert (world.device_class("rl-a") or {})["spec"] == {"selectors": []}


async def test_a_job_is_listed_while_it_has_a_claim_even_a_pending_one(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.watch()
    await world.put_claim(claim("c", "rl-a", job="trainer"))
    await until(lambda: world.jobs("rl-a") == ["trainer"])
    await world.server.remove(CLAIMS, "c", namespace="team")
    await until(lambda: world.jobs("rl-a") == [])


async def test_a_claim_that_is_replaced_at_once_does_not_change_the_jobs(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.put_claim(claim("c", "rl-a", job="trainer"))
    await world.watch(linger_s=0.5)
    await until(lambda: world.jobs("rl-a") == ["trainer"])
    await world.server.remove(CLAIMS, "c", namespace="team")
    await asyncio.sleep(0.1)
    await world.put_claim(claim("d", "rl-a", job="trainer"))
    await asyncio.sleep(0.6)
    writes = [
        call for call in world.server.calls if call.method == "PATCH" and "jobs" in (call.body.get("status") or {})
    ]
    assert {tuple(call.body["status"]["jobs"]) for call in writes} == {("trainer",)}
    assert world.jobs("rl-a") == ["trainer"]


async def test_a_job_that_only_the_pod_names_is_listed_when_the_pod_is_seen(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.watch()
    owner = await world.put_pod(pod("p", "c", job="trainer"))
    await world.put_claim(claim("c", "rl-a"), owner)
    await until(lambda: world.jobs("rl-a") == ["trainer"])


async def test_the_seventeenth_job_waits_and_people_are_told(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.watch()
    for number in range(16):
        await world.put_claim(claim(f"c{number}", "rl-a", job=f"j{number:02}"))
    await until(lambda: len(world.jobs("rl-a")) == 16)
    await world.put_claim(claim("late", "rl-a", job="late"))
    await until(lambda: "JobsFull" in world.conditions("rl-a"))
    assert "late" in world.conditions("rl-a")["JobsFull"]["message"]
    await until(lambda: world.notes("TimesliceGroup", "TooManyJobs"))
    await until(lambda: any("job late has to wait" in note for note in world.notes("ResourceClaim", "NotAdmitted")))
    assert len(world.jobs("rl-a")) == 16
    await world.server.remove(CLAIMS, "c3", namespace="team")
    await until(lambda: "late" in world.jobs("rl-a"))
    await until(lambda: "JobsFull" not in world.conditions("rl-a"))


async def test_a_group_that_is_deleted_goes_with_its_last_claim(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.put_slice(node_slice("node-a", lane(0, "rl-a")))
    await world.put_claim(claim("c", "rl-a", job="a", on=[("node-a", 0)]))
    await world.watch()
    await until(lambda: world.device_class("rl-a"))
    await world.server.remove(GROUPS, "rl-a")
    await until(lambda: world.device_class("rl-a") is None)
    await until(lambda: "Draining" in world.conditions("rl-a"))
    assert world.conditions("rl-a")["Draining"]["message"] == "still allocated: team/c"
    assert world.told.names == ["rl-a"]
    await world.server.remove(CLAIMS, "c", namespace="team")
    await until(lambda: world.server.one(GROUPS, "rl-a") is None)
    await until(lambda: world.told.names == [])


async def test_a_group_is_not_let_go_while_the_api_server_knows_a_claim_that_the_watch_does_not(world: World) -> None:
    await world.put_group(group("rl-a"))
    watching = await world.watch()
    await until(lambda: world.device_class("rl-a"))
    world.server.fall_silent()
    await asyncio.sleep(0.6)  # what the watches still had to say
    world.server.fall_silent(False)
    await world.server.remove(GROUPS, "rl-a")
    await until(lambda: world.device_class("rl-a") is None)
    await world.put_claim(claim("c", "rl-a", job="a", on=[("node-a", 0)]))
    await asyncio.sleep(2.5)
    assert world.group("rl-a")["metadata"]["finalizers"] == [FINALIZER]
    assert watching.cluster.occupancy.allocated_in("rl-a")


async def test_groups_that_are_deleted_together_ask_for_the_claims_together(world: World) -> None:
    names = [f"rl-{number}" for number in range(20)]
    for name in names:
        await world.put_group(group(name))
    await world.watch(groups_s=0.2)
    await until(lambda: all(world.device_class(name) for name in names))
    before = len(world.server.calls)
    for name in names:
        await world.server.remove(GROUPS, name)
    await until(lambda: not world.server.all(GROUPS), within_s=8)
    asked = [call for call in world.server.calls[before:] if call.place.plural == CLAIMS.plural and not call.is_watch]
    assert 1 <= len(asked) <= 10  # they are let go in the few passes in which their time is over


async def test_a_bad_group_gets_a_condition_and_the_others_go_on(world: World) -> None:
    await world.put_group(group("bad", seats=99))
    await world.put_group(group("good"))
    await world.watch()
    assert world.told.names == ["good"]
    await until(lambda: world.conditions("bad").get("Ready", {}).get("reason") == "Invalid")
    assert "seats" in world.conditions("bad")["Ready"]["message"]
    await until(lambda: world.device_class("good"))
    assert world.device_class("bad") is None


async def test_trouble_with_one_group_does_not_hold_up_the_others_and_is_tried_again(world: World) -> None:
    world.server.refuse("PATCH", "timeslicegroups", Refusal(500, "InternalError"), times=1)
    world.server.refuse("POST", "deviceclasses", Refusal(403, "Forbidden"), times=1)
    for name in ("rl-a", "rl-b", "rl-c"):
        await world.put_group(group(name))
    await world.watch()
    await until(lambda: all(world.device_class(name) for name in ("rl-a", "rl-b", "rl-c")))
    await until(lambda: all("Ready" in world.conditions(name) for name in ("rl-a", "rl-b", "rl-c")))


async def test_a_group_whose_other_status_changes_is_not_written_again(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.watch()
    await until(lambda: "Ready" in world.conditions("rl-a"))
    await asyncio.sleep(0.2)
    before = len([call for call in world.server.calls if call.method != "GET"])
    for waiting in range(5):
        raw = world.group("rl-a")
        await world.server.put(GROUPS, {**raw, "status": {**raw["status"], "waiting": waiting + 1}})
    await asyncio.sleep(0.3)
    assert len([call for call in world.server.calls if call.method != "GET"]) == before


async def test_nothing_is_done_before_everything_is_known(world: World) -> None:
    await world.put_group(group("rl-a", status_jobs=["a"]))
    await world.put_claim(claim("c", "rl-a", job="a"))
    world.server.refuse("GET", "resourceclaims", Refusal(500, "InternalError"), times=2)
    await world.watch(linger_s=0.0)
    await until(lambda: world.device_class("rl-a"))
    assert not [
        call for call in world.server.calls if call.method == "PATCH" and call.body.get("status", {}).get("jobs") == []
    ]
    assert world.jobs("rl-a") == ["a"]


async def test_an_object_that_cannot_be_read_does_not_end_the_watch(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broken = claim("broken", "rl-a", job="a")
    broken["spec"]["devices"]["requests"] = [{"exactly": {"deviceClassName": "rl-a.timeslice.dev"}}]
    await world.put_group(group("rl-a"))
    await world.put_claim(broken)
    await world.watch()
    await world.put_claim(claim("c", "rl-a", job="b"))
    await until(lambda: world.jobs("rl-a") == ["b"])
    assert "cannot read team/broken" in caplog.text


async def test_after_the_stop_nothing_is_written(world: World) -> None:
    await world.put_group(group("rl-a"))
    watching = await world.watch()
    await until(lambda: world.device_class("rl-a"))
    await watching.stop()
    await watching.stop()
    calls = len(world.server.calls)
    await world.put_claim(claim("c", "rl-a", job="b"))
    await asyncio.sleep(0.2)
    assert len(world.server.calls) == calls
    assert world.jobs("rl-a") == []


async def test_a_second_leader_takes_over_without_changing_anything(world: World) -> None:
    await world.put_group(group("rl-a"))
    await world.put_claim(claim("c", "rl-a", job="b"))
    first = await world.watch()
    await until(lambda: world.jobs("rl-a") == ["b"] and world.device_class("rl-a"))
    await first.stop()
    writes = len([call for call in world.server.calls if call.method != "GET"])
    second = Watching(world.api, world.told)
    await second.start()
    await asyncio.sleep(0.5)
    await second.stop()
    assert len([call for call in world.server.calls if call.method != "GET"]) == writes


async def test_pods_that_ended_are_not_watched(world: World) -> None:
    watching = await world.watch()
    await world.put_pod(pod("p", "c", job="b"))
    await until(lambda: len(watching.cluster.occupancy.pods) == 1)
    raw = world.server.one(PODS, "p", namespace="team")
    assert raw
    await world.server.put(PODS, {**raw, "status": {"phase": "Succeeded"}})
    await until(lambda: len(watching.cluster.occupancy.pods) == 0)


async def test_of_claims_and_pods_only_what_is_read_is_kept(world: World) -> None:
    watching = await world.watch()
    large = pod("p", "c", job="b")
    large["spec"]["containers"] = [{"env": ["x" * 1000]}]
    await world.put_claim(claim("c", "rl-a", job="b"), await world.put_pod(large))
    await until(lambda: watching.cluster.occupancy.claims and watching.cluster.occupancy.pods)
    kept = [item for reflector in watching.cluster._reflectors for item in reflector.objects.values()]
    assert [set(item) for item in kept] == [{"metadata", "seen"}] * 2


HOST_MEMORY = Fault("HostMemory", "a on node-a: parking needs 6.0 MiB of host memory", "put fewer jobs on the node")


async def test_a_job_that_cannot_be_parked_is_told_on_its_group_and_its_pods_until_it_can(world: World) -> None:
    await world.put_group(group("rl"))
    await world.put_slice(node_slice("node-a", lane(0, "rl", jobs=["a", "b"])))
    for job in ("a", "b"):
        owner = await world.put_pod(pod(f"pod-{job}", f"claim-{job}", node="node-a", phase="Running"))
        await world.put_claim(claim(f"claim-{job}", "rl", job=job, on=[("node-a", 0)]), owner)
    watching = await world.watch()
    watching.setbacks_said("rl", (Setback("a", HOST_MEMORY), Setback("", Fault("not a word", "node-b is away"))))
    await until(lambda: "HandOffBlocked" in world.conditions("rl"))
    found = world.conditions("rl")["HandOffBlocked"]
    text = "a on node-a: parking needs 6.0 MiB of host memory; put fewer jobs on the node"
    assert (found["status"], found["reason"], found["message"]) == ("True", "HostMemory", f"{text} | node-b is away")
    await until(lambda: world.events("Pod", "HostMemory"))
    (event,) = world.events("Pod", "HostMemory")
    assert (event["regarding"]["name"], event["note"]) == ("pod-a", f"group rl cannot be handed over: {text}")
    watching.setbacks_said("rl", (Setback("", Fault("not a word", "node-b is away")),))
    await until(lambda: world.conditions("rl")["HandOffBlocked"]["reason"] == "NodeFault")
    watching.setbacks_said("rl", ())
    await until(lambda: "HandOffBlocked" not in world.conditions("rl"))
