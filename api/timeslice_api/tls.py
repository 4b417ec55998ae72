"""How two sides of Timeslice speak over a network: who uses TLS, and with which files.

The rule, for whoever dials and whoever listens: a unix socket is plain; `host:port` is TLS, unless it is of this
machine alone (127.0.0.0/8, ::1, localhost) and no certificate files were named. Nothing listens plain where others can
reach it.

Files are PEM, may be replaced at any time (by cert-manager, by the kubelet), and are read again without a restart: by a
server at the next handshake, by a client when it next asks. Files that do not fit together leave the former in force.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar, cast

import grpc

from timeslice_api import names
from timeslice_api.bounded_files import CERTIFICATES, content_of
from timeslice_api.errors import ConfigError

log = logging.getLogger("timeslice")

T = TypeVar("T")
Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]

_DNS: Final = re.compile(r"^dns:(//[^/]*/)?")


@dataclass(frozen=True)
class TlsFiles:
    """Paths of one side's PEM files; empty ones are not there.

    Attributes:
        ca: authorities that the other side's certificate must be of. Without, a client trusts those that gRPC does
            (public ones), and a server asks clients for no certificate.
        cert: the own certificate, with the chain to its authority.
        key: the private key of that, without a passphrase.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> TlsFiles:
        """A client's or a node's files, as the environment names them."""
        return cls(*(env.get(name, "") for name in (names.ENV_TLS_CA, names.ENV_TLS_CERT, names.ENV_TLS_KEY)))

    def __bool__(self) -> bool:
        return bool(self.ca or self.cert or self.key)

    def check(self) -> None:
        """Looks at the files. Raises ConfigError when one cannot be read, or is not what it should be."""
        _read(self)

    def stamp(self) -> Stamp:
        """Changes when a file does."""
        return tuple(_stamp(path) for path in (self.ca, self.cert, self.key) if path)


@dataclass(frozen=True)
class _Pems:
    """What the files hold; `context` is for servers of Python's own, which ask nobody for a certificate."""

    context: ssl.SSLContext
    ca: bytes
    cert: bytes
    key: bytes


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address, `host:port` or another form of `timeslice_api.addresses`."""
    if "," in address:
        return all(is_loopback(each) for each in address.split(","))
    host = _DNS.sub("", address.strip()).rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def uses_tls(address: str, files: TlsFiles) -> bool:
    """Whether an address is spoken to by TLS: the rule above."""
    return not address.startswith("unix:") and (bool(files) or not is_loopback(address))


def channel_credentials(address: str, files: TlsFiles) -> grpc.ChannelCredentials | None:
    """What a channel to an address needs; None: it is plain.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    if not uses_tls(address, files):
        return None
    pems = _read(files)
    return grpc.ssl_channel_credentials(pems.ca or None, pems.key or None, pems.cert or None)


def listens_by_tls(address: str, files: TlsFiles) -> bool:
    """Whether a server at `host:port` with these files uses TLS.

    Raises:
        ConfigError: other machines would reach it without.
    """
    if not files and not is_loopback(address):
        raise ConfigError(
            f"{address} can be reached from other machines, so it needs TLS",
            hint="give --tls-cert and --tls-key (docs/security.md makes them), or listen on this machine alone",
        )
    return bool(files)


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """What a port of gRPC needs; with `ca` it admits only clients that have a certificate of that authority.

    Raises:
        ConfigError: there is no certificate, a file cannot be read, or is not what it should be.
    """
    certificate = _Renewed(files, _configuration)
    newer = cast(Callable[[], grpc.ServerCertificateConfiguration], certificate.newer)  # the types know no None
    return grpc.dynamic_ssl_server_credentials(certificate.current, newer, require_client_authentication=bool(files.ca))


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """What a port of asyncio needs. It asks no client for a certificate.

    Raises:
        ConfigError: as `server_credentials`.
    """
    certificate = _Renewed(files, lambda files: _read(files).context)

    def choose(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        certificate.newer()
        connection.context = certificate.current

    context = certificate.current
    context.sni_callback = choose  # which OpenSSL calls in each handshake, with a name or without
    return context


class _Renewed(Generic[T]):
    """What a server makes of its files, looked at before each handshake; gRPC asks from threads of its own."""

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], T]) -> None:
        if not (files.cert and files.key):
            raise ConfigError("a server needs a certificate and its key", hint="give both, --tls-cert and --tls-key")
        self._files, self._make = files, make
        self._lock = threading.Lock()
        self._stamp = files.stamp()  # before they are read: what is replaced meanwhile is read again
        self.current = make(files)

    def newer(self) -> T | None:
        """What has changed since; None: nothing, or nothing that can be used."""
        with self._lock:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
        try:
            self.current = made = self._make(self._files)
        except ConfigError as error:
            log.error("%s; the former certificate stays in force", error)
            return None
        log.info("certificate %s was read again", self._files.cert)
        return made


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    pems = _read(files)
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.cert)], root_certificates=pems.ca or None)


def _read(files: TlsFiles) -> _Pems:
    """The files, which fit together. OpenSSL looks at them first: what gRPC says of a bad one is hard to understand."""
    if bool(files.cert) != bool(files.key):
        raise ConfigError("of a certificate and its key only one was given", hint="give both files, or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        ca, cert, key = (
            content_of(Path(path), CERTIFICATES) if path else b"" for path in (files.ca, files.cert, files.key)
        )
        if files.ca:
            context.load_verify_locations(files.ca)
        if files.cert:
            context.load_cert_chain(files.cert, files.key, password=lambda: "")  # else it would ask a terminal
    except OSError as error:
        raise ConfigError(f"cannot use {_which(files)}: {_reason(error)}") from error
    except ValueError as error:
        raise ConfigError(f"of the files for TLS, {error}") from error
    return _Pems(context, ca, cert, key)


def _which(files: TlsFiles) -> str:
    missing = [path for path in (files.ca, files.cert, files.key) if path and not os.access(path, os.R_OK)]
    if missing:
        return missing[0]
    pair = f"certificate {files.cert} with key {files.key}" if files.cert else ""
    return " and ".join(part for part in (f"authorities {files.ca}" if files.ca else "", pair) if part)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not in PEM").replace("_", " ").lower()
    return error.strerror or str(error)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
