"""Waits for what a cluster does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

from kube_cluster.errors import ClusterError

PAUSE_S = 0.3  # each look is a request with a handshake, on a machine that has other things to do
START_S = 150.0  # until a pod runs: kubelet repeats a prepare that failed only after 60 to 90 s
SOON_S = 60.0


def until(what: str, missing: Callable[[], str | None], *, limit_s: float = SOON_S) -> None:
    """Returns when ``missing`` returns None; else it says what is missing, and the last of it is in the AssertionError.

    An API server that does not answer is a thing that is missing, too.
    """
    deadline = time.monotonic() + limit_s
    while (lacks := _looked(missing)) is not None:
        assert time.monotonic() < deadline, f"{what}: not after {limit_s:.0f} s: {lacks}"
        time.sleep(PAUSE_S)


def true(condition: Callable[[], object]) -> Callable[[], str | None]:
    """For ``until``, where there is nothing to say but yes and no."""
    return lambda: None if condition() else "no"


def _looked(missing: Callable[[], str | None]) -> str | None:
    try:
        return missing()
    except ClusterError as error:
        return str(error)
