"""Who can reach an address. An orchestrator that only its own machine reaches need not ask who calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from timeslice_api.tls import is_loopback

_log = logging.getLogger(__name__)


def is_exposed(address: str) -> bool:
    """Whether other machines can reach what listens there."""
    return not address.startswith("unix:") and not is_loopback(address)


def warn_of_open(addresses: Iterable[str]) -> None:
    """Says loudly what may be called by anybody on this machine. Sockets belong to their owners."""
    if found := [address for address in addresses if not address.startswith("unix:")]:
        _log.warning("everybody on this machine may do everything at %s: nobody is asked for a token", ", ".join(found))
