"""Container images as OCI archives, which containerd, docker and podman load. May leave out what the other side has."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Layer:
    """An uncompressed tar file and its SHA-256 in hexadecimal."""

    path: Path
    digest: str

    @classmethod
    def make(cls, folder: Path, fill: Callable[[tarfile.TarFile], None]) -> "Layer":
        """A new one in the folder, where ``read`` finds it again."""
        path = folder / "layer.tar"
        with tarfile.open(path, "w") as archive:
            fill(archive)
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        (folder / "digest").write_text(digest)
        return cls(path, digest)

    @classmethod
    def read(cls, folder: Path) -> "Layer":
        """One that was made before."""
        return cls(folder / "layer.tar", (folder / "digest").read_text())


@dataclass(frozen=True)
class Image:
    """``reference`` as in docker.io/library/name:tag; the lowest layer first."""

    reference: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    user: str = ""


def write_archive(image: Image, path: Path, *, known: Collection[str] = ()) -> None:
    """An OCI layout in a tar file, without the layers whose digests are ``known`` to the one that loads it."""
    configuration = _encoded(_configuration(image))
    layers = [_descriptor("layer.v1.tar", layer.digest, layer.path.stat().st_size) for layer in image.layers]
    manifest = _encoded(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("config.v1+json", _digest(configuration), len(configuration)),
            "layers": layers,
        }
    )
    names = {"io.containerd.image.name": image.reference, "org.opencontainers.image.ref.name": image.reference}
    entry = {**_descriptor("manifest.v1+json", _digest(manifest), len(manifest)), "annotations": names}
    with tarfile.open(path, "w") as archive:
        add_bytes(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        for content in (configuration, manifest):
            add_bytes(archive, f"blobs/sha256/{_digest(content)}", content)
        for layer in image.layers:
            if layer.digest not in known:
                archive.add(layer.path, f"blobs/sha256/{layer.digest}")
        add_bytes(archive, "index.json", _encoded({"schemaVersion": 2, "manifests": [entry]}))


def _configuration(image: Image) -> dict[str, Any]:
    run = {
        "Entrypoint": list(image.entrypoint),
        "Cmd": list(image.command) or None,
        "Env": [f"{name}={value}" for name, value in {"PATH": _PATH, **image.environment}.items()],
        "WorkingDir": "/",
        "User": image.user,
    }
    return {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in image.layers]},
        "history": [{"created_by": "hack/cluster"} for _ in image.layers],
    }


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": size}


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def add_bytes(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    """A regular file of root, without a date, so that the same content gives the same archive."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    """A symbolic link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    archive.addfile(member)


def add_tree(
    archive: tarfile.TarFile, source: Path, name: str, *, leave_out: Iterable[str] = (), dated: bool = True
) -> None:
    """A folder with all below it, but for files and folders whose names match these patterns; owned by root.

    Dates stay by default: Python's compiled files are mostly valid only with the date of their source.
    """
    unwanted = list(leave_out)

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if any(fnmatchcase(Path(member.name).name, pattern) for pattern in unwanted):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = member.mtime if dated else 0
        return member

    archive.add(source, name, filter=plain)
