"""A DRA kubelet plugin in Python, for any driver: write three methods, get the rest."""

from dra_kubeletplugin.claims import AllocatedDevice, Claim, ClaimRef, OpaqueConfig, PodRef
from dra_kubeletplugin.driver import Driver, PreparedDevice, PrepareError
from dra_kubeletplugin.faults import (
    DroppedFieldsError,
    InvalidPoolError,
    NotWorkingError,
    PublishError,
    RegistrationError,
)
from dra_kubeletplugin.health import DeviceHealth, Health
from dra_kubeletplugin.plugin import Plugin
from dra_kubeletplugin.pools import Pool, Slice
from dra_kubeletplugin.requests import CallReport, request_id
from dra_kubeletplugin.sockets import SocketInUseError

__all__ = [
    "AllocatedDevice",
    "CallReport",
    "Claim",
    "ClaimRef",
    "DeviceHealth",
    "Driver",
    "DroppedFieldsError",
    "Health",
    "InvalidPoolError",
    "NotWorkingError",
    "OpaqueConfig",
    "Plugin",
    "PodRef",
    "Pool",
    "PrepareError",
    "PreparedDevice",
    "PublishError",
    "RegistrationError",
    "Slice",
    "SocketInUseError",
    "request_id",
]
