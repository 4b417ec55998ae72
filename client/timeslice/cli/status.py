"""`timeslice status`: who holds, who waits, and where each job's state is."""

from __future__ import annotations

import argparse
import json
import sys
import time

from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc

from timeslice.cli import table
from timeslice.cli.asking import ask, orchestrator
from timeslice.cli.options import Subparsers, add_command, add_orchestrator, name_of
from timeslice.cli.watching import Watch

EXAMPLES = """\
  timeslice status                      all groups
  timeslice status trainer-group --json
  timeslice status --watch              again after every change, until Ctrl-C
"""
REDRAW_S = 1.0  # on a terminal, where the times are seen to run


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(commands, "status", summary="show who holds, who waits, and where state is", examples=EXAMPLES)
    parser.add_argument("group", metavar="GROUP", nargs="?", type=name_of("group"), help="only this group")
    parser.add_argument("--watch", action="store_true", help="show every change")
    parser.add_argument("--json", action="store_true", help="a list of groups; with --watch one group a line")
    add_orchestrator(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Shows the groups."""
    with orchestrator(arguments) as stub:
        groups = _groups(stub, arguments.group)
        if not arguments.watch:
            _print_once(groups, as_json=arguments.json)
            return 0
        with Watch(stub, [group.group_id for group in groups]) as watch:
            _follow(watch, groups, as_json=arguments.json)
    return 0


def _groups(stub: orchestrator_pb2_grpc.OrchestratorStub, group_id: str | None) -> list[orchestrator_pb2.Group]:
    if group_id:
        return [ask(stub.GetGroup, orchestrator_pb2.GetGroupRequest(group_id=group_id))]
    return list(ask(stub.ListGroups, orchestrator_pb2.ListGroupsRequest()).groups)


def _print_once(groups: list[orchestrator_pb2.Group], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([table.as_json(group) for group in groups], indent=2))
    else:
        print(table.text(groups), end="")


def _follow(watch: Watch, groups: list[orchestrator_pb2.Group], *, as_json: bool) -> None:
    now_there = {group.group_id: group for group in groups}
    terminal = sys.stdout.isatty() and not as_json
    heard = time.monotonic()
    while True:
        change = watch.next(REDRAW_S if terminal else None)
        if change is not None:
            now_there[change.group_id] = change
            heard = time.monotonic()
        if as_json and change is not None:
            print(json.dumps(table.as_json(change)), flush=True)
        elif not as_json:
            clear = "\033[H\033[J" if terminal else ""
            print(clear + table.text(now_there.values(), age_s=time.monotonic() - heard), end="", flush=True)
