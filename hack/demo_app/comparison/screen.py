"""Shows progress: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from comparison.board import Board
from comparison.jobs import JobSpec, Told

_BARS = "▁▂▃▄▅▆▇█"
_REDRAW_S = 0.1  # at most that often, so that drawing takes no part of the measured machine worth speaking of


def sparkline(curve: Sequence[float], width: int = 36) -> str:
    """Rewards from 0 to 1 as a row of bars; the newest `width` of them."""
    return "".join(_BARS[min(len(_BARS) - 1, int(value * len(_BARS)))] for value in curve[-width:])


class Screen(Protocol):
    """Follows a demonstration."""

    board: Board

    def begin(self, run: str, title: str, jobs: list[JobSpec]) -> None:
        """A run begins."""

    def take(self, told: Told) -> None:
        """A job told something."""

    def say(self, sentence: str) -> None:
        """Something worth a line."""


class PlainScreen:
    """One line per run and per reward."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console, self.board = console, board

    def begin(self, run: str, title: str, jobs: list[JobSpec]) -> None:
        """A run begins."""
        self.board.begin(run, title, jobs)
        self.say(title)

    def take(self, told: Told) -> None:
        """Prints rewards, ends and refusals."""
        if not self.board.take(told) or told.event["event"] not in ("reward", "done", "out_of_memory"):
            return
        line = self.board.lines[told.job]
        what = f"reward {line.curve[-1]:.3f}" if told.event["event"] == "reward" else line.doing
        at = told.event["t"] - self.board.since
        self._console.print(
            f"  {at:6.1f} s  {told.job}  step {line.step:>3}/{self.board.steps}  {what}", highlight=False
        )

    def say(self, sentence: str) -> None:
        """Prints it."""
        self._console.print(sentence, highlight=False)


class LiveScreen:
    """A table that changes in place."""

    def __init__(self, console: Console, board: Board, live: Live) -> None:
        self._console, self.board, self._live = console, board, live
        self._drawn = 0.0

    def begin(self, run: str, title: str, jobs: list[JobSpec]) -> None:
        """A run begins."""
        self.board.begin(run, title, jobs)
        self._draw()

    def take(self, told: Told) -> None:
        """Follows, and draws when the last picture is old enough."""
        changed = self.board.take(told)
        if changed and (time.monotonic() - self._drawn > _REDRAW_S or told.event["event"] == "exit"):
            self._draw()

    def say(self, sentence: str) -> None:
        """Prints it above the table."""
        self._console.print(sentence, highlight=False)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.update(picture(self.board), refresh=True)


def picture(board: Board) -> RenderableType:
    """The board as a table, less than 100 columns wide."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading, width in (("job", 6), ("task", 10), ("step", 7), ("", 26), ("reward", 6), ("", 30)):
        table.add_column(heading, width=width, no_wrap=True)
    for name, line in board.lines.items():
        style = "bold green" if line.holding else "yellow" if "waits" in line.doing else ""
        reward = f"{line.curve[-1]:.3f}" if line.curve else ""
        step = f"{min(line.step + 1, board.steps)}/{board.steps}"
        table.add_row(name, line.spec.task, step, Text(line.doing, style=style), reward, sparkline(line.curve, 30))
    head = Text.assemble((board.title, "bold"), f"  {time.monotonic() - board.since:.0f} s")
    return Group(head, table, Text(f"device: {board.device}", style="dim"))
