"""The table for people and the JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from timeslice_bench.case import ALL_CASES, Failure, Measurement


def machine() -> str:
    """One line that says where the figures come from."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{os.cpu_count()} cores, {_processor()}, Linux {platform.release()}, Python {platform.python_version()}, "
        f"grpcio {grpc.__version__}, load average {load}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def as_object(found: Measurement | Failure) -> dict[str, Any]:
    """One element of the JSON list; `value` is null when it could not be measured, `empty_calls` when it is no time."""
    case = ALL_CASES[found.case]
    result: dict[str, Any] = {"case": case.name, "value": None, "unit": case.unit, "empty_calls": None}
    result |= {"goal": case.goal, "goal_is": case.bound, "met": False, "nearest_system": case.nearest, "detail": ""}
    if isinstance(found, Failure):
        return result | {"detail": found.reason}
    calls = None if found.empty_calls is None else round(found.empty_calls, 2)
    met = found.sound and case.met(found.value)
    return result | {"value": round(found.value, 3), "empty_calls": calls, "met": met, "detail": found.detail}


def table(results: Sequence[Measurement | Failure]) -> str:
    """The results, a row each, and below them what there is to say about each."""
    rows: list[tuple[str, ...]] = [("case", "value", "unit", "x empty call", "goal", "met", "nearest system")]
    objects = [as_object(result) for result in results]
    rows += [_row(each) for each in objects]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines += [
        "",
        *(f"{each['case']}: {ALL_CASES[each['case']].what}; {each['detail']}".rstrip("; ") for each in objects),
    ]
    return "\n".join(lines)


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    value = "failed" if each["value"] is None else f"{each['value']:,.2f}"
    calls = "-" if each["empty_calls"] is None else f"{each['empty_calls']:.1f}"
    sign = "<=" if each["goal_is"] == "max" else ">="
    met = "yes" if each["met"] else "NO"
    return each["case"], value, each["unit"], calls, f"{sign} {each['goal']:g}", met, each["nearest_system"] or "-"


def write_json(results: Sequence[Measurement | Failure], path: str) -> None:
    """Writes the list of cases to a file, or to standard output for `-`."""
    text = json.dumps([as_object(result) for result in results], indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text)
