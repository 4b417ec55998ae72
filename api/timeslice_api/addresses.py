"""Addresses of an orchestrator or a node, as people write them and as gRPC dials them."""

from __future__ import annotations

import ipaddress
import re

from timeslice_api.errors import ConfigError
from timeslice_api.names import checked_socket_path
from timeslice_api.whole_numbers import PORTS, whole_number

_DNS = re.compile(r"^dns:(//[^/]*/)?")


def checked_address(address: str) -> str:
    """The target that gRPC dials for an address: `unix:///path`; `host:port`; `dns:///host:port`, a name of several, or
    changing, machines (`dns://server/host:port` asks that name server); or `ip:port,ip:port`, several machines of which
    one is dialled at a time, in this order, the next one when a port is closed.

    Raises:
        ConfigError: the address is none.
        InvalidRequest: the socket's path is too long.
    """
    if not address.isprintable():
        raise ConfigError(f"address {address!r} is not text that can be printed", hint="write it in UTF-8")
    if "," in address:
        return _several(address)
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if not path or path.startswith("//"):
            raise ConfigError(f"address {address!r} has no path", hint="write unix:///absolute/path")
        checked_socket_path(path, "address")
        return f"unix:{path}"
    if not is_host_and_port(_DNS.sub("", address)):
        raise ConfigError(f"address {address!r} is not host:port, dns:///host:port or unix:///path")
    return address


def authority_of(address: str) -> str:
    """What the other side is called within the connection; empty where gRPC's own choice is right."""
    if address.startswith("unix:"):
        return "localhost"  # else the path, which strict servers refuse
    return address.partition(",")[0].strip() if "," in address else ""


def _several(address: str) -> str:
    """gRPC has a form for several IP addresses, but none for several names; a name can stand for several itself."""
    entries = [entry.strip() for entry in address.split(",")]
    versions = {_ip_version(entry) for entry in entries}
    if len(versions) != 1 or None in versions:
        hint = "use a name that stands for all: dns:///name:port; on one machine they take turns on one unix socket"
        raise ConfigError(f"address {address!r} is not several ip:port, all IPv4 or all IPv6", hint=hint)
    return f"ipv{versions.pop()}:{','.join(entries)}"


def _ip_version(entry: str) -> int | None:
    host = entry.rpartition(":")[0]
    bare = host.removeprefix("[").removesuffix("]")
    try:
        version = ipaddress.ip_address(bare).version
    except ValueError:
        return None
    return version if is_host_and_port(entry) and (bare != host) is (version == 6) else None


def is_host_and_port(address: str) -> bool:
    """Whether it is `host:port`."""
    host, _, port = address.rpartition(":")
    return bool(host) and "/" not in host and whole_number(port, PORTS) is not None
