"""Writes container images as archives that containerd, docker and podman load: layers, a configuration, a manifest."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """``reference`` as in docker.io/library/name:tag; ``layers`` are uncompressed tar files, the lowest first."""

    reference: str
    layers: Sequence[Path]
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"
    command: Sequence[str] = ()


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_archive(image: Image, path: Path) -> None:
    """In the form of ``docker save``."""
    digests = [digest(layer) for layer in image.layers]
    configuration = json.dumps(_configuration(image, digests), sort_keys=True).encode()
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [
        {"Config": name, "RepoTags": [image.reference], "Layers": [f"{found}/layer.tar" for found in digests]},
    ]
    with tarfile.open(path, "w") as archive:
        for found, layer in zip(digests, image.layers, strict=True):
            archive.add(layer, f"{found}/layer.tar")
        add_bytes(archive, name, configuration)
        add_bytes(archive, "manifest.json", json.dumps(manifest).encode())


def add_bytes(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    """A regular file of root, without a date, so that the same content gives the same archive."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def add_tree(archive: tarfile.TarFile, source: Path, name: str, *, leave_out: Iterable[str] = ()) -> None:
    """A folder with all below it, but for files and folders with these names; owned by root, without dates."""
    unwanted = frozenset(leave_out)

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(member.name).name in unwanted:
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    archive.add(source, name, filter=plain)


def _configuration(image: Image, digests: Sequence[str]) -> dict[str, object]:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = {"PATH": path, **image.environment}
    run = {
        "Entrypoint": list(image.entrypoint),
        "Cmd": list(image.command) or None,
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "WorkingDir": image.working_directory,
    }
    return {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{found}" for found in digests]},
        "history": [{"created_by": "hack/cluster"} for _ in digests],
    }
