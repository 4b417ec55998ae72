"""Takes a turn as itself, then tries what is not its own: argv[1] is a neighbour's job.

A line for each says `WHAT: OUTCOME`; the outcome is the kind of the error, or `let in`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from timeslice import OrchestratorClient
from timeslice.channel import open_channel, unix_address
from timeslice_api.status import from_rpc
from timeslice_api.tls import TlsFiles
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2_grpc, snapshot_agent_pb2, snapshot_agent_pb2_grpc

neighbour, group = sys.argv[1], os.environ["TIMESLICE_GROUP_ID"]
API_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def said_to(call: Callable[..., Any], request: Any, token: str = "") -> str:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        call(request, timeout=10, metadata=metadata)
    except grpc.RpcError as error:
        return type(from_rpc(error)).__name__
    return "let in"


with OrchestratorClient().acquire(timeout=60):
    print("its own turn: let in", flush=True)

token = Path(os.environ["TIMESLICE_TOKEN_FILE"]).read_text().strip()
with open_channel(os.environ["TIMESLICE_ORCHESTRATOR"], TlsFiles.from_env()) as channel:
    stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
    turn = pb.AcquireRequest(request_id="stranger", job_id=neighbour, group_id=group, wait_s=0)
    print("a neighbour's turn:", said_to(stub.Acquire, turn, token))
    print("a neighbour's place:", said_to(stub.Withdraw, pb.WithdrawRequest(request_id="r", job_id=neighbour), token))
    print("a release:", said_to(stub.ForceRelease, pb.ForceReleaseRequest(group_id=group), token))
    print("no token:", said_to(stub.ListGroups, pb.ListGroupsRequest()))
    head, body, _ = token.split(".")
    print("a forged token:", said_to(stub.ListGroups, pb.ListGroupsRequest(), f"{head}.{body}.forged"))
    if API_TOKEN.exists():
        print("the token for the API server:", said_to(stub.ListGroups, pb.ListGroupsRequest(), API_TOKEN.read_text()))

if os.environ["TIMESLICE_NODE_SOCKET"]:
    with open_channel(unix_address(os.environ["TIMESLICE_NODE_SOCKET"])) as channel:
        agent = snapshot_agent_pb2_grpc.SnapshotAgentStub(channel)
        process = snapshot_agent_pb2.RegisterRequest(job_id=neighbour, group_id=group, pid=1)
        print("a neighbour at the node:", said_to(agent.Register, process))
        whole = snapshot_agent_pb2.SnapshotRequest(job_id=neighbour, group_id=group)
        print("a neighbour's snapshot:", said_to(agent.Snapshot, whole))
