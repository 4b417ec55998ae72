"""`./hack/demo`: two GRPO jobs on one emulated GPU, alone and together, live and measured."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_emulator import EmulatorError
from rich.console import Console
from rich.live import Live
from timeslice_api.unread import ends_when_unread

from comparison import verdict
from comparison.board import Board
from comparison.conduct import PlatformLostError, RunTimeoutError
from comparison.demonstration import Demonstration
from comparison.jobs import JobError
from comparison.plan import JobSpec
from comparison.platform import PlatformError
from comparison.report import Setting
from comparison.screen import LiveScreen, PlainScreen, Screen, picture

JOBS = (JobSpec("job-a", "gcd", 23), JobSpec("job-b", "count_bits", 5))
STEPS, QUICK_STEPS = 30, 6
_PICTURES_PER_S = 5  # few, so that drawing takes no part of the measured machine worth speaking of
EXIT_CLAIM_FAILED, EXIT_BROKEN, EXIT_INTERRUPTED = 1, 2, 130

_EPILOG = """\
examples:
  ./hack/demo                        the whole demonstration, 2 minutes
  ./hack/demo --quick                6 steps per job, less than 40 seconds
  ./hack/demo --json report.json     the report as JSON too
  ./hack/demo --keep /tmp/demo       keep logs and every event of every job
  ./hack/demo --bandwidth 0.5        a slower way to host memory: see what swapping costs

exit status: 0 all claims hold, 1 a claim does not hold, 2 it could not be run, 130 interrupted
"""


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="hack/demo",
        description="Two GRPO training jobs take turns on one emulated GPU whose memory cannot hold both.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps per job instead of {STEPS}")
    parser.add_argument("--steps", type=_positive(int), metavar="N", help="steps per job")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and events there")
    parser.add_argument("--no-live", action="store_true", help="plain lines instead of a live table")
    parser.add_argument("--memory", type=_positive(int), default=192, metavar="MIB", help="of the GPU; default 192")
    parser.add_argument(
        "--bandwidth", type=_positive(float), default=2.5, metavar="GB/S", help="of parking; default 2.5"
    )
    options = parser.parse_args(arguments)
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"argument --json: there is no folder {options.json.parent}")
    return options


def _positive(kind: type) -> Any:
    def parse(text: str) -> Any:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is not more than 0")
        return value

    parse.__name__ = kind.__name__
    return parse


@ends_when_unread
def main(arguments: list[str] | None = None) -> int:
    """Runs the demonstration and prints the report; the exit status."""
    options = parsed(arguments)
    console = _Console() if sys.stdout.isatty() else _Console(width=100)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
    setting = Setting(JOBS, steps, options.memory << 20, int(options.bandwidth * 1e9))
    try:
        with _folder(options.keep) as folder, _screen(console, live=not options.no_live) as screen:
            report = Demonstration(setting, folder, screen).run()
            (folder / "report.json").write_text(json.dumps(report, indent=2))
            if options.json:
                options.json.write_text(json.dumps(report, indent=2) + "\n")
    except BrokenPipeError:  # nobody reads what it prints
        raise
    except (JobError, PlatformError, PlatformLostError, EmulatorError, RunTimeoutError, OSError) as error:
        Console(stderr=True).print(f"the demonstration broke off: {error}", markup=False, highlight=False)
        return EXIT_BROKEN
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    verdict.show(report, console)
    return 0 if report["ok"] else EXIT_CLAIM_FAILED


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # rich would end the program here and now


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="timeslice-demo-") as short:
        try:
            yield Path(short)
        finally:
            if keep is not None:
                for file in Path(short).glob("*.*"):
                    if file.is_file():
                        shutil.copy(file, keep)


@contextmanager
def _screen(console: Console, *, live: bool) -> Iterator[Screen]:
    board = Board()
    if not (live and console.is_terminal):
        yield PlainScreen(console, board)
        return
    with Live(
        console=console, get_renderable=lambda: picture(board), refresh_per_second=_PICTURES_PER_S, transient=True
    ):
        yield LiveScreen(console, board)


if __name__ == "__main__":
    sys.exit(main())
