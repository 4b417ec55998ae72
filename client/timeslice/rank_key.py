"""What keeps strangers out of the connections between ranks: a file that all ranks of a job have, and nobody else.

It holds a private key and a certificate of it, in PEM. Both sides of a connection show that very certificate by TLS,
and so prove to each other that they have the file. A unix socket needs none: it opens to its owner alone.
"""

from __future__ import annotations

import logging
import socket
import ssl
from pathlib import Path

from timeslice_api.bounded_files import CERTIFICATES, content_of
from timeslice_api.errors import ConfigError
from timeslice_api.tls import is_loopback

log = logging.getLogger("timeslice")

ENV_RANKS_KEY = "TIMESLICE_RANKS_KEY"
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class StrangerError(Exception):
    """The other side does not have the file."""


class RankKey:
    """The file, read once: the connections of a job are made once.

    Raises:
        ConfigError: it cannot be read, or does not hold a key and its certificate.
    """

    def __init__(self, path: str) -> None:
        try:
            text = content_of(Path(path), CERTIFICATES).decode("ascii")
            first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
            self._certificate = ssl.PEM_cert_to_DER_cert(first)
            self._contexts = {side: _context(path, side) for side in (False, True)}
        except (OSError, ValueError) as error:
            hint = "docs/security.md makes one"
            raise ConfigError(f"{path} does not hold a key of ranks and its certificate: {error}", hint=hint) from error

    def wrapped(self, connection: socket.socket, *, accepted: bool) -> ssl.SSLSocket:
        """A connection that is to be encrypted; the caller has it shake hands."""
        context = self._contexts[accepted]
        return context.wrap_socket(connection, server_side=accepted, do_handshake_on_connect=False)

    def check(self, connection: ssl.SSLSocket) -> None:
        """Raises StrangerError when another certificate than ours was shown, such as one that ours has signed."""
        if connection.getpeercert(binary_form=True) != self._certificate:
            raise StrangerError("it has shown another certificate")


def key_for(address: str, path: str) -> RankKey | None:
    """What the connections to an address need; None: they are plain.

    Raises:
        ConfigError: there is no key, and other machines reach the address; or see `RankKey`.
    """
    if "/" in address:
        return None
    if path:
        return RankKey(path)
    if not is_loopback(address):
        hint = f"set {ENV_RANKS_KEY} to a file that all ranks of the job have; docs/security.md makes one"
        raise ConfigError(f"{address} can be reached from other machines, so the ranks need a key", hint=hint)
    log.warning("WITHOUT TLS: whoever is on this machine may speak for a rank at %s", address)
    return None


def _context(path: str, accepted: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if accepted else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is known
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whoever has signed it
    context.load_cert_chain(path, password=lambda: "")  # else it would ask a terminal
    context.load_verify_locations(path)
    if accepted:
        context.num_tickets = 0  # a connection is made once
    return context
