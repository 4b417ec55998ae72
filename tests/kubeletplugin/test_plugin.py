from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from dra_kubeletplugin import (
    DeviceHealth,
    Health,
    NotWorkingError,
    Plugin,
    Pool,
    RegistrationError,
    SocketInUseError,
)
from dra_kubeletplugin.apiserver import NODES, SLICES
from dra_kubeletplugin.node_lock import NodeLock
from dra_kubeletplugin.sockets import Sockets, remove_dead
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet, connected
from grpc_health.v1 import health_pb2, health_pb2_grpc
from scripted_driver import DRIVER, NODE, ScriptedDriver, allocate

NewPlugin = Callable[..., Plugin]
UIDS = ("0a1b2c3d-0000-4000-8000-000000000001", "0a1b2c3d-0000-4000-8000-000000000002")
HERE = Path(__file__).parent


@asynccontextmanager
async def another(what: str, path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", str(HERE / "other_process.py"), what, str(path),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout
        assert await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# Registration


async def test_kubelet_learns_the_driver_its_endpoint_and_its_services(
    kubelet: FakeKubelet, new_plugin: NewPlugin
) -> None:
    async with new_plugin() as plugin:
        (path,) = kubelet.sockets()
        assert path.name == f"{DRIVER}-reg.sock"
        assert not plugin.registered
        info = await kubelet.register(path)
        assert plugin.registered
    assert (info.type, info.name) == ("DRAPlugin", DRIVER)
    assert Path(info.endpoint).is_absolute()
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"], "the newest first"


async def test_health_services_are_offered_only_by_who_reports_health(
    kubelet: FakeKubelet, new_plugin: NewPlugin
) -> None:
    async with new_plugin(health=True):
        info = await kubelet.register(kubelet.sockets()[0])
    assert list(info.supported_versions)[2:] == ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    async with new_plugin() as plugin:
        kubelet.plugins.clear()
        await kubelet.register_all()
        async with kubelet.health() as stream:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(stream))
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(RuntimeError, match="health=True"):
            plugin.report_health([])


async def test_a_registration_that_kubelet_refuses_is_told_to_the_driver(
    kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    async with new_plugin() as plugin:
        with pytest.raises(grpc.aio.AioRpcError):
            await kubelet.register(kubelet.sockets()[0], refusal="no such version")
        await driver.until_failures(1)
        assert not plugin.registered
        await kubelet.register(kubelet.sockets()[0])
        assert plugin.registered
    (error,) = driver.failures
    assert isinstance(error, RegistrationError)
    assert "no such version" in str(error)


async def test_the_service_is_there_before_the_registration(
    kubelet: FakeKubelet, new_plugin: NewPlugin, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bool]] = []
    original = Plugin._add_registration

    def note(self: Plugin, server: Any) -> None:
        seen.append(((folder / "data/dra.sock").exists(), bool(kubelet.sockets())))
        original(self, server)

    monkeypatch.setattr(Plugin, "_add_registration", note)
    async with new_plugin():
        assert seen == [(True, False)]


async def test_leaving_removes_both_sockets(kubelet: FakeKubelet, new_plugin: NewPlugin, folder: Path) -> None:
    async with new_plugin():
        assert (folder / "data/dra.sock").exists()
    assert not kubelet.sockets()
    assert not (folder / "data/dra.sock").exists()


async def test_leaving_waits_for_calls_under_way(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    driver.go.clear()
    async with new_plugin():
        await kubelet.register_all()
        call = asyncio.create_task(kubelet.prepare(ref))
        await driver.entered.wait()
        asyncio.get_running_loop().call_later(0.3, driver.go.set)
    assert not (await call)[ref.uid].error


async def test_leaving_does_not_wait_for_ever(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    driver.go.clear()
    async with new_plugin(stop_grace_s=0.2):
        await kubelet.register_all()
        call = asyncio.create_task(kubelet.prepare(ref))
        await driver.entered.wait()
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    assert driver.under_way == 0


async def test_it_can_be_started_again_at_the_same_sockets(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin
) -> None:
    ref = await allocate(server, "c")
    for _ in range(2):
        async with new_plugin():
            kubelet.plugins.clear()
            await kubelet.register_all()
            assert not (await kubelet.prepare(ref))[ref.uid].error


# Sockets


async def test_sockets_of_a_killed_process_are_replaced(
    kubelet: FakeKubelet, new_plugin: NewPlugin, folder: Path
) -> None:
    (folder / "data").mkdir()
    registry = kubelet.registry
    for path in (folder / "data/dra.sock", registry / f"{DRIVER}-reg.sock", registry / f"{DRIVER}-x-reg.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    async with new_plugin():
        assert [path.name for path in kubelet.sockets()] == [f"{DRIVER}-reg.sock"]
        await kubelet.register_all()


@pytest.mark.timeout(60)
async def test_a_living_process_keeps_its_sockets(kubelet: FakeKubelet, new_plugin: NewPlugin, folder: Path) -> None:
    (folder / "data").mkdir()
    async with another("listen", folder / "data/dra.sock"):
        with pytest.raises(SocketInUseError):
            await new_plugin().__aenter__()
        assert (folder / "data/dra.sock").exists()
    assert not kubelet.sockets()


@pytest.mark.timeout(60)
async def test_a_taken_registration_socket_leaves_no_service_behind(
    kubelet: FakeKubelet, new_plugin: NewPlugin, folder: Path
) -> None:
    async with another("listen", kubelet.registry / f"{DRIVER}-reg.sock"):
        with pytest.raises(SocketInUseError):
            await new_plugin().__aenter__()
    assert not (folder / "data/dra.sock").exists()


def test_dead_sockets_go_and_everything_else_stays(folder: Path) -> None:
    plain = folder / "plain.sock"
    plain.write_text("not a socket")
    with socket.socket(socket.AF_UNIX) as living, socket.socket(socket.AF_UNIX) as dead:
        living.bind(str(folder / "living.sock"))
        living.listen()
        dead.bind(str(folder / "dead.sock"))
        dead.close()
        remove_dead([*folder.iterdir(), folder / "missing.sock"])
        assert sorted(path.name for path in folder.iterdir()) == ["living.sock", "plain.sock"]


def test_socket_names_are_shortened_until_they_fit() -> None:
    registry, data = Path("/var/lib/kubelet/plugins_registry"), Path("/var/lib/kubelet/plugins")
    short = Sockets.of("gpu.example.com", registry=registry, data=data / "gpu.example.com", pod_uid=UIDS[0])
    assert short.registration.name == f"gpu.example.com-{UIDS[0]}-reg.sock"
    assert short.service.name == f"dra-{UIDS[0]}.sock"
    longer = Sockets.of("d" * 40, registry=registry, data=data / "x", pod_uid=UIDS[0])
    assert longer.registration.name.startswith("d" * 40)
    longest = Sockets.of("d" * 63, registry=registry, data=data / ("d" * 63), pod_uid=UIDS[0])
    other = Sockets.of("d" * 63, registry=registry, data=data / ("d" * 63), pod_uid=UIDS[1])
    assert longest.registration.name.startswith("dra-")
    for sockets in (longer, longest, other):
        assert len(str(sockets.registration)) <= 107
        assert len(str(sockets.service)) <= 107
    assert longest != other


def test_folders_that_leave_no_room_for_a_socket_are_an_error() -> None:
    with pytest.raises(ValueError, match="too long for a unix socket"):
        Sockets.of("gpu.example.com", registry=Path("/" + "r" * 100), data=Path("/d"))


# Two instances at once


async def test_two_instances_are_there_at_once_and_either_gets_calls_one_at_a_time(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    refs = [await allocate(server, f"c{number}") for number in range(6)]
    async with new_plugin(pod_uid=UIDS[0]):
        await kubelet.register_all()
        async with new_plugin(pod_uid=UIDS[1]):
            await kubelet.register_all()
            old, new = kubelet.plugins.values()
            assert old != new
            calls = [kubelet.prepare(ref, endpoint=[old, new][at % 2]) for at, ref in enumerate(refs)]
            answers = await asyncio.gather(*calls)
    assert not [answer for ref, answer in zip(refs, answers, strict=True) if answer[ref.uid].error]
    assert driver.most_under_way == 1


async def test_the_older_instance_takes_only_its_own_sockets_with_it(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin
) -> None:
    ref = await allocate(server, "c")
    old, new = new_plugin(pod_uid=UIDS[0]), new_plugin(pod_uid=UIDS[1])
    await old.__aenter__()
    await new.__aenter__()
    await old.__aexit__(None, None, None)
    await kubelet.register_all()
    assert len(kubelet.plugins) == 1
    assert not (await kubelet.prepare(ref))[ref.uid].error
    await new.__aexit__(None, None, None)


async def test_the_newer_instance_publishes_once_the_older_one_has_gone(
    server: FakeApiServer, new_plugin: NewPlugin
) -> None:
    await server.put(NODES, {"metadata": {"name": NODE}})
    old, new = new_plugin(pod_uid=UIDS[0]), new_plugin(pod_uid=UIDS[1])
    async with new:
        async with old:
            ...
        new.publish({NODE: Pool.of([{"name": "new"}])})
        await new.published()
    await old.__aenter__()
    old.publish({NODE: Pool.of([{"name": "old"}])})
    await old.published()
    await new_plugin_after(old, new_plugin(pod_uid=UIDS[1]), server)


async def new_plugin_after(old: Plugin, new: Plugin, server: FakeApiServer) -> None:
    async with new:
        new.publish({NODE: Pool.of([{"name": "new"}])})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await new.published()
        assert names(server) == ["old"]
        await old.__aexit__(None, None, None)
        await new.published()
        assert names(server) == ["new"]


def names(server: FakeApiServer) -> list[str]:
    return [device["name"] for item in server.all(SLICES) for device in item["spec"].get("devices", ())]


@pytest.mark.timeout(60)
async def test_a_call_waits_for_another_process_and_takes_over_when_that_is_killed(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, folder: Path
) -> None:
    ref = await allocate(server, "c")
    async with new_plugin():
        await kubelet.register_all()
        async with another("hold", folder / "data/serialize.lock"):
            call = asyncio.create_task(kubelet.prepare(ref))
            await asyncio.sleep(0.3)
            assert not call.done()
        assert not (await call)[ref.uid].error


async def test_a_cancelled_wait_for_the_lock_leaves_it_to_others(folder: Path) -> None:
    lock, other = NodeLock(folder / "lock"), NodeLock(folder / "lock")
    await lock.acquire()
    for waiter in (lock, other):
        waiting = asyncio.create_task(waiter.acquire())
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        with pytest.raises(TimeoutError):
            await waiter.acquire(timeout_s=0.05)
    lock.release()
    await other.acquire(timeout_s=1)
    other.release()
    with pytest.raises(RuntimeError):
        other.release()


async def test_the_driver_can_clean_up_while_no_call_is_under_way(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    async with new_plugin() as plugin:
        await kubelet.register_all()
        async with plugin.exclusively():
            call = asyncio.create_task(kubelet.prepare(ref))
            await asyncio.sleep(0.2)
            assert not driver.entered.is_set()
        assert not (await call)[ref.uid].error


# Health and liveness


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_health_of_devices_is_streamed(kubelet: FakeKubelet, new_plugin: NewPlugin, version: str) -> None:
    async with new_plugin(health=True) as plugin:
        await kubelet.register_all()
        plugin.report_health([DeviceHealth("p", "gpu-0", Health.HEALTHY, checked_at=12.7, timeout_s=20)])
        async with kubelet.health(version) as stream:
            first = (await anext(aiter(stream))).devices[0]
            assert (first.device.pool_name, first.device.device_name) == ("p", "gpu-0")
            assert (first.health, first.last_updated_time, first.health_check_timeout_seconds) == (1, 12, 20)
            plugin.report_health([DeviceHealth("p", "gpu-0", Health.UNHEALTHY, "x" * 2000)])
            second = (await anext(aiter(stream))).devices[0]
            assert (second.health, len(second.message)) == (2, 1024)


async def test_a_report_is_not_repeated_by_itself(kubelet: FakeKubelet, new_plugin: NewPlugin) -> None:
    async with new_plugin(health=True) as plugin:
        await kubelet.register_all()
        plugin.report_health([DeviceHealth("p", "gpu-0", Health.HEALTHY)])
        async with kubelet.health() as stream:
            await anext(aiter(stream))
            with pytest.raises((TimeoutError, asyncio.CancelledError)):
                async with asyncio.timeout(0.5):
                    await anext(aiter(stream))


async def test_health_streams_do_not_hold_up_the_end(kubelet: FakeKubelet, new_plugin: NewPlugin) -> None:
    async with new_plugin(health=True, stop_grace_s=30):
        await kubelet.register_all()
        async with connected(kubelet.endpoint), kubelet.health() as stream:
            following = asyncio.ensure_future(collect(stream))
            await asyncio.sleep(0.2)
            watching = following
    async with asyncio.timeout(5):
        await asyncio.wait([watching])


async def collect(stream: AsyncIterator[Any]) -> list[Any]:
    try:
        return [message async for message in stream]
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return []


async def test_the_check_passes_while_the_sockets_answer(new_plugin: NewPlugin, folder: Path) -> None:
    async with new_plugin() as plugin:
        await plugin.check()
        (folder / "data/dra.sock").unlink()
        with pytest.raises(NotWorkingError, match=r"dra\.sock"):
            await plugin.check()


async def test_a_probe_may_ask_over_grpc(new_plugin: NewPlugin, folder: Path) -> None:
    async with new_plugin(liveness_address=f"unix://{folder}/live.sock"), connected(folder / "live.sock") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status == 1
        (folder / "data/dra.sock").unlink()
        assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status == 2


async def test_a_defect_in_the_background_is_told_to_the_driver(
    new_plugin: NewPlugin, driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: object) -> None:
        raise KeyError("defect")

    monkeypatch.setattr("dra_kubeletplugin.publishing.publisher.Publisher.run", fail)
    async with new_plugin():
        await driver.until_failures(1)
    assert isinstance(driver.failures[0], KeyError)
