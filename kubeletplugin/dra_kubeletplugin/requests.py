"""Which call of kubelet something is done for."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

request_id: ContextVar[str] = ContextVar("dra_kubeletplugin_request_id", default="")
"""Of the call that is being served, unique in this process; for log records. Empty outside of calls."""


@dataclass(frozen=True)
class CallReport:
    """A call of kubelet that has been answered, for metrics.

    Attributes:
        method: `NodePrepareResources` or `NodeUnprepareResources`.
        seconds: that it took, waiting included.
        claims: how many it was about.
        failed: how many of them failed.
    """

    method: str
    seconds: float
    claims: int
    failed: int
