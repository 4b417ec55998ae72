"""The command line of `hack/bench`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from timeslice_api.unread import ends_when_unread

from timeslice_bench.case import (
    ALL_CASES,
    CASES,
    CLUSTER_CASES,
    QUICK,
    SCALE_CASES,
    TAKEOVER_CASES,
    Effort,
    Failure,
    Measurement,
)
from timeslice_bench.report import machine, table, write_json
from timeslice_bench.scenario import SCENARIOS, run

PARTS = {"cluster": CLUSTER_CASES, "takeover": TAKEOVER_CASES, "scale": SCALE_CASES}


@ends_when_unread
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmarks. Status 0 when every case could be measured, whether or not its goal is met."""
    arguments = parsed(argv)
    if arguments.list:
        print("\n".join(f"{case.name:<25} {case.what} ({case.unit})" for case in ALL_CASES.values()))
        return 0
    where = machine()
    try:
        results = asyncio.run(_measure(arguments))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; every process of the run has ended", file=sys.stderr)
        return 130
    print(f"machine: {where}\n\n{table(results)}", file=sys.stderr if arguments.json == "-" else sys.stdout)
    if arguments.json:
        write_json(results, arguments.json)
    return int(any(isinstance(result, Failure) for result in results))


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="hack/bench", description="The benchmarks of Timeslice.")
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        help="cases to run; `cluster`: those on the cluster; `takeover`: those of two orchestrators; `scale`: those "
        "of many nodes and long runs; "
        "default: all others",
    )
    parser.add_argument("--quick", action="store_true", help="all cases in a minute, with fewer samples")
    parser.add_argument("--json", metavar="FILE", help="write the results there; - for standard output")
    parser.add_argument("--list", action="store_true", help="list the cases and do nothing")
    parser.add_argument("--minutes", metavar="N", type=float, help="how long soak_growth_mb runs; default 2")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="an SVG of how the figures of `scale` grow")
    parser.add_argument("--profile", metavar="DIR", type=Path, help="leave cProfile data of the orchestrator there")
    arguments = parser.parse_intermixed_args(argv)
    if unknown := [case for case in arguments.cases if case not in (*ALL_CASES, *PARTS)]:
        parser.error(f"no case is named {unknown[0]!r}; there are {', '.join(ALL_CASES)}")
    return arguments


def _chosen(cases: Sequence[str]) -> list[str]:
    named = [case for name in cases for case in PARTS.get(name, [name])]
    return named or list(CASES)


def _effort(arguments: argparse.Namespace) -> Effort:
    effort = replace(QUICK if arguments.quick else Effort(), plot=arguments.plot)
    return replace(effort, soak_s=arguments.minutes * 60) if arguments.minutes else effort


async def _measure(arguments: argparse.Namespace) -> list[Measurement | Failure]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    effort = _effort(arguments)
    wanted = _chosen(arguments.cases)
    if arguments.profile:
        arguments.profile.mkdir(parents=True, exist_ok=True)
    results: list[Measurement | Failure] = []
    for scenario in SCENARIOS:
        if set(scenario.cases) & set(wanted):
            start = time.monotonic()
            print(f"{scenario.name} ...", end=" ", file=sys.stderr, flush=True)
            results += await run(scenario, effort, wanted, arguments.profile)
            print(f"{time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
