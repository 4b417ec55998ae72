"""Orchestrator and node as programs of their own, groups from a file, and the doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from certificates import Authority
from embedded import GPU_JOB, JOB_BYTES, TIMESLICE, Running, environment, timeslice
from gpu_emulator.emulator import Emulator
from timeslice_orchestrator.access.tokens_file import digest_of

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def test_orchestrator_and_node_run_apart_over_tls_with_groups_from_a_file(short_dir: Path) -> None:
    authority = Authority(short_dir)
    server, own = authority.certificate("localhost"), authority.certificate("node-1")
    groups = short_dir / "groups.yaml"
    groups.write_text("groups:\n  trainer-group:\n    jobs: [job-a]\n    devices:\n      node-1: all\n")
    tokens = {"jobs": {"role": "job"}, "node-1": {"role": "node", "node": "node-1"}}
    for name, may in tokens.items():
        (short_dir / name).write_text(f"token-of-{name}")
        may |= {"name": name, "token_sha256": digest_of(f"token-of-{name}")}
    (short_dir / "tokens.yaml").write_text(json.dumps({"tokens": list(tokens.values())}))
    state = {"TIMESLICE_STATE_DIR": str(short_dir / "s"), "TIMESLICE_TOKEN_FILE": str(short_dir / "jobs")}
    with Emulator(memory=48 << 20) as emulator:
        env = environment({**emulator.variables, **state})
        listen = ("--listen", "0.0.0.0:0", "--groups", str(groups), "--tls-client-ca", authority.file)
        listen += ("--tls-cert", server.cert, "--tls-key", server.key, "--tokens", str(short_dir / "tokens.yaml"))
        orchestrator = Running([str(TIMESLICE), "orchestrator", *listen], env)
        try:
            port = orchestrator.says("export TIMESLICE_ORCHESTRATOR=0.0.0.0:").rpartition(":")[2]
            at = ("--orchestrator", f"localhost:{port}")
            at += ("--tls-ca", authority.file, "--tls-cert", own.cert, "--tls-key", own.key)
            named = ("--node-name", "node-1", "--token-file", str(short_dir / "node-1"))
            node = Running([str(TIMESLICE), "node", *at, *named, "--dev-root", str(emulator.dev_root)], env)
            try:
                node.says("export TIMESLICE_NODE_SOCKET=")
                job = ["--group", "trainer-group", "--", sys.executable, str(GPU_JOB), str(JOB_BYTES), "1", "0"]
                done = timeslice("run", *at, "--job", "job-a", *job, env=env)
                assert (done.returncode, done.stdout) == (0, "begun\nphase 0\n"), done.stderr
                stranger = timeslice("run", *at, "--job", "job-z", "--hold", *job, env=env)
                assert stranger.returncode == 125
                assert "job-z" in stranger.stderr
                unproven = timeslice("status", *at[:4], env=env)
                assert unproven.returncode == 3
                assert "a client's certificate" in unproven.stderr
            finally:
                node.stop()
            assert node.process.returncode == 0
        finally:
            orchestrator.stop()
    assert orchestrator.process.returncode == 0


def test_the_doctor_finds_nothing_that_keeps_an_emulated_gpu_from_being_parked(short_dir: Path) -> None:
    with Emulator() as emulator:
        env = environment({**emulator.variables, "TIMESLICE_STATE_DIR": str(short_dir / "s")})
        done = timeslice("doctor", "--json", "--dev-root", str(emulator.dev_root), env=env)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert checks["nvml"]["verdict"] == checks["checkpoint functions"]["verdict"] == "ok"
    assert checks["node"]["verdict"] == "warn"


def test_the_doctor_of_a_machine_without_a_driver_says_how_to_mend_it(short_dir: Path) -> None:
    env = environment({"TIMESLICE_STATE_DIR": str(short_dir / "s")})
    done = timeslice("doctor", "--libnvml", "/none/libnvidia-ml.so", "--libcuda", "/none/libcuda.so", env=env)
    assert done.returncode == 1
    assert "FAIL  nvml" in done.stdout
    assert "FAIL  checkpoint functions" in done.stdout
    assert "install the NVIDIA driver" in done.stdout
