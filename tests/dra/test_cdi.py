from __future__ import annotations

import json
from pathlib import Path

import pytest
from dra_samples import record
from timeslice_driver.dra.cdi import CdiFolder, Wiring, assignment_in, device_ids, device_name, spec, vendor_ids_in
from timeslice_driver.dra.device_files import device_files, missing
from timeslice_driver.dra.records import ClaimRecord
from timeslice_driver.dra.vendor_cdi import VendorCdi

WIRING = Wiring("orchestrator.timeslice:7070", Path("/run/timeslice/claims"))
UID = "6f0c0c9e-0000-4000-8000-000000000001"


def claim() -> ClaimRecord:
    return record(UID, "GPU-0", "GPU-1", job="trainer").with_vendor_ids({"GPU-1": "nvidia.com/gpu=GPU-1"})


def test_a_spec_gives_containers_their_devices_names_and_the_way_to_the_node() -> None:
    made = spec(claim(), WIRING, {"GPU-0": [Path("/host/dev/nvidia0"), Path("/host/dev/nvidiactl")]})
    assert made["cdiVersion"] == "0.5.0"
    assert made["kind"] == "timeslice.dev/claim"
    assert made["containerEdits"]["env"] == [
        "TIMESLICE_ORCHESTRATOR=orchestrator.timeslice:7070",
        "TIMESLICE_JOB_ID=trainer",
        "TIMESLICE_GROUP_ID=rl-a",
        "TIMESLICE_NODE_SOCKET=/run/timeslice/agent.sock",
        "TIMESLICE_TOKEN_FILE=/run/timeslice/token",
        "NVIDIA_VISIBLE_DEVICES=void",
    ]
    (mount,) = made["containerEdits"]["mounts"]
    assert (mount["hostPath"], mount["containerPath"]) == (f"/run/timeslice/claims/{UID}", "/run/timeslice")
    first, second = made["devices"]
    assert first["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0"},
        {"path": "/dev/nvidiactl", "hostPath": "/host/dev/nvidiactl"},
    ]
    assert second["containerEdits"] == {"env": ["TIMESLICE_GPU_1=GPU-1"]}, "a device without edits spoils the file"


def test_without_an_orchestrator_its_address_is_left_out() -> None:
    made = spec(claim(), Wiring("", Path("/s")), {})
    assert not any(each.startswith("TIMESLICE_ORCHESTRATOR") for each in made["containerEdits"]["env"])


def test_the_authorities_of_the_orchestrator_are_named_where_there_are_some() -> None:
    made = spec(claim(), Wiring("orchestrator:7070", Path("/s"), with_ca=True), {})
    assert "TIMESLICE_TLS_CA=/run/timeslice/ca.crt" in made["containerEdits"]["env"]


def test_cdi_names_are_of_one_claim_and_share_alone() -> None:
    one, other = claim(), record("another", "GPU-0", "GPU-1")
    names = [device_name(each.uid, device) for each in (one, other) for device in each.devices]
    assert len(set(names)) == 4
    assert device_ids(one, one.devices[0]) == (f"timeslice.dev/claim={names[0]}",)
    assert device_ids(one, one.devices[1]) == ("nvidia.com/gpu=GPU-1", f"timeslice.dev/claim={names[1]}")


def test_a_spec_tells_what_it_was_made_of() -> None:
    made = spec(claim(), WIRING, {"GPU-0": [Path("/dev/nvidia0")]})
    assert assignment_in(made) == ("trainer", "rl-a")
    assert vendor_ids_in(made, claim()) == {"GPU-1": "nvidia.com/gpu=GPU-1"}
    with pytest.raises(LookupError):
        assignment_in({})


class TestFolder:
    def test_a_spec_is_written_once_whole_and_readable_for_the_runtime(self, tmp_path: Path) -> None:
        folder = CdiFolder(tmp_path / "cdi")
        assert folder.write(UID, {"a": 1})
        assert not folder.write(UID, {"a": 1})
        assert folder.write(UID, {"a": 2})
        (path,) = (tmp_path / "cdi").iterdir()
        assert path.name == f"timeslice.dev-claim_{UID}.json"
        assert json.loads(path.read_text()) == {"a": 2}
        assert path.stat().st_mode & 0o777 == 0o644
        assert folder.uids() == {UID}

    def test_removing_is_safe_to_repeat(self, tmp_path: Path) -> None:
        folder = CdiFolder(tmp_path / "cdi")
        folder.remove(UID)
        folder.write(UID, {})
        folder.remove(UID)
        folder.remove(UID)
        assert folder.uids() == frozenset()
        assert folder.read(UID) == {}

    def test_only_our_specs_are_told(self, tmp_path: Path) -> None:
        (tmp_path / "nvidia.yaml").touch()
        (tmp_path / "k8s.gpu.nvidia.com-claim_u.json").touch()
        assert CdiFolder(tmp_path).uids() == frozenset()


class TestVendor:
    YAML = "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: GPU-0\n- name: all\n"

    def test_nvidia_s_devices_are_found_in_yaml_and_json_in_both_folders(self, tmp_path: Path) -> None:
        etc, var = tmp_path / "etc", tmp_path / "var"
        etc.mkdir()
        var.mkdir()
        (etc / "nvidia.yaml").write_text(self.YAML)
        (var / "more.json").write_text(json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1"}]}))
        (var / "other.json").write_text(json.dumps({"kind": "example.com/gpu", "devices": [{"name": "GPU-9"}]}))
        ids = VendorCdi([etc, var]).ids()
        assert ids == {name: f"nvidia.com/gpu={name}" for name in ("GPU-0", "all", "GPU-1")}

    def test_a_changed_file_is_read_again_and_a_removed_one_forgotten(self, tmp_path: Path) -> None:
        vendor, file = VendorCdi([tmp_path, tmp_path / "none"]), tmp_path / "nvidia.yaml"
        assert vendor.ids() == {}
        file.write_text(self.YAML)
        assert "GPU-0" in vendor.ids()
        file.write_text(self.YAML.replace("GPU-0", "GPU-77"))
        assert "GPU-77" in vendor.ids()
        file.unlink()
        assert vendor.ids() == {}

    def test_a_device_in_two_files_of_one_folder_is_none_as_runtimes_refuse_it(self, tmp_path: Path) -> None:
        for name in ("a.yaml", "b.yaml"):
            (tmp_path / name).write_text(self.YAML)
        assert VendorCdi([tmp_path]).ids() == {}

    @pytest.mark.parametrize("text", ["{", "- a\n- b", "kind: nvidia.com/gpu\ndevices: [3, {}]", "\tx"])
    def test_files_that_are_no_specs_do_no_harm(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "odd.yaml").write_text(text)
        (tmp_path / "odd.json").write_text("{")
        (tmp_path / "nvidia.yaml").write_text(self.YAML)
        assert "GPU-0" in VendorCdi([tmp_path]).ids()


def test_device_files_are_looked_for_before_a_claim_counts_as_prepared(tmp_path: Path) -> None:
    for name in ("nvidia1", "nvidia-uvm"):
        (tmp_path / name).touch()
    files = device_files(tmp_path, 1)
    assert [path.name for path in files] == ["nvidia1", "nvidiactl", "nvidia-uvm"]
    assert missing(files) == (tmp_path / "nvidiactl",)
