"""The picture of how the figures grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pygal

LABEL = 1.5  # what a value's label takes of the logarithmic axis, as a factor


@dataclass(frozen=True)
class Series:
    """A line: its name with the unit, and its value at each size."""

    name: str
    values: Sequence[float]


def plot(title: str, sizes: Sequence[str], series: Sequence[Series], *, path: Path) -> None:
    """Writes an SVG; the values' axis is logarithmic, since the lines are of different units."""
    drawn = [value for line in series for value in line.values]
    chart = pygal.Line(
        title=title,
        logarithmic=True,
        js=(),  # a file of its own: nothing is loaded from elsewhere
        legend_at_bottom=True,
        legend_at_bottom_columns=1,
        range=(min(drawn) / LABEL, max(drawn) * LABEL),
        margin_right=60,
        style=pygal.style.DefaultStyle(value_font_size=12),
        print_values=True,
        value_formatter=lambda value: f"{value:,.0f}" if value >= 10 else f"{value:.1f}",
    )
    chart.x_labels = list(sizes)
    for line in series:
        chart.add(line.name, list(line.values))
    chart.render_to_file(str(path))
