"""Addresses and gRPC channels."""

from __future__ import annotations

from collections.abc import Iterable

import grpc
from timeslice_api.addresses import authority_of, checked_address

# Pings keep quiet waits alive through NATs; short reconnect pauses let a client find a restarted orchestrator soon, and
# a name is looked up again as often: that of a service on Kubernetes stands for the pod that leads, and for another one
# after a failover. A successor's address that drops packets is given up after the time of an attempt. No service
# config: the client itself decides what is repeated. https://github.com/grpc/grpc/blob/master/doc/keepalive.md
OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.keepalive_time_ms", 10_000),  # an orchestrator whose machine is gone is left about when it is replaced
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # the time limit of one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),  # its own is 30 s
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy of the site is for the world outside, not for the orchestrator
]

# To the node, which a process tells of itself once: the connection is closed when it was idle for a second, and needs
# no pings, since the end of a socket on the same machine is always told.
NODE_OPTIONS: list[tuple[str, int | str]] = [
    *(option for option in OPTIONS if not option[0].startswith("grpc.keepalive")),
    ("grpc.client_idle_timeout_ms", 1_000),
]


def open_channel(address: str, options: Iterable[tuple[str, int | str]] = OPTIONS) -> grpc.Channel:
    """A channel to an address as `timeslice_api.addresses` has it; it connects when it is first used.

    Raises:
        ConfigError: the address is none.
        InvalidRequest: the socket's path is too long.
    """
    options, target = list(options), checked_address(address)
    if authority := authority_of(address):
        options.append(("grpc.default_authority", authority))
    return grpc.insecure_channel(target, options=options)


def unix_address(path: str) -> str:
    """The address of a unix socket."""
    return f"unix://{path}" if path.startswith("/") else f"unix:{path}"
