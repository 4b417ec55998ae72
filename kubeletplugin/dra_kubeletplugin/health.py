"""How a driver tells kubelet, and by it the pods' status, how its devices are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from time import time


class Health(Enum):
    """Of a device."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True)
class DeviceHealth:
    """The health of a device when it was last looked at.

    Attributes:
        message: for people, in the pod's status; at most 1,024 characters reach it.
        checked_at: Unix time in seconds.
        timeout_s: without a fresh report for so long the device counts as unknown; 0: kubelet's default, 30 s.
    """

    pool: str
    device: str
    health: Health
    message: str = ""
    checked_at: float = field(default_factory=time)
    timeout_s: int = 0
