"""Waits for what tells nobody when it is ready, with a limit and a reason."""

import time
from collections.abc import Callable

from kube_cluster.errors import ClusterError

_PAUSE_S = 0.1


def wait_for(what: str, ready: Callable[[], str | None], *, limit_s: float) -> None:
    """Until ``ready`` returns None; it returns what is missing. ClusterError with the last of these after the limit."""
    deadline = time.monotonic() + limit_s
    while (missing := ready()) is not None:
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} after {limit_s:.0f} s: {missing}")
        time.sleep(_PAUSE_S)


def failure(attempt: Callable[[], object]) -> str | None:
    """What the attempt failed with; None when it succeeded."""
    try:
        attempt()
    except (ClusterError, OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return None
