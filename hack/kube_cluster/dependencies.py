"""Layers with the third-party Python packages of an image: those of .venv, which are pinned and checked already."""

import hashlib
import tarfile
from collections.abc import Iterable
from functools import partial
from importlib.metadata import Distribution, distribution
from pathlib import Path

from kube_cluster.archives import Layer, add_tree
from kube_cluster.cache import cache_folder, filling
from kube_cluster.errors import ClusterError
from kube_cluster.interpreter import PACKAGES, add_files, base_layer, libraries


def dependency_layer(*wanted: str, alone: Iterable[str] = ()) -> Layer:
    """These packages (``name`` or ``name[extra]``) with all they need, and those that are to be ``alone`` without.

    Made when it is not in the cache.
    """
    packages = {**closure(wanted), **{name: _installed(name) for name in alone}}
    versions = sorted(f"{name}=={package.version}" for name, package in packages.items())
    key = hashlib.sha256("\n".join([base_layer().digest, *versions]).encode() + Path(__file__).read_bytes())
    entry = cache_folder() / f"image-packages-{key.hexdigest()[:16]}"
    if not entry.exists():
        with filling(entry) as folder:
            Layer.make(folder, partial(_fill, packages=list(packages.values())))
    return Layer.read(entry)


def closure(wanted: Iterable[str]) -> dict[str, Distribution]:
    """These packages and all that they require here, by name. ClusterError when one is missing."""
    from packaging.requirements import Requirement  # of .venv, where images are made

    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        next_one = waiting.pop()
        package = _installed(next_one.name)
        found[next_one.name.lower()] = package
        for extra in {"", *next_one.extras}:
            if (next_one.name.lower(), extra) not in seen:
                seen.add((next_one.name.lower(), extra))
                needs = [Requirement(line) for line in package.requires or ()]
                waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return found


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except ModuleNotFoundError as missing:
        raise ClusterError(f"{name} is not installed: run hack/venv, and this with .venv/bin/python") from missing


def _fill(archive: tarfile.TarFile, packages: Iterable[Distribution]) -> None:
    """Their top folders and files, but nothing that is installed editable: that is our own code, another layer's."""
    tops: set[Path] = set()
    extensions: list[Path] = []
    for package in packages:
        root = Path(str(package.locate_file("")))
        if package.read_text("direct_url.json") is not None:
            continue
        files = [file for file in package.files or () if ".." not in file.parts]
        tops |= {root / file.parts[0] for file in files if file.parts[0] != "__pycache__"}
        extensions += [root / file for file in files if ".so" in file.suffixes]
    for top in sorted(tops):
        add_tree(archive, top, f"{PACKAGES}/{top.name}".lstrip("/"))
    own = {top.parent for top in tops}
    add_files(archive, {file for file in libraries(extensions) if not own & set(file.parents)})
