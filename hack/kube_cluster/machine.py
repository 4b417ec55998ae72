"""Runs the small commands of the machine: ip, mount, openssl and the like."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from kube_cluster.errors import ClusterError

_LIMIT_S = 60.0


def run(
    command: Sequence[str | Path],
    *,
    given: str | None = None,
    folder: Path | None = None,
    limit_s: float = _LIMIT_S,
) -> str:
    """Its standard output. ClusterError with what it said when it fails or takes longer than ``limit_s``."""
    arguments = list(map(str, command))
    try:
        done = subprocess.run(
            arguments,
            input=None if given is None else given.encode(),
            cwd=folder,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as late:
        raise ClusterError(f"{' '.join(arguments)}: not done after {limit_s:.0f} s") from late
    except FileNotFoundError as missing:
        raise ClusterError(f"{arguments[0]}: no such command") from missing
    if done.returncode != 0:
        said = (done.stderr + done.stdout).decode(errors="replace").strip()
        raise ClusterError(f"{' '.join(arguments)}: {said or f'exit status {done.returncode}'}")
    return done.stdout.decode(errors="replace")
