"""Streams of changes from the orchestrator, one for each group, that outlive its restarts."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable
from types import TracebackType

import grpc
from timeslice_api.errors import TimesliceError
from timeslice_api.status import from_rpc
from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc

RETRY_S = 1.0


class Watch:
    """Changes of some groups, in the order in which they come."""

    def __init__(self, stub: orchestrator_pb2_grpc.OrchestratorStub, group_ids: Iterable[str]) -> None:
        self._stub = stub
        self._news: queue.Queue[orchestrator_pb2.Group | TimesliceError] = queue.Queue()
        self._ended = threading.Event()
        self._calls: dict[str, grpc.Call] = {}
        for group_id in group_ids:
            threading.Thread(target=self._follow, args=(group_id,), name=f"watch-{group_id}", daemon=True).start()

    def next(self, timeout: float | None) -> orchestrator_pb2.Group | None:
        """The next change; None when there is none for `timeout` seconds.

        Raises:
            TimesliceError: the orchestrator refuses, such as for a group that is gone.
        """
        try:
            change = self._news.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(change, TimesliceError):
            raise change
        return change

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for call in list(self._calls.values()):
            call.cancel()

    def _follow(self, group_id: str) -> None:
        told = False
        while not self._ended.is_set():
            try:
                stream = self._stub.WatchGroup(orchestrator_pb2.WatchGroupRequest(group_id=group_id))
                self._calls[group_id] = stream
                for group in stream:
                    told = False
                    self._news.put(group)
            except grpc.RpcError as rpc_error:
                error = from_rpc(rpc_error)
                if not error.retryable:
                    self._news.put(error)
                    return
                if not told and not self._ended.is_set():
                    told = True
                    print(f"timeslice: {error.message}; trying again", file=sys.stderr)
            self._ended.wait(RETRY_S)
