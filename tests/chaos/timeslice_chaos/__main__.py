"""The command line of `hack/test chaos`."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from timeslice_api.unread import ends_when_unread

from timeslice_chaos.arena import EMBEDDED, Arena
from timeslice_chaos.report import Report, to_json
from timeslice_chaos.run import run


@ends_when_unread
def main() -> int:
    """Status 1 when a promise was broken."""
    arguments = parsed(sys.argv[1:])
    arena = _arena(cluster=arguments.cluster)
    reports: list[Report] = []
    for seed, seconds in _runs(arguments, arena):
        print(f"seed {seed}", file=sys.stderr)
        reports.append(run(seed, seconds=seconds, keep=arguments.keep, arena=arena))
        print(reports[-1].text(), flush=True)
        if arguments.table:
            print(reports[-1].table(), flush=True)
    if arguments.json:
        arguments.json.write_text(to_json(reports) + "\n")
    return int(any(report.violations for report in reports))


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="hack/test chaos", description="Faults on real processes, and the check.")
    parser.add_argument("--cluster", action="store_true", help="on the test cluster, in pods")
    parser.add_argument("--minutes", type=float, help="as many seeds as fit; default: fixed ones, briefly")
    parser.add_argument("--seed", type=int, action="append", help="instead of fixed or random ones; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the reports there")
    parser.add_argument("--table", action="store_true", help="print how often each fault has struck")
    parser.add_argument("--keep", action="store_true", help="leave the logs of runs without a violation, too")
    return parser.parse_args(arguments)


def _arena(*, cluster: bool) -> Arena:
    if not cluster:
        return EMBEDDED
    from timeslice_chaos.cluster import CLUSTER  # needs what the tests of the cluster have

    return CLUSTER


def _runs(arguments: argparse.Namespace, arena: Arena) -> Iterator[tuple[int, float]]:
    """Seeds, and for how many seconds each."""
    if arguments.minutes is None:
        seeds, seconds = arena.fixed
        yield from ((seed, seconds) for seed in arguments.seed or seeds)
        return
    until = time.monotonic() + 60 * arguments.minutes
    for seed in arguments.seed or iter(lambda: random.randrange(1 << 31), None):
        left = until - time.monotonic()
        if left <= 0:
            return
        yield seed, left if arguments.seed else min(left, arena.long_s)


if __name__ == "__main__":
    sys.exit(main())
