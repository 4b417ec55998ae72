"""A leader that was stopped, and has not noticed that another one has begun, still gives orders to a node."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path

import pytest
from cluster import GROUP, started_cluster
from late_link import LateLink
from patience import eventually
from timeslice.channel import open_channel
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2_grpc
from timeslice_chaos.proxy import Proxy
from two_jobs import go_on, parked_and_holding

pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]


def test_a_hand_off_of_a_stale_leader_is_refused_by_the_node_and_nothing_moves() -> None:
    with tempfile.TemporaryDirectory(prefix="ts-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        socket = folder / "o" / "orchestrator.sock"
        link = LateLink(folder / "late.sock", f"unix://{socket}")
        stack.callback(link.close)
        door = Proxy(folder / "jobs.sock", socket)
        stack.callback(door.close)
        cluster = stack.enter_context(started_cluster(folder, "node-0", address=link.address))
        cluster.address = f"unix://{door.path}"
        [machine] = cluster.machines
        parked, holder = parked_and_holding(cluster)

        stale = cluster.orchestrator
        stack.callback(stale.stop, signal.SIGKILL)
        stale.process.send_signal(signal.SIGSTOP)
        newer = cluster.replace_orchestrator(folder / "o2")
        door.lead_to(newer)
        link.lead_to(f"unix://{newer}")
        eventually(lambda: cluster.group()["devices"][0]["connected"])
        stale.process.send_signal(signal.SIGCONT)

        with open_channel(f"unix://{socket}") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            stub.ForceRelease(pb.ForceReleaseRequest(group_id=GROUP, job_id="job-b"), timeout=5)
            request = pb.AcquireRequest(request_id="r", job_id="job-a", group_id=GROUP, wait_s=2)
            assert stub.Acquire(request, timeout=10).WhichOneof("outcome") == "waiting"
        assert link.refused == ["StaleEpoch"]
        assert link.endings == ["node node-0 has seen a newer epoch than 1; dial in again"]
        assert [machine.gpu_state(job) for job in (parked, holder)] == ["checkpointed", "running"]

        holder.does("check")
        cluster.waits(parked)
        holder.does("yield")
        go_on(cluster, parked, holder)
