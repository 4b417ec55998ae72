"""Timeslice: independent RL jobs share GPUs by taking turns at phase boundaries.

`OrchestratorClient` holds accelerators around phases of a training loop; `AsyncOrchestratorClient` is its asyncio twin.
"""

from timeslice_api.errors import (
    AcquireTimeout,
    ConfigError,
    ConnectionLost,
    ForkedClient,
    GroupNotFound,
    InvalidRequest,
    JobNotAdmitted,
    JobNotFound,
    JobQuarantined,
    LeaseLost,
    NotHolder,
    OperationFailed,
    QueueFull,
    RequestEnded,
    Stopping,
    StoreFailed,
    TimesliceError,
    Unavailable,
    WouldDeadlock,
)

from timeslice._async.client import AsyncOrchestratorClient
from timeslice._async.lease import AsyncLease
from timeslice._sync.client import OrchestratorClient
from timeslice._sync.lease import Lease
from timeslice.ranks import RankedClient
from timeslice.settings import Mode
from timeslice.signals import install_signal_handlers
from timeslice.waiting import WaitStatus

__all__ = [
    "AcquireTimeout",
    "AsyncLease",
    "AsyncOrchestratorClient",
    "ConfigError",
    "ConnectionLost",
    "ForkedClient",
    "GroupNotFound",
    "InvalidRequest",
    "JobNotAdmitted",
    "JobNotFound",
    "JobQuarantined",
    "Lease",
    "LeaseLost",
    "Mode",
    "NotHolder",
    "OperationFailed",
    "OrchestratorClient",
    "QueueFull",
    "RankedClient",
    "RequestEnded",
    "Stopping",
    "StoreFailed",
    "TimesliceError",
    "Unavailable",
    "WaitStatus",
    "WouldDeadlock",
    "install_signal_handlers",
]
