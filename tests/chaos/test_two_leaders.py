"""An orchestrator that was stopped does not know that another one has taken over."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from timeslice.channel import open_channel
from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc
from timeslice_chaos.checker import check
from timeslice_chaos.log import read
from timeslice_chaos.proxy import Mode
from timeslice_chaos.world import World, living

pytestmark = [pytest.mark.processes, pytest.mark.timeout(200)]


def answer_of(world: World, socket: Path) -> orchestrator_pb2.AcquireResponse:
    """What that orchestrator says to a job that nobody has heard of yet."""
    request = orchestrator_pb2.AcquireRequest(request_id="r", job_id="x", group_id=world.group_id, wait_s=1)
    with open_channel(f"unix://{socket}") as channel:
        return orchestrator_pb2_grpc.OrchestratorStub(channel).Acquire(request, timeout=10)


def test_a_stale_leader_grants_nothing_and_everybody_is_served_when_it_has_ended() -> None:
    with tempfile.TemporaryDirectory(prefix="ts-") as name, living(Path(name)) as world:
        assert world.served(0.0, within_s=60)
        stale_socket = world.socket
        stale = world.replace_orchestrator()
        assert world.served(time.monotonic(), within_s=30)
        stale.go_on()
        assert answer_of(world, stale_socket).WhichOneof("outcome") == "waiting"
        stale.kill(world.log)
        for proxy in world.proxies:
            proxy.set(Mode.CUT)
            proxy.set(Mode.OPEN)
        assert world.served(time.monotonic(), within_s=30)
        world.end_jobs()
        assert check(read(world.logs)) == []
