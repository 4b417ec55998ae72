"""`timeslice token`: makes a token, and what the orchestrator's tokens file has to say of it."""

from __future__ import annotations

import argparse
import json
import os
import secrets
from hashlib import sha256
from pathlib import Path

from timeslice_api.errors import ConfigError

from timeslice.cli.options import Subparsers, add_command, name_of

EXAMPLES = """\
  timeslice token --role node --node node-1 --out node-1.token >> tokens.yaml      (begins with the line "tokens:")
  timeslice token --role job --job job-a --job job-b --out trainers.token >> tokens.yaml
  timeslice token --role admin --out admin.token >> tokens.yaml
then `timeslice orchestrator --tokens tokens.yaml`, and the token's file to its owner alone:
  TIMESLICE_TOKEN_FILE=trainers.token timeslice run --job job-a --group trainer-group -- python train.py
"""


def add(commands: Subparsers) -> None:
    """Adds the command."""
    summary = "make a token that says to an orchestrator on the network who calls"
    parser = add_command(commands, "token", summary=summary, examples=EXAMPLES)
    parser.add_argument("--role", required=True, choices=("job", "node", "admin"), help="what its owner is")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="where the token goes; a new file")
    parser.add_argument("--name", metavar="NAME", help="for people and the audit log; default: from the file's name")
    for what, text in (("job", "role job: only for it; repeatable"), ("group", "role job: only in it; repeatable")):
        kind = name_of(what)
        parser.add_argument(f"--{what}", action="append", default=[], metavar=what.upper(), type=kind, help=text)
    parser.add_argument("--node", metavar="NODE", type=name_of("node"), help="role node: the node that it is")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the token, for its owner's eyes only, and prints the entry for the tokens file, which has no secret."""
    entry = _entry(arguments)
    token = secrets.token_urlsafe(32)
    entry["token_sha256"] = sha256(token.encode()).hexdigest()
    try:
        descriptor = os.open(arguments.out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
    except OSError as error:
        hint = "give the name of a new file in a folder that is there"
        raise ConfigError(f"cannot make {arguments.out}: {error.strerror}", hint=hint) from error
    print(f"- {json.dumps(entry)}")
    return 0


def _entry(arguments: argparse.Namespace) -> dict[str, object]:
    if bool(arguments.node) != (arguments.role == "node"):
        raise ConfigError("--node is for --role node, which needs it")
    if (arguments.job or arguments.group) and arguments.role != "job":
        raise ConfigError("--job and --group are for --role job")
    named = {"jobs": arguments.job, "groups": arguments.group, "node": arguments.node}
    return {"name": arguments.name or arguments.out.stem, "role": arguments.role} | {
        field: value for field, value in named.items() if value
    }
