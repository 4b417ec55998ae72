"""What a run found out, for people and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from timeslice_chaos.checker import Violation


@dataclass
class Report:
    """One run.

    Attributes:
        seed: that reproduces the order of faults.
        faults: how often each has struck, by kind and place; `missed`, whose moment did not come.
        handoffs: grants that had another job before them on the device.
        recoveries: seconds from the moment that a fault was over until every job had been served, by kind.
        violations: promises that were broken; none is the aim.
        logs: where the logs are, when they were kept.
    """

    seed: int
    seconds: float = 0.0
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)
    handoffs: int = 0
    grants: int = 0
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    logs: str = ""

    def as_json(self) -> dict[str, Any]:
        """With plain types."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "faults": _by_place(self.faults),
            "missed": _by_place(self.missed),
            "grants": self.grants,
            "handoffs": self.handoffs,
            "recovery_s": {"p50": self.recovery(0.5), "max": self.recovery(1.0)},
            "violations": [vars(violation) for violation in self.violations],
            "logs": self.logs,
        }

    def recovery(self, part: float) -> float | None:
        """A quantile of the recovery times (seconds); None without any."""
        times = sorted(seconds for _, seconds in self.recoveries)
        return round(times[min(len(times) - 1, int(part * len(times)))], 2) if times else None

    def text(self) -> str:
        """For people."""
        kinds: Counter[str] = Counter()
        for (kind, _), count in self.faults.items():
            kinds[kind] += count
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        lines = [
            f"seed {self.seed}: {self.seconds:.0f} s, {self.faults.total()} faults ({told}), "
            f"{self.missed.total()} whose moment did not come",
            f"{self.grants} grants, {self.handoffs} hand-offs; "
            f"served again {self.recovery(0.5)} s after a fault (median), {self.recovery(1.0)} s at most",
            f"{len(self.violations)} violations",
        ]
        lines += [f"  {violation.promise}, at {violation.at:.3f}: {violation.text}" for violation in self.violations]
        return "\n".join([*lines, f"logs: {self.logs}"] if self.logs else lines)

    def table(self) -> str:
        """How often each fault has struck, line by line."""
        return "\n".join(f"{count:5} {kind:6} {where}" for (kind, where), count in sorted(self.faults.items()))


def _by_place(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (kind, where), count in sorted(counts.items()):
        found.setdefault(kind, {})[where] = count
    return found


def to_json(reports: Sequence[Report]) -> str:
    """All runs, and their sums."""
    total = {
        "runs": [report.as_json() for report in reports],
        "faults": sum(report.faults.total() for report in reports),
        "handoffs": sum(report.handoffs for report in reports),
        "violations": sum(len(report.violations) for report in reports),
    }
    return json.dumps(total, indent=2)
