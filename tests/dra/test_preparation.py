from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dra_kubeletplugin import Claim, PreparedDevice
from dra_samples import DRIVER, GIB, gpu, group, raw_claim
from timeslice_api.errors import ConfigError
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.dra import upkeep
from timeslice_driver.dra.candidate import NodeView
from timeslice_driver.dra.cdi import CdiFolder, Wiring
from timeslice_driver.dra.checkpoint import Checkpoint
from timeslice_driver.dra.preparation import TOMBSTONE_S, Files, Preparation
from timeslice_driver.dra.records import Records
from timeslice_driver.dra.refusals import RefusedError
from timeslice_driver.dra.vendor_cdi import VendorCdi

STEPS = ["started", "parts", "cdi", "completed"]


class Doors:
    """The node's sockets; may be broken."""

    def __init__(self) -> None:
        self.open_for: set[str] = set()
        self.broken = False

    async def open(self, claim: PreparedClaim) -> None:
        if self.broken:
            raise ConfigError("the socket cannot be made", hint="free some space")
        self.open_for.add(claim.uid)

    async def close(self, uid: str) -> None:
        self.open_for.discard(uid)


class Kill(BaseException):
    """Ends a call as a SIGKILL ends the process: nobody gets to clean up."""


class Bench:
    """A node's folders, and as many instances of the plugin over them as a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.doors = Doors()
        self.parts = ClaimParts(self.doors)
        self.view = NodeView((gpu(0), gpu(1)), {name: group(name) for name in ("rl-a", "rl-b")}, {}, 320 * GIB)
        self.checkpoint = Checkpoint(folder / "state")
        self.cdi = CdiFolder(folder / "cdi")
        self.now = 1000.0
        self.steps: list[str] = []
        self.kill_at = ""
        (folder / "dev").mkdir()
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
            (folder / "dev" / name).touch()
        self.checkpoint.update(lambda _: Records("boot-1", gpus=self.view.gpus))
        self.start()

    def start(self) -> None:
        """A fresh process: memory is gone."""
        self.parts = ClaimParts(self.doors)
        files = Files(self.checkpoint, self.cdi, VendorCdi([self.folder / "cdi"]), self.folder / "dev")
        wiring = Wiring("orchestrator:7070", self.folder / "claims")
        self.preparation = Preparation(
            files, self.parts, wiring, view=lambda: self.view, steps=self._step, clock=lambda: self.now
        )

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.kill_at:
            raise Kill

    async def prepare(self, uid: str = "u", *devices: str, **options: Any) -> Sequence[PreparedDevice]:
        labels = {"timeslice.dev/job": options.pop("job", "trainer")}
        raw = raw_claim(uid, *(devices or ("gpu-0-rl-a",)), labels=labels, **options)
        return await self.preparation.prepare(Claim.of(raw, driver=DRIVER))

    def state(self, uid: str = "u") -> str:
        claim = self.checkpoint.read().claims.get(uid)
        return claim.state if claim else "none"

    def traces(self, uid: str = "u") -> tuple[bool, bool, bool]:
        """Whether there are a part, a socket, a CDI spec of it."""
        return uid in self.parts.claims, uid in self.doors.open_for, uid in self.cdi.uids()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_prepared_claim_has_a_part_a_socket_and_a_cdi_spec(bench: Bench) -> None:
    (device,) = await bench.prepare(memory="2Gi")
    name = "u-gpu-gpu-0-rl-a-u-gpu-0-rl-a"
    assert device == PreparedDevice("node-a", "gpu-0-rl-a", ("gpu",), (f"timeslice.dev/claim={name}",), "u-gpu-0-rl-a")
    assert bench.steps == STEPS
    assert bench.state() == "completed"
    assert bench.traces() == (True, True, True)
    part = bench.parts.claims["u"]
    assert (part.job_id, part.group_id, part.device_ids) == ("trainer", "rl-a", ("GPU-0",))
    assert (dict(part.pods), part.host_memory_bytes) == ({"pod-1-uid": "pod-1"}, 2 * GIB)
    nodes = json.loads(bench.cdi.path("u").read_text())["devices"][0]["containerEdits"]["deviceNodes"]
    assert [node["path"] for node in nodes] == ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]


async def test_preparing_again_gives_the_same_and_puts_back_what_is_missing(bench: Bench) -> None:
    first = await bench.prepare()
    bench.cdi.remove("u")
    bench.start()
    assert await bench.prepare() == first
    assert bench.traces() == (True, True, True)
    assert bench.steps == STEPS, "nothing was begun again"


async def test_preparing_again_is_not_refused_whatever_is_wrong_by_now(bench: Bench) -> None:
    first = await bench.prepare()
    bench.view = replace(bench.view, groups={}, gpus=(gpu(0, fault="lost"), gpu(1)))
    assert await bench.prepare() == first


async def test_a_second_pod_of_a_prepared_claim_is_added(bench: Bench) -> None:
    await bench.prepare()
    await bench.prepare(pods=("pod-2",))
    assert dict(bench.parts.claims["u"].pods) == {"pod-1-uid": "pod-1", "pod-2-uid": "pod-2"}
    assert set(bench.checkpoint.read().claims["u"].pods) == {"pod-1-uid", "pod-2-uid"}


async def test_a_claim_with_a_new_allocation_is_undone_and_prepared_anew(bench: Bench) -> None:
    await bench.prepare()
    (device,) = await bench.prepare("u", "gpu-1-rl-b")
    assert device.device == "gpu-1-rl-b"
    assert bench.parts.claims["u"].group_id == "rl-b"


async def test_nvidia_s_own_cdi_device_is_used_where_there_is_one(bench: Bench) -> None:
    bench.cdi.write("seed", {})
    (bench.folder / "cdi" / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices: [{name: GPU-0}]\n")
    (device,) = await bench.prepare()
    assert device.cdi_ids[0] == "nvidia.com/gpu=GPU-0"
    (edits,) = (each["containerEdits"] for each in json.loads(bench.cdi.path("u").read_text())["devices"])
    assert "deviceNodes" not in edits


async def test_a_running_claim_keeps_its_device_files_though_nvidia_s_spec_appears_later(bench: Bench) -> None:
    await bench.prepare()
    before = bench.cdi.path("u").read_text()
    (bench.folder / "cdi" / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices: [{name: GPU-0}]\n")
    bench.start()
    await bench.preparation.restore(bench.checkpoint.read())
    assert bench.cdi.path("u").read_text() == before, "the kubelet gives restarted containers the ids that it knows"


async def test_a_missing_device_file_is_a_refusal_that_tells_how_to_make_it_and_leaves_nothing(bench: Bench) -> None:
    (bench.folder / "dev" / "nvidia0").unlink()
    with pytest.raises(RefusedError, match="nvidia-modprobe") as error:
        await bench.prepare()
    assert error.value.reason.value == "DeviceUnhealthy"
    assert bench.traces() == (False, False, False)
    assert bench.state() == "none"


async def test_a_socket_that_cannot_be_made_is_a_refusal_and_leaves_nothing(bench: Bench) -> None:
    bench.doors.broken = True
    with pytest.raises(RefusedError, match="the socket cannot be made; free some space"):
        await bench.prepare()
    assert bench.traces() == (False, False, False)
    assert bench.state() == "none"
    bench.doors.broken = False
    assert await bench.prepare()


async def test_a_refused_claim_leaves_nothing_and_harms_no_neighbour(bench: Bench) -> None:
    await bench.prepare("v")
    with pytest.raises(RefusedError, match="already through claim rl/claim-v"):
        await bench.prepare()
    assert bench.traces() == (False, False, False)
    assert bench.traces("v") == (True, True, True)


@pytest.mark.parametrize("step", STEPS)
async def test_a_prepare_that_was_killed_is_done_again_by_the_next_instance(bench: Bench, step: str) -> None:
    bench.kill_at = step
    with pytest.raises(Kill):
        await bench.prepare()
    bench.kill_at = ""
    bench.start()
    await bench.preparation.restore(bench.checkpoint.read())
    assert await bench.prepare()
    assert bench.state() == "completed"
    assert bench.traces() == (True, True, True)


@pytest.mark.parametrize("step", STEPS)
async def test_a_prepare_that_was_killed_can_be_unprepared_and_leaves_nothing(bench: Bench, step: str) -> None:
    bench.kill_at = step
    with pytest.raises(Kill):
        await bench.prepare()
    bench.kill_at = ""
    bench.start()
    await bench.preparation.unprepare("u")
    assert bench.traces() == (False, False, False)
    assert bench.checkpoint.read().held == ()


async def test_a_claim_that_was_begun_keeps_its_gpu_from_other_groups(bench: Bench) -> None:
    bench.kill_at = "started"
    with pytest.raises(Kill):
        await bench.prepare()
    bench.kill_at = ""
    bench.start()
    with pytest.raises(RefusedError, match="is in group rl-a"):
        await bench.prepare("v", "gpu-0-rl-b")


@pytest.mark.parametrize("step", ["cdi removed", "parts removed", "unprepared"])
async def test_an_unprepare_that_was_killed_is_done_again(bench: Bench, step: str) -> None:
    await bench.prepare()
    bench.kill_at = step
    with pytest.raises(Kill):
        await bench.preparation.unprepare("u")
    bench.kill_at = ""
    bench.start()
    await bench.preparation.restore(bench.checkpoint.read())
    await bench.preparation.unprepare("u")
    assert bench.traces() == (False, False, False)
    assert bench.state() == "unprepared"


async def test_unpreparing_what_nobody_knows_succeeds(bench: Bench) -> None:
    assert not await bench.preparation.unprepare("never-heard-of")
    assert bench.state("never-heard-of") == "none"


async def test_unpreparing_twice_succeeds(bench: Bench) -> None:
    await bench.prepare()
    assert await bench.preparation.unprepare("u")
    assert not await bench.preparation.unprepare("u")


async def test_a_late_prepare_after_unprepare_is_stale_but_another_pod_s_is_not(bench: Bench) -> None:
    await bench.prepare()
    await bench.preparation.unprepare("u")
    bench.now += 45
    with pytest.raises(RefusedError, match="unprepared 45 s ago") as error:
        await bench.prepare()
    assert error.value.reason.value == "Stale"
    assert await bench.prepare(pods=("pod-2",))


async def test_tombstones_are_forgotten_in_time(bench: Bench) -> None:
    await bench.prepare()
    await bench.preparation.unprepare("u")
    bench.now += TOMBSTONE_S + 1
    assert await bench.prepare("v")
    assert bench.state() == "none"


async def test_the_gpu_of_an_unprepared_claim_is_free(bench: Bench) -> None:
    await bench.prepare()
    await bench.preparation.unprepare("u")
    assert await bench.prepare("v", "gpu-0-rl-b")


async def test_a_full_disk_is_a_refusal_that_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("timeslice_driver.dra.cdi.replace_file", fail)
    with pytest.raises(RefusedError, match="No space left") as error:
        await bench.prepare()
    assert error.value.reason.value == "NodeFault"
    assert bench.traces() == (False, False, False)
    assert bench.state() == "none"


class TestStart:
    async def test_prepared_claims_are_in_place_again_after_a_restart(self, bench: Bench) -> None:
        await bench.prepare()
        bench.cdi.remove("u")
        bench.start()
        records = upkeep.begin_boot(bench.checkpoint, "boot-1")
        await bench.preparation.restore(records)
        assert bench.traces() == (True, True, True)

    async def test_after_a_reboot_nothing_is_prepared_and_the_kubelet_s_next_call_prepares(self, bench: Bench) -> None:
        await bench.prepare()
        bench.doors.open_for.clear()
        bench.start()
        records = upkeep.begin_boot(bench.checkpoint, "boot-2")
        await bench.preparation.restore(records)
        assert records.held == ()
        assert upkeep.remove_orphans(bench.cdi, bench.checkpoint) == ("u",)
        assert bench.traces() == (False, False, False)
        assert await bench.prepare()

    async def test_after_a_reboot_a_claim_gets_the_gpu_that_the_scheduler_meant_under_its_new_minor(
        self, bench: Bench
    ) -> None:
        upkeep.remember_gpus(bench.checkpoint, bench.view.gpus)
        upkeep.begin_boot(bench.checkpoint, "boot-2")
        swapped = [gpu(0, uuid="GPU-1"), gpu(1, uuid="GPU-0")]
        bench.view = replace(bench.view, gpus=upkeep.remember_gpus(bench.checkpoint, swapped).gpus)
        await bench.prepare("u", "gpu-0-rl-a")
        assert bench.parts.claims["u"].device_ids == ("GPU-0",)
        nodes = json.loads(bench.cdi.path("u").read_text())["devices"][0]["containerEdits"]["deviceNodes"]
        assert nodes[0]["path"] == "/dev/nvidia1"

    async def test_a_gpu_taken_out_before_a_reboot_is_forgotten_and_one_lost_in_this_boot_is_not(
        self, bench: Bench
    ) -> None:
        upkeep.remember_gpus(bench.checkpoint, bench.view.gpus)
        lost = upkeep.remember_gpus(bench.checkpoint, bench.view.gpus[:1])
        assert [bool(each.fault) for each in lost.gpus] == [False, True]
        upkeep.begin_boot(bench.checkpoint, "boot-2")
        assert len(upkeep.remember_gpus(bench.checkpoint, bench.view.gpus[:1]).gpus) == 1

    async def test_an_unknown_boot_voids_nothing(self, bench: Bench) -> None:
        await bench.prepare()
        assert len(upkeep.begin_boot(bench.checkpoint, "").held) == 1

    async def test_specs_of_nobody_are_removed_but_not_while_the_records_are_incomplete(self, bench: Bench) -> None:
        bench.cdi.write("stray", {})
        bench.checkpoint.update(lambda records: replace(records, incomplete=True))
        assert upkeep.remove_orphans(bench.cdi, bench.checkpoint) == ()
        bench.checkpoint.update(lambda records: replace(records, incomplete=False))
        assert upkeep.remove_orphans(bench.cdi, bench.checkpoint) == ("stray",)

    async def test_one_claim_that_cannot_be_put_in_place_does_not_keep_the_others(self, bench: Bench) -> None:
        await bench.prepare("u", "gpu-0-rl-a")
        await bench.prepare("v", "gpu-1-rl-a")
        (bench.folder / "dev" / "nvidia0").unlink()
        bench.cdi.remove("v")
        bench.start()
        await bench.preparation.restore(bench.checkpoint.read())
        assert bench.traces("v") == (True, True, True)
        assert bench.traces("u")[:2] == (True, True)
