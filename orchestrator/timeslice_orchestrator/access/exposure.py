"""Whom an orchestrator lets in that asks nobody who they are."""

from __future__ import annotations

from timeslice_api.errors import ConfigError
from timeslice_api.tls import is_loopback


def open_to_this_machine(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses that anybody on this machine can call, of an orchestrator without tokens.

    Raises:
        ConfigError: other machines can reach one of them.
    """
    found = tuple(address for address in addresses if not address.startswith("unix:"))
    for address in found:
        if not is_loopback(address):
            message = f"{address} can be reached from other machines, and nothing says who may call"
            raise ConfigError(
                message, hint="name a --tokens file, which `timeslice token` fills, or listen on a socket"
            )
    return found
