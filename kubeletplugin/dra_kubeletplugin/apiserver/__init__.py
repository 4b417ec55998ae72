"""The way to the Kubernetes API server: requests, watches, leader election.

Stands alone: whoever needs an API server but no kubelet plugin can use it without gRPC.
"""

from dra_kubeletplugin.apiserver.api_server import ApiServer
from dra_kubeletplugin.apiserver.backoff import Backoff
from dra_kubeletplugin.apiserver.connection import NoClusterError
from dra_kubeletplugin.apiserver.election import Election, Leadership, NotLeadingError
from dra_kubeletplugin.apiserver.errors import (
    AlreadyExistsError,
    ApiServerError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
)
from dra_kubeletplugin.apiserver.reflector import Change, Reflector
from dra_kubeletplugin.apiserver.resource import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SLICES,
    Object,
    Objects,
    Resource,
)

__all__ = [
    "CLAIMS",
    "CLAIM_TEMPLATES",
    "DEVICE_CLASSES",
    "EVENTS",
    "LEASES",
    "NODES",
    "PODS",
    "SLICES",
    "AlreadyExistsError",
    "ApiServer",
    "ApiServerError",
    "Backoff",
    "Change",
    "ConflictError",
    "Election",
    "ExpiredError",
    "ForbiddenError",
    "InvalidError",
    "Leadership",
    "NoClusterError",
    "NotFoundError",
    "NotLeadingError",
    "Object",
    "Objects",
    "Reflector",
    "Resource",
    "ThrottledError",
    "UnauthorizedError",
    "UnavailableError",
]
