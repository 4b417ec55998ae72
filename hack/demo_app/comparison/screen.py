"""Shows progress: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from comparison.board import Board
from comparison.jobs import Told
from comparison.plan import Run

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(curve: Sequence[float], width: int = 36) -> str:
    """Rewards as a row of bars, from 0 to the highest of them; the newest `width` of them."""
    highest = max(curve, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / highest * len(_BARS)))] for value in curve[-width:])


class Screen(Protocol):
    """Follows a demonstration."""

    board: Board

    def begin(self, run: Run) -> None:
        """A run begins."""

    def take(self, told: Told) -> None:
        """A job told something."""

    def say(self, sentence: str) -> None:
        """Something worth a line."""


class PlainScreen:
    """One line per run and per reward."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console, self.board = console, board

    def begin(self, run: Run) -> None:
        """A run begins."""
        self.board.begin(run)
        self.say(run.title)

    def take(self, told: Told) -> None:
        """Prints rewards, ends and refusals."""
        if not self.board.take(told) or told.event["event"] not in ("reward", "done", "out_of_memory"):
            return
        line = self.board.lines[told.job]
        what = f"reward {line.curve[-1]:.3f}" if told.event["event"] == "reward" else line.doing
        at = told.event["t"] - self.board.since
        self._console.print(
            f"  {at:6.1f} s  {told.job}  step {line.step:>3}/{self.board.run.steps}  {what}", highlight=False
        )

    def say(self, sentence: str) -> None:
        """Prints it."""
        self._console.print(sentence, highlight=False)


class LiveScreen:
    """A table that changes in place; the `Live` in which it is shown draws it some times a second."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console, self.board = console, board

    def begin(self, run: Run) -> None:
        """A run begins."""
        self.board.begin(run)

    def take(self, told: Told) -> None:
        """Follows."""
        self.board.take(told)

    def say(self, sentence: str) -> None:
        """Prints it above the table."""
        self._console.print(sentence, highlight=False)


def picture(board: Board) -> RenderableType:
    """The board as a table, less than 100 columns wide."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading, width in (("job", 6), ("task", 10), ("step", 7), ("", 26), ("reward", 6), ("", 30)):
        table.add_column(heading, width=width, no_wrap=True)
    for name, line in board.lines.items():
        style = "bold green" if line.holding else "yellow" if "waits" in line.doing else ""
        reward = f"{line.curve[-1]:.3f}" if line.curve else ""
        step = f"{min(line.step + 1, board.run.steps)}/{board.run.steps}"
        table.add_row(name, line.spec.task, step, Text(line.doing, style=style), reward, sparkline(line.curve, 30))
    head = Text.assemble((board.run.title, "bold"), f"  {time.monotonic() - board.since:.0f} s")
    return Group(head, table, Text(f"device: {board.device}", style="dim"))
