"""Addresses and gRPC channels."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import grpc
from timeslice_api.addresses import authority_of, checked_address
from timeslice_api.errors import ConfigError
from timeslice_api.limits import CHANNEL_LIMITS
from timeslice_api.tls import Stamp, TlsFiles, channel_credentials

log = logging.getLogger("timeslice")

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
    *CHANNEL_LIMITS,
    ("grpc.enable_http_proxy", 0),  # a proxy of the site is for the world outside, not for the orchestrator
]

# To the node, which a process tells of itself once: the connection is closed when it was idle for a second, and needs
# no pings, since the end of a socket on the same machine is always told.
NODE_OPTIONS: list[tuple[str, int | str]] = [
    *(option for option in OPTIONS if not option[0].startswith("grpc.keepalive")),
    ("grpc.client_idle_timeout_ms", 1_000),
]


class Line:
    """The way to one address: a channel that is opened at its first use, and anew when certificate files have changed.

    A channel that was replaced stays open until `close`, since calls may be under way on it.

    Args:
        address, tls, options: see `open_channel`.
    """

    def __init__(
        self, address: str, tls: TlsFiles | None = None, *, options: Iterable[tuple[str, int | str]] = OPTIONS
    ) -> None:
        self._address, self._tls, self._options = address, tls or TlsFiles(), options
        self._lock = threading.Lock()
        self._channels: list[grpc.Channel] = []
        self._stamp: Stamp = ()

    def channel(self) -> grpc.Channel:
        """The channel for the next call.

        Raises:
            ConfigError: the address is none, or a certificate cannot be used and there is no former one.
        """
        stamp = self._tls.stamp()
        with self._lock:
            if not self._channels or stamp != self._stamp:
                self._stamp = stamp
                self._open()
            return self._channels[-1]

    def close(self) -> None:
        """Ends the calls that are under way."""
        for channel in self._channels:
            channel.close()

    def _open(self) -> None:
        try:
            self._channels.append(open_channel(self._address, self._tls, options=self._options))
        except ConfigError as error:
            if not self._channels:
                raise
            log.warning("%s; the former certificates stay in force", error)


def open_channel(
    address: str, tls: TlsFiles | None = None, *, options: Iterable[tuple[str, int | str]] = OPTIONS
) -> grpc.Channel:
    """A channel to an address as `timeslice_api.addresses` has it; it connects when it is first used.

    Args:
        address: of the orchestrator or of the node; timeslice_api.tls says which is spoken to by TLS.
        tls: the client's files.
        options: of the channel.

    Raises:
        ConfigError: the address is none, or a certificate cannot be used.
        InvalidRequest: the socket's path is too long.
    """
    options, target = list(options), checked_address(address)
    if authority := authority_of(address):
        options.append(("grpc.default_authority", authority))
    credentials = channel_credentials(address, tls or TlsFiles())
    if credentials is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, credentials, options=options)


def unix_address(path: str) -> str:
    """The address of a unix socket."""
    return f"unix://{path}" if path.startswith("/") else f"unix:{path}"
