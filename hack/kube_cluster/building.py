"""Builds the programs, each module once, into the cache."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from kube_cluster.cache import cache_folder, filling, sweep
from kube_cluster.errors import ClusterError
from kube_cluster.modules import MODULES, Module
from kube_cluster.toolchain import TO_BUILD, find_go, require

_BUILD_LIMIT_S = 3600.0


def module_folder(module: Module) -> Path:
    """Where the module's programs are, once they are built."""
    return cache_folder() / f"{module.name}-{module.digest()}"


def program(module: Module, name: str) -> Path:
    """The path of a built program. ClusterError when it has not been built."""
    path = module_folder(module) / name
    if not path.exists():
        raise ClusterError(f"{name} has not been built: run hack/cluster build")
    return path


def missing_modules() -> list[Module]:
    """Those that are not in the cache."""
    return [module for module in MODULES if not module_folder(module).exists()]


def build() -> None:
    """Builds what is missing; says what it does and how long it takes."""
    sweep()
    missing = missing_modules()
    if not missing:
        return
    require(TO_BUILD)
    go = find_go()
    for index, module in enumerate(missing, 1):
        _say(f"[{index}/{len(missing)}] building {', '.join(module.programs)} ...")
        started = time.monotonic()
        with filling(module_folder(module)) as folder:
            _compile(go, module, folder)
        _say(f"[{index}/{len(missing)}] {module.name}: {time.monotonic() - started:.0f} s")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _compile(go: Path, module: Module, folder: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "1" if module.cgo else "0", "GOFLAGS": "", "GOWORK": "off"}
    command = [str(go), "build", *module.flags, "-o", f"{folder}/", *module.programs.values()]
    try:
        done = subprocess.run(
            command,
            cwd=module.folder,
            env=environment,
            check=False,
            timeout=_BUILD_LIMIT_S,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired as late:
        raise ClusterError(f"building {module.name} took longer than {_BUILD_LIMIT_S:.0f} s") from late
    if done.returncode != 0:
        raise ClusterError(f"building {module.name} failed:\n{done.stderr[-4000:]}")
    for name, package in module.programs.items():
        default = default_name(package, module)
        if default != name:
            (folder / default).rename(folder / name)


def default_name(package: str, module: Module) -> str:
    """What ``go build`` calls the program of a package: the last part of its path that is no major version."""
    if package == ".":
        return module.name
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]
