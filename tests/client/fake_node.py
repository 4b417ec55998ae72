"""A node's socket that only takes registrations, and fails when told to."""
# ruff: noqa: N802 - the names are those of the protocol

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from timeslice_api import status
from timeslice_api.errors import TimesliceError
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_api.v1alpha1 import snapshot_agent_pb2_grpc


class FakeNode(snapshot_agent_pb2_grpc.SnapshotAgentServicer):
    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.registered: list[tuple[str, str, int]] = []
        self.faults: deque[TimesliceError | grpc.StatusCode] = deque()
        self._server = grpc.server(ThreadPoolExecutor(2))
        snapshot_agent_pb2_grpc.add_SnapshotAgentServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{socket}")

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait(5)

    def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        if self.faults:
            fault = self.faults.popleft()
            if isinstance(fault, TimesliceError):
                context.abort_with_status(_Status(*status.of(fault)))
            context.abort(fault, "as the script says")
        self.registered.append((request.job_id, request.group_id, request.pid))
        return pb.RegisterResponse(process=f"node-1/{request.pid}/1")


class _Status(grpc.Status):
    def __init__(self, code: grpc.StatusCode, details: str, trailer: Any) -> None:
        self.code, self.details, self.trailing_metadata = code, details, trailer
