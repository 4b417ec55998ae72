"""A stand-in for the cuda-checkpoint command: its options, its exit status (the CUresult), its messages."""

import argparse
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn
from uuid import UUID

from gpu_emulator.codes import CU_TEXT, FIRST_DRIVER_WITH_ACTIONS, Cu, State, driver_branch

_NO_DEVICE = 100
_ACTIONS = ("lock", "checkpoint", "restore", "unlock")


def _ask(line: str) -> tuple[int, list[str]]:
    """Code and further words of the daemon's answer. Waits without limit, as the command does."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.environ.get("GPU_EMULATOR_SOCKET", "/run/gpu-emulator.sock"))
        except OSError:
            return _NO_DEVICE, []
        connection.sendall(f"{line}\n".encode())
        with connection.makefile() as lines:
            words = lines.readline().split()
    if not words or words[0] == "crash":
        return Cu.UNKNOWN, []
    return int(words[0]), words[1:]


def _complain(what: str, pid: int, code: int) -> int:
    print(f"Could not {what} on process ID {pid}: {CU_TEXT.get(code, 'unknown error')}", file=sys.stderr)
    return code


def _act(action: str, pid: int, options: argparse.Namespace) -> int:
    argument = {"lock": f" {options.timeout}", "restore": options.device_map or ""}.get(action, "")
    code, _ = _ask(f"{action} {pid}{argument}")
    return _complain(action, pid, code) if code else 0


def _act_on_all(action: str, options: argparse.Namespace) -> int:
    """All processes at once: ranks of a collective can only be locked together."""
    with ThreadPoolExecutor(len(options.pid)) as pool:
        codes = list(pool.map(lambda pid: _act(action, pid, options), options.pid))
    return next((code for code in codes if code), 0)


def _toggle(options: argparse.Namespace) -> int:
    code, words = _ask(f"get_state {options.pid[0]}")
    if code:
        return _complain("toggle", options.pid[0], code)
    steps = ("restore", "unlock") if int(words[0]) == State.CHECKPOINTED else ("lock", "checkpoint")
    for step in steps:
        if code := _act_on_all(step, options):
            return code
    return 0


def _print_each(call: str, options: argparse.Namespace) -> int:
    for pid in options.pid:
        code, words = _ask(f"{call} {pid}")
        if code:
            return _complain(call.replace("_", " "), pid, code)
        print(State(int(words[0])).name.lower() if call == "get_state" else words[0])
    return 0


def _device_map(text: str) -> str:
    """`OLD=NEW,...` as the daemon wants it."""
    words = [name.removeprefix("GPU-") for pair in text.split(",") for name in pair.split("=")]
    return "".join(f" {UUID(word).hex}" for word in words)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Bad usage is CUDA_ERROR_INVALID_VALUE; the usual status 2 would read as out of memory."""
        self.exit(int(Cu.INVALID_VALUE), f"{self.prog}: {message}\n")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="cuda-checkpoint")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--toggle", action="store_true")
    what.add_argument("--action", choices=_ACTIONS)
    what.add_argument("--get-state", action="store_true")
    what.add_argument("--get-restore-tid", action="store_true")
    parser.add_argument("--pid", type=int, action="append", required=True)
    parser.add_argument("--timeout", type=int, default=0, help="milliseconds, for lock")
    parser.add_argument("--device-map", "-d", type=_device_map, help="OLD_UUID=NEW_UUID,..., for restore")
    return parser.parse_args(arguments)


def main() -> None:
    options = _parse(sys.argv[1:])
    code, words = _ask("version")
    if code:
        sys.exit(_complain("initialize", options.pid[0], code))
    if not options.toggle and driver_branch(words[1]) < FIRST_DRIVER_WITH_ACTIONS:
        print(f"driver {words[1]} knows --toggle only", file=sys.stderr)
        sys.exit(int(Cu.NOT_SUPPORTED))
    if options.toggle:
        code = _toggle(options)
    elif options.action:
        code = _act_on_all(options.action, options)
    else:
        code = _print_each("get_state" if options.get_state else "get_restore_tid", options)
    # An exit status has eight bits, and must not read as success.
    sys.exit(code & 0xFF or int(bool(code)))
