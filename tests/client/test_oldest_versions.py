"""RL images pin old protobuf and grpcio: the client has to work with the oldest that pyproject.toml allows."""

from __future__ import annotations

import os
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest
from fake_orchestrator import FakeOrchestrator
from timeslice_api.errors import GroupNotFound

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]

PHASES = """
import asyncio, os
import google.protobuf, grpc
from timeslice import *

client = OrchestratorClient()
with client.on_accelerators() as lease, client.on_accelerators():
    assert lease.token == 1 and lease.held
try:
    client.acquire("refused")
except GroupNotFound as error:
    assert error.hint

@client.on_accelerators
async def phase():
    await asyncio.sleep(0.6)  # long enough for a renewal
asyncio.run(phase())

async def cancelled():
    async with AsyncOrchestratorClient() as twin:
        await twin.acquire()
asyncio.run(cancelled())

if (child := os.fork()) == 0:
    try:
        client.acquire()
    except ForkedClient:
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
client.acquire()  # given back at the end of the process
print(google.protobuf.__version__, grpc.__version__)
"""


def oldest() -> list[str]:
    """The lower ends of the ranges, as exact requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [requirement.replace(">=", "==") for requirement in project["dependencies"]]


def test_phases_run_with_the_oldest_protobuf_and_grpcio(fake: FakeOrchestrator, tmp_path: Path) -> None:
    venv.create(tmp_path / "old", with_pip=True)
    old = tmp_path / "old" / "bin" / "python"
    install = [str(old), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"]
    subprocess.run([*install, *oldest()], check=True, timeout=400)
    fake.refused["refused"] = GroupNotFound("no group 'refused'")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "api"), str(ROOT / "client")]),
        "PYTHONWARNINGS": "error",
        "TIMESLICE_ORCHESTRATOR": fake.address,
        "TIMESLICE_JOB_ID": "job-a",
        "TIMESLICE_GROUP_ID": "g",
    }
    done = subprocess.run([str(old), "-c", PHASES], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    versions = dict(zip(("protobuf", "grpcio"), done.stdout.split(), strict=True))
    for requirement in oldest():
        name, _, version = requirement.partition("==")
        assert versions[name].startswith(version)
    assert fake.holders == fake.waiters == []
    assert fake.methods("KeepAlive")
