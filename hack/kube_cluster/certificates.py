"""Certificates of the cluster's components, one authority for all, made with openssl."""

import base64
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube_cluster.machine import run

_DAYS = "3650"
# The identifiers are what strict checks want, as Python's from 3.13 on.
_EXTENSIONS = """basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


@dataclass(frozen=True)
class Subject:
    """Whom a certificate is for. In Kubernetes ``user`` and ``group`` are what the API server takes from it."""

    user: str
    group: str = ""
    names: tuple[str, ...] = ()  # as openssl has them: DNS:localhost, IP:127.0.0.1

    @property
    def line(self) -> str:
        return (f"/O={self.group}" if self.group else "") + f"/CN={self.user}"


class Authority:
    """A certificate authority and what it has signed, in one folder: ``<name>.crt`` and ``<name>.key``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def create(self) -> None:
        """A new authority, and the key pair that signs service account tokens."""
        self.folder.mkdir(mode=0o700)
        self._new_key("ca")
        self._openssl(
            f"req -x509 -new -key ca.key -subj /CN=timeslice-cluster -days {_DAYS} -out ca.crt "
            "-addext keyUsage=critical,keyCertSign,cRLSign"
        )
        self._new_key("service-accounts")
        self._openssl("pkey -in service-accounts.key -pubout -out service-accounts.pub")

    def issue(self, name: str, subject: Subject) -> None:
        """A key and a certificate, for servers and clients alike."""
        self._new_key(name)
        extensions = _EXTENSIONS
        if subject.names:
            extensions += f"subjectAltName={','.join(subject.names)}\n"
        (self.folder / f"{name}.ext").write_text(extensions)
        serial = secrets.randbits(63) + 1
        self._openssl(f"req -new -key {name}.key -subj {subject.line} -out {name}.csr")
        self._openssl(
            f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -set_serial {serial} -days {_DAYS} "
            f"-extfile {name}.ext -out {name}.crt"
        )

    def kubeconfig(self, name: str, server: str) -> dict[str, Any]:
        """A client configuration with that certificate, which needs no other file."""

        def encoded(file: str) -> str:
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        user = {"client-certificate-data": encoded(f"{name}.crt"), "client-key-data": encoded(f"{name}.key")}
        cluster = {"server": server, "certificate-authority-data": encoded("ca.crt")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "timeslice", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "timeslice", "context": {"cluster": "timeslice", "user": name}}],
            "current-context": "timeslice",
        }

    def _new_key(self, name: str) -> None:
        self._openssl(f"genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {name}.key")

    def _openssl(self, line: str) -> None:
        run(["openssl", *line.split()], folder=self.folder)
