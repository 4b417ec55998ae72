from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from gpu_emulator.faults import Fault
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, World, cuda_state, in_use
from scripted_orchestrator import ScriptedOrchestrator
from timeslice_api.errors import OrchestratorInCharge
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as agent_pb
from timeslice_api.v1alpha1 import types_pb2
from timeslice_driver.converge import Convergence

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]
A, B = ("a", "default"), ("b", "default")


@pytest_asyncio.fixture
async def orchestrator(world: World) -> AsyncIterator[ScriptedOrchestrator]:
    made = ScriptedOrchestrator(world.folder / "o.sock")
    await made.start()
    yield made
    await world.stop()
    await made.stop()


async def linked(world: World, orchestrator: ScriptedOrchestrator) -> pb.Hello:
    node = await world.start(orchestrator=orchestrator.address)
    hello = await orchestrator.hello()
    await asyncio.wait_for(node.linked(), 5)
    return hello


def states(result: pb.Result) -> dict[str, str]:
    return {part.member.job_id: NAMES[part.state] for part in result.parts}


async def test_the_hello_tells_node_devices_groups_and_parts(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    job = jobs(2 * MIB)
    await world.start()
    await world.register("a", job.pid)
    await world.park("a")
    await world.stop()
    hello = await linked(world, orchestrator)
    device = world.emulator.snapshot()["devices"][0]["uuid"]
    assert hello.node == "node-1"
    assert [(each.device_id, each.memory_bytes, each.healthy) for each in hello.devices] == [(device, 64 * MIB, True)]
    assert [(group.group_id, list(group.device_ids)) for group in hello.groups] == [("default", [device])]
    assert [(part.member.job_id, NAMES[part.state], part.resident) for part in hello.parts] == [("a", "PARKED", False)]
    assert len(hello.boot_id) == 36


async def test_a_new_part_and_an_ended_one_are_reported(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    seen = list((await orchestrator.report()).parts)
    while NAMES[seen[-1].state] != "RUNNING":
        seen += (await orchestrator.report()).parts
    job.kill()
    report = await orchestrator.report()
    while not report.ended:
        report = await orchestrator.report()
    assert report.ended[0].job_id == "a"


async def test_the_end_of_a_registered_process_is_reported_by_the_name_that_it_was_given(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    first, second = jobs(2 * MIB), jobs(2 * MIB)
    requests = (agent_pb.RegisterRequest(job_id="a", group_id="default", pid=job.pid) for job in (first, second))
    names = [(await world.agent.Register(request)).process for request in requests]
    assert [name.split("/")[:2] for name in names] == [["node-1", str(first.pid)], ["node-1", str(second.pid)]]
    orchestrator.drop()  # what ends meanwhile is told on the next stream
    first.kill()
    told: list[str] = []
    while not told:
        told += (await orchestrator.report()).ended_processes
    assert told == names[:1]


async def test_one_command_parks_one_job_and_restores_the_other_in_that_order(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    first = jobs(36 * MIB)
    await world.register("a", first.pid)
    assert states(await orchestrator.command({A: "PARKED"})) == {"a": "PARKED"}
    second = jobs(36 * MIB)  # the device cannot hold both
    await world.register("b", second.pid)
    for _ in range(2):
        result = await orchestrator.command({A: "RUNNING", B: "PARKED"})
        assert states(result) == {"a": "RUNNING", "b": "PARKED"}
        result = await orchestrator.command({B: "RUNNING", A: "PARKED"})
        assert states(result) == {"a": "PARKED", "b": "RUNNING"}
    timings = {part.member.job_id: part.timings for part in result.parts}
    assert timings["a"].lock_s > 0
    assert timings["a"].checkpoint_s > 0
    assert timings["a"].restore_s == timings["b"].lock_s == 0
    assert timings["b"].restore_s > 0
    assert timings["b"].unlock_s > 0


async def test_a_command_that_ends_by_a_defect_ends_the_stream_and_the_next_hello_tells_how_its_parts_are(
    world: World,
    orchestrator: ScriptedOrchestrator,
    jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await linked(world, orchestrator)
    await world.register("a", jobs(2 * MIB).pid)

    async def defective(*_: object) -> None:
        raise ZeroDivisionError("of the product")

    with monkeypatch.context() as patch:
        patch.setattr(Convergence, "_checkpoint_all", defective)
        orchestrator.send({A: "PARKED"})
        hello = await orchestrator.hello()
    assert [NAMES[part.state] for part in hello.parts] == ["LOCKED"]
    assert "ZeroDivisionError: of the product" in caplog.text
    assert states(await orchestrator.command({A: "RUNNING"})) == {"a": "RUNNING"}


async def test_a_hand_off_in_rounds_locks_parks_restores_and_unlocks(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    first = jobs(2 * MIB)
    await world.register("a", first.pid)
    assert states(await orchestrator.command({A: "PARKED"})) == {"a": "PARKED"}
    second = jobs(2 * MIB)
    await world.register("b", second.pid)
    assert states(await orchestrator.command({B: "LOCKED"})) == {"b": "LOCKED"}
    assert second.is_blocked(second.begin("allocate", size=MIB))
    assert states(await orchestrator.command({B: "PARKED", A: "LOCKED"})) == {"a": "LOCKED", "b": "PARKED"}
    assert first.is_blocked(call := first.begin("allocate", size=MIB))
    assert states(await orchestrator.command({A: "RUNNING"})) == {"a": "RUNNING"}
    assert first.finish(call)[0] == 0


async def test_when_what_leaves_cannot_be_locked_nothing_comes_and_all_are_unlocked(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    parked, busy, idle = jobs(2 * MIB), jobs(2 * MIB), jobs(2 * MIB)
    await world.register("a", parked.pid)
    await orchestrator.command({A: "PARKED"})
    await world.register("b", busy.pid)
    await world.register("c", idle.pid)
    busy.must("launch_busy", milliseconds=3000)
    c = ("c", "default")
    result = await orchestrator.command({A: "RUNNING", B: "PARKED", c: "PARKED"}, lock_s=0.2)
    assert states(result) == {"a": "PARKED", "b": "RUNNING", "c": "RUNNING"}
    faults = {part.member.job_id: part.fault for part in result.parts}
    assert faults["b"].reason == "LockTimeout"
    assert {faults["a"].reason, faults["c"].reason} == {"CommandAbandoned"}
    assert all(fault.retryable for fault in faults.values())
    assert cuda_state(world.emulator, idle.pid) == "RUNNING"


async def test_a_command_of_an_old_epoch_or_with_an_old_token_is_refused(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    orchestrator.epoch = 5
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    await orchestrator.command({A: "PARKED"}, token=7)
    assert (await orchestrator.command({A: "RUNNING"}, token=6)).refused.reason == "StaleToken"
    assert (await orchestrator.command({A: "RUNNING"}, token=9, epoch=4)).refused.reason == "StaleEpoch"
    assert await world.state("a") == "PARKED"
    assert states(await orchestrator.command({A: "RUNNING"}, token=1, epoch=6)) == {"a": "RUNNING"}


async def test_epoch_and_token_outlive_the_node(world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs) -> None:
    orchestrator.epoch = 5
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    await orchestrator.command({A: "PARKED"}, token=7)
    await world.stop()
    hello = await linked(world, orchestrator)
    assert (hello.highest_epoch, hello.highest_token) == (5, 7)
    assert (await orchestrator.command({A: "RUNNING"}, token=6)).refused.reason == "StaleToken"


async def test_a_welcome_of_an_old_epoch_is_not_accepted(world: World, orchestrator: ScriptedOrchestrator) -> None:
    orchestrator.epoch = 5
    await linked(world, orchestrator)
    orchestrator.epoch = 4
    orchestrator.drop()
    for _ in range(2):
        assert (await orchestrator.hello()).highest_epoch == 5
    orchestrator.epoch = 6
    await orchestrator.hello()
    assert world.node
    await asyncio.wait_for(world.node.linked(), 5)


async def test_a_command_that_comes_again_later_is_carried_out_once_and_answered_by_how_its_parts_are_now(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    first = await orchestrator.command({A: "PARKED"}, command_id=40, token=2)
    assert states(first) == {"a": "PARKED"}
    await orchestrator.command({A: "RUNNING"}, command_id=41, token=3)
    again = await orchestrator.command({A: "PARKED"}, command_id=40, token=2)
    assert states(again) == {"a": "RUNNING"}  # what the first answer said would have the next hand-off leave it there
    assert await world.state("a") == "RUNNING"


async def test_a_part_that_the_node_does_not_have_is_left_out_of_the_result(
    world: World, orchestrator: ScriptedOrchestrator
) -> None:
    await linked(world, orchestrator)
    result = await orchestrator.command({A: "PARKED", B: "RUNNING"})
    assert list(result.parts) == []
    assert not result.HasField("refused")


async def test_a_target_that_is_no_state_to_be_brought_to_is_refused(
    world: World, orchestrator: ScriptedOrchestrator
) -> None:
    await linked(world, orchestrator)
    command = pb.Command(command_id=9, epoch=1, targets=[pb.Target(state=types_pb2.PART_STATE_EMPTY)])
    orchestrator._outbox.put_nowait(pb.OrchestratorMessage(command=command))
    assert (await orchestrator.result()).refused.reason == "InvalidCommand"


async def test_where_only_the_state_is_asked_for_the_driver_tells_it_and_nothing_moves(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    sound, spoilt = jobs(2 * MIB), jobs(2 * MIB)
    for name, job in (("a", sound), ("b", spoilt)):
        await world.register(name, job.pid)
    await orchestrator.command({A: "PARKED", B: "PARKED"})
    world.emulator.inject(Fault("restore", pid=spoilt.pid, poison=True))
    assert states(await orchestrator.command({B: "RUNNING"})) == {"b": "FAILED"}
    world.emulator.inject(Fault("lock", rc=909))  # nothing of that kind may be called
    result = await orchestrator.command({A: "as it is", B: "as it is"})
    assert states(result) == {"a": "PARKED", "b": "FAILED"}
    assert {part.member.job_id: part.fault.reason for part in result.parts} == {"a": "", "b": "Unrecoverable"}
    assert [cuda_state(world.emulator, job.pid) for job in (sound, spoilt)] == ["CHECKPOINTED", "CHECKPOINTED"]


async def test_a_broken_stream_changes_nothing_and_the_node_dials_again(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    await orchestrator.command({A: "PARKED"})
    orchestrator.drop()
    hello = await orchestrator.hello()
    assert [NAMES[part.state] for part in hello.parts] == ["PARKED"]
    assert in_use(world.emulator) == 0
    assert states(await orchestrator.command({A: "RUNNING"}, token=2)) == {"a": "RUNNING"}


async def test_the_node_finds_an_orchestrator_that_was_away(world: World, orchestrator: ScriptedOrchestrator) -> None:
    await orchestrator.stop()
    node = await world.start(orchestrator=orchestrator.address)
    await asyncio.sleep(0.3)
    await orchestrator.start()
    await asyncio.wait_for(node.linked(), 10)
    await orchestrator.stop()
    await asyncio.sleep(0.3)
    await orchestrator.start()
    await orchestrator.hello()
    await orchestrator.hello()


async def test_a_command_under_way_when_the_stream_breaks_ends_before_the_next_hello(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    world.emulator.inject(Fault("checkpoint", delay_ms=700))
    orchestrator.send({A: "PARKED"})
    await asyncio.sleep(0.2)
    orchestrator.drop()
    hello = await orchestrator.hello()
    assert [NAMES[part.state] for part in hello.parts] == ["PARKED"]


async def test_an_orchestrator_that_refuses_the_hello_is_asked_again(
    world: World, orchestrator: ScriptedOrchestrator
) -> None:
    orchestrator.welcoming = False
    node = await world.start(orchestrator=orchestrator.address)
    await orchestrator.hello()
    await orchestrator.hello()
    orchestrator.welcoming = True
    await asyncio.wait_for(node.linked(), 5)


async def test_nobody_else_may_park_while_an_orchestrator_is_in_charge(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    with pytest.raises(OrchestratorInCharge):
        await world.park("a")
    with pytest.raises(OrchestratorInCharge):
        await world.restore("a")
    await orchestrator.command({A: "PARKED"})
    with pytest.raises(OrchestratorInCharge, match="not running"):
        await world.unregister("a", job.pid)
    await orchestrator.command({A: "RUNNING"})
    await world.unregister("a", job.pid)
    report = await orchestrator.report()
    while not report.ended:
        report = await orchestrator.report()
    assert await world.parts() == {}


async def test_a_part_that_was_locked_when_its_node_died_is_told_as_locked(
    world: World, orchestrator: ScriptedOrchestrator, jobs: Jobs
) -> None:
    await linked(world, orchestrator)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    await orchestrator.command({A: "LOCKED"})
    await world.stop()
    hello = await linked(world, orchestrator)
    assert [NAMES[part.state] for part in hello.parts] == ["LOCKED"]
    assert states(await orchestrator.command({A: "RUNNING"})) == {"a": "RUNNING"}


async def test_commands_on_parts_without_work_are_answered_within_milliseconds(
    world: World, orchestrator: ScriptedOrchestrator
) -> None:
    await linked(world, orchestrator)
    sleeper = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await world.register("a", sleeper.pid)
        took = []
        for number in range(40):
            began = time.monotonic()
            await orchestrator.command({A: "PARKED" if number % 2 else "RUNNING"}, token=number)
            took.append(time.monotonic() - began)
        assert statistics.median(took) < 0.05  # 1 to 2 ms on an idle machine; this one may be busy
    finally:
        sleeper.kill()
        await sleeper.wait()
