from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from dra_samples import gpu, record
from timeslice_driver.dra.checkpoint import NAME, Checkpoint, CheckpointError
from timeslice_driver.dra.records import Encoder, Records, decode, encode

FULL = Records("boot-1", "lanes", (gpu(0), gpu(1)), {"u": record("u", "GPU-0", memory=5, pods={"p": "pod"})})


def test_records_come_back_as_they_were() -> None:
    assert decode(encode(FULL)) == FULL


def test_a_newer_version_s_keys_are_kept_at_every_level_that_is_written_back() -> None:
    content = json.loads(encode(FULL))
    content["future"] = {"a": 1}
    content["claims"]["u"]["priority"] = 7
    content["claims"]["u"]["devices"][0]["colour"] = "red"
    content["gpus"][0]["power"] = 700
    read = decode(json.dumps(content).encode())
    assert replace(read, extra={}).gpus == FULL.gpus
    again = json.loads(encode(read))
    assert again["future"] == {"a": 1}
    assert again["claims"]["u"]["priority"] == 7


def test_an_older_version_s_missing_keys_have_defaults() -> None:
    content = json.loads(encode(FULL))
    del content["mode"], content["gpus"], content["claims"]["u"]["pods"]
    del content["claims"]["u"]["devices"][0]["vendor_id"]
    read = decode(json.dumps(content).encode())
    assert read.gpus == ()
    assert read.claims["u"].pods == {}


def test_a_claim_that_cannot_be_read_is_set_aside_and_the_others_stay() -> None:
    content = json.loads(encode(FULL))
    content["claims"]["bad"] = {"state": "completed"}
    read = decode(json.dumps(content).encode())
    assert set(read.claims) == {"u"}
    assert json.loads(encode(read))["unreadableClaims"] == {"bad": {"state": "completed"}}


def test_a_claim_in_a_state_of_a_later_version_is_held_and_prepared_anew() -> None:
    content = json.loads(encode(FULL))
    content["claims"]["u"]["state"] = "suspended"
    read = decode(json.dumps(content).encode())
    assert [claim.uid for claim in read.held] == ["u"]
    assert read.completed == ()


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"claims": 3}', b'{"gpus": [{"number": 1}]}', b"\0\0\0"])
def test_a_file_of_something_else_is_no_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


def test_an_encoder_writes_what_became_of_a_claim_and_forgets_those_that_went() -> None:
    encoder = Encoder()
    other = FULL.with_claim(record("v", "GPU-1"))
    later = other.with_claim(replace(other.claims["u"], state="unprepared"))
    for records in (FULL, other, later, later.without_claims("u"), replace(FULL, claims={}), other):
        assert decode(encoder.encode(records)) == records


class TestCheckpoint:
    def test_what_is_written_is_read_by_the_next_instance(self, tmp_path: Path) -> None:
        Checkpoint(tmp_path / "state").update(lambda _: FULL)
        assert Checkpoint(tmp_path / "state").read() == FULL

    def test_no_file_means_that_what_it_held_is_to_be_found_elsewhere(self, tmp_path: Path) -> None:
        assert Checkpoint(tmp_path).read() == Records(incomplete=True)

    def test_a_spoilt_file_is_kept_aside_and_the_records_are_incomplete_until_they_are_found(
        self, tmp_path: Path
    ) -> None:
        for number in (1, 2):
            (tmp_path / NAME).write_bytes(b"torn")
            assert Checkpoint(tmp_path).read().incomplete
            assert (tmp_path / f"{NAME}.corrupt-{number}").read_bytes() == b"torn"
        checkpoint = Checkpoint(tmp_path)
        checkpoint.update(lambda records: replace(records, boot_id="b"))
        assert Checkpoint(tmp_path).read().incomplete, "a crash between does not make them whole"
        checkpoint.update(lambda records: replace(records, incomplete=False))
        assert not Checkpoint(tmp_path).read().incomplete

    def test_a_file_that_another_process_changed_is_read_anew(self, tmp_path: Path) -> None:
        ours, theirs = Checkpoint(tmp_path), Checkpoint(tmp_path)
        ours.update(lambda _: FULL)
        theirs.update(lambda records: records.with_claim(record("v", "GPU-1")))
        assert set(ours.read().claims) == {"u", "v"}
        (tmp_path / NAME).write_bytes(b"")
        assert ours.read() == Records(incomplete=True)

    def test_a_file_that_nobody_changed_is_not_decoded_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpoint = Checkpoint(tmp_path)
        checkpoint.update(lambda _: FULL)
        monkeypatch.setattr("timeslice_driver.dra.checkpoint.decode", lambda data: pytest.fail("decoded again"))
        before = (tmp_path / NAME).read_bytes()
        checkpoint.update(lambda records: records.with_claim(record("v", "GPU-1")))
        assert set(checkpoint.read().claims) == {"u", "v"}
        (tmp_path / NAME).write_bytes(before)  # what another thread may just have read when this one wrote
        assert set(checkpoint.read().claims) == {"u"}

    def test_two_writers_lose_nothing_of_each_other(self, tmp_path: Path) -> None:
        def write(start: int) -> None:
            checkpoint = Checkpoint(tmp_path)
            for number in range(start, start + 20):
                claim = record(f"u{number}", "GPU-0")
                checkpoint.update(lambda records, claim=claim: records.with_claim(claim), durable=False)  # type: ignore[misc]

        threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(Checkpoint(tmp_path).read().claims) == 40

    def test_a_lock_that_is_held_too_long_is_an_error_that_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("timeslice_driver.dra.checkpoint._LOCK_S", 0.1)
        take = f"f = open({str(tmp_path / 'claims.lock')!r}, 'ab'); fcntl.flock(f, 2); print(flush=True)"
        held = f"import fcntl, sys; {take}; sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout
            holder.stdout.readline()
            with pytest.raises(CheckpointError, match="another process"):
                Checkpoint(tmp_path).update(lambda _: FULL)
            holder.kill()
        Checkpoint(tmp_path).update(lambda _: FULL)

    def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(CheckpointError, match="file"):
            Checkpoint(tmp_path / "file").update(lambda _: FULL)

    def test_a_change_that_fails_leaves_the_old_file_and_no_litter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpoint = Checkpoint(tmp_path)
        checkpoint.update(lambda _: FULL)

        def fail(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(CheckpointError, match="No space left"):
            checkpoint.update(lambda records: replace(records, mode="slots"))
        assert checkpoint.read() == FULL
        assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, "claims.lock"]
