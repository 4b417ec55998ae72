"""Lanes or slots. Pure.

Lanes need shared counters and devices with many allocations, on by default since 1.36, and an allocator that counts
them right, since 1.36.3: shares were forgotten before 1.36.2 (kubernetes/kubernetes#139040), a counter leaked on
backtracking before 1.36.3. A server with the features off drops the fields silently, so what was written is read back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from timeslice_api.kinds import names as kinds

Mode = Literal["lanes", "slots"]
LANES: Final = kinds.MODE_LANES
SLOTS: Final = kinds.MODE_SLOTS
_LEAST_VERSION: Final = (1, 36, 3)
# What lanes cannot do without; a dropped taint only leaves the refusal in prepare.
NEEDED_FIELDS: Final = frozenset({"sharedCounters", "consumesCounters", "allowMultipleAllocations", "requestPolicy"})


@dataclass(frozen=True)
class Choice:
    """How the node publishes, and the sentence that says why, for the log and for conditions; empty for lanes."""

    mode: Mode
    why: str = ""


def choose(
    wanted: Literal["auto", "lanes", "slots"],
    *,
    version: tuple[int, int, int],
    dropped: Collection[str] = (),
    in_use: Mode | None = None,
) -> Choice:
    """The mode.

    Args:
        wanted: of the configuration; `auto` takes lanes where they work.
        version: of the API server.
        dropped: paths of fields that the API server did not keep, when lanes were published.
        in_use: the mode of the claims that are prepared here, which nothing changes; None: there are none.
    """
    free = _free_choice(wanted, version, frozenset(dropped))
    if in_use is None or in_use == free.mode:
        return free
    return Choice(in_use, f"claims are prepared in {in_use} mode; when they have gone: {free.why or free.mode}")


def _free_choice(wanted: str, version: tuple[int, int, int], dropped: frozenset[str]) -> Choice:
    if wanted == SLOTS:
        return Choice(SLOTS, "slots mode is configured")
    if wanted == LANES:
        return Choice(LANES)
    if version < _LEAST_VERSION:
        return Choice(SLOTS, f"lanes need Kubernetes 1.36.3 or newer; this is {'.'.join(map(str, version))}")
    if missing := sorted(NEEDED_FIELDS.intersection(step for path in dropped for step in path.split("."))):
        features = "DRAConsumableCapacity and DRAPartitionableDevices"
        return Choice(SLOTS, f"the API server dropped {', '.join(missing)}: turn on the feature gates {features}")
    return Choice(LANES)
