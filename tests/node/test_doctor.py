from __future__ import annotations

from pathlib import Path

import pytest
from gpu_emulator.emulator import Emulator
from node_world import MIB, World
from timeslice_driver.config import NodeConfig
from timeslice_driver.doctor import Check, examine, token

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]


async def findings(config: NodeConfig, **environ: str) -> dict[str, Check]:
    return {check.name: check for check in await examine(config, environ)}


async def test_a_machine_without_a_gpu_is_told_kindly_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NodeConfig(
        state_dir=folder / "state", socket=folder / "s", libcuda="/no/libcuda.so.1", libnvml="/no/libnvidia-ml.so.1"
    )
    found = await findings(config)
    assert found["nvml"].verdict == "fail"
    assert found["checkpoint functions"].verdict == "fail"
    assert "/no/libcuda.so.1" in found["checkpoint functions"].found
    assert "driver" in found["checkpoint functions"].mend
    assert found["node"].verdict == "warn"
    assert "timeslice node" in found["node"].mend
    assert found["settings"].verdict == "ok"


async def test_a_state_directory_that_cannot_be_is_told_too(folder: Path) -> None:
    long = folder / ("x" * 300)
    found = await findings(NodeConfig(state_dir=long, socket=long / "node.sock", cgroup_root=long))
    assert found["node"].verdict == "warn"
    assert found["cgroup"].found.startswith("none")


async def test_a_sound_machine_with_a_running_node_has_nothing_to_mend(world: World) -> None:
    await world.start()
    found = await findings(world.config())
    for name in ("nvml", "checkpoint functions", "persistence mode", "node", "state directory", "host memory"):
        assert found[name].verdict == "ok", found[name]
        assert found[name].mend == ""
    assert "570.86" in found["nvml"].found
    assert "CUDA 12.8" in found["checkpoint functions"].found


@pytest.mark.parametrize("options", [{"gpus": 2, "memory": 64 * MIB}])
async def test_modes_and_settings_that_break_a_park_are_told_with_the_mend(world: World, emulator: Emulator) -> None:
    emulator.set_device(0, mig=True)
    emulator.set_device(1, persistence=False)
    found = await findings(world.config(), NCCL_NVLS_ENABLE="1")
    assert found["mig"].verdict == "fail"
    assert "-mig 0" in found["mig"].mend
    assert found["persistence mode"].verdict == "fail"
    assert "-pm 1" in found["persistence mode"].mend
    assert found["NCCL_NVLS_ENABLE"].found.startswith("1: ")
    assert found["NCCL_P2P_DISABLE"].found.startswith("not set: ")


@pytest.mark.parametrize("options", [{"driver_version": "560.35"}])
async def test_an_old_driver_with_the_command_is_a_warning(world: World) -> None:
    check = (await findings(world.config()))["checkpoint functions"]
    assert check.verdict == "warn"
    assert "stands in" in check.found
    assert "570" in check.mend


async def test_a_node_that_does_not_answer_is_told(world: World, folder: Path) -> None:
    (folder / "node.sock").write_text("no socket")
    check = (await findings(world.config()))["node"]
    assert check.verdict == "fail"
    assert "find" in check.mend


async def test_a_memory_limit_below_what_a_park_needs_is_a_warning(world: World, folder: Path) -> None:
    root = folder / "cgroup"
    root.mkdir()
    for name, content in (("cgroup.controllers", ""), ("memory.max", str(100 * MIB)), ("memory.current", "0")):
        (root / name).write_text(content)
    check = (await findings(world.config(cgroup_root=root)))["cgroup"]
    assert check.verdict == "warn"
    assert "limit 100.0 MiB" in check.found
    assert "device memory 64.0 MiB" in check.found


def test_a_job_that_cannot_say_who_it_is_is_told_what_is_missing(tmp_path: Path) -> None:
    away = {"TIMESLICE_ORCHESTRATOR": "10.0.0.1:7070"}
    (missing,) = token(away)
    assert (missing.verdict, "timeslice token" in missing.mend) == ("fail", True)
    (not_there,) = token(away | {"TIMESLICE_TOKEN_FILE": str(tmp_path / "token")})
    assert (not_there.verdict, not_there.found) == (
        "fail",
        f"there is no token in {tmp_path / 'token'}: No such file or directory",
    )
    (tmp_path / "token").write_text("abc")
    (good,) = token(away | {"TIMESLICE_TOKEN_FILE": str(tmp_path / "token")})
    assert (good.verdict, "abc" in good.found) == ("ok", False)


@pytest.mark.parametrize("address", ["", "unix:///run/o.sock", "127.0.0.1:7070"])
def test_a_job_whose_orchestrator_is_on_its_machine_needs_no_token(address: str) -> None:
    assert token({"TIMESLICE_ORCHESTRATOR": address}) == []
