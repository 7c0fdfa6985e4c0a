"""Curves and bars as SVG: a few hundred bytes each, sharp at any size, in the colours of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 520, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 18, 46
N_TICKS = 6  # at most


@dataclass(frozen=True)
class Line:
    """A curve; `kind` is its class in the style sheet."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str = "a"


@dataclass(frozen=True)
class Axes:
    """From data to the picture."""

    x_label: str
    y_label: str
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1.0)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1.0)
        return LEFT + across * wide, HEIGHT - BOTTOM - up * high


def lines(axes: Axes, drawn: Sequence[Line], mark: tuple[float, str] | None = None) -> str:
    """Curves over each other, with a legend; `mark` is an upright line at an x, and its name."""
    inside = [_polyline(axes, line) for line in drawn]
    if mark is not None:
        x, low = axes.at(mark[0], axes.y[0])
        inside.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{TOP}"/>')
        turned, aside = ("end", 8) if x > WIDTH / 2 else ("start", -8)
        place = f'x="{x + aside:.1f}" y="{TOP - 3}" text-anchor="{turned}"'
        inside.append(f'<text class="note" {place}>{escape(mark[1])}</text>')
    names = "".join(f'<span class="{line.kind}">{escape(line.name)}</span>' for line in drawn)
    return f'<div class="legend">{names}</div>{_svg(axes, "".join(inside))}'


def bars(axes: Axes, heights: Sequence[float], mark: int | None = None) -> str:
    """Bars at 1, 2, ...; the one at index `mark` stands out."""
    wide = 0.8 * (WIDTH - LEFT - RIGHT) / len(heights)
    inside = []
    for at, height in enumerate(heights):
        x, y = axes.at(at + 1, height)
        low = axes.at(0, axes.y[0])[1]
        kind = "bar hot" if at == mark else "bar"
        inside.append(
            f'<rect class="{kind}" x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" '
            f'height="{max(low - y, 0.0):.1f}">'
            f"<title>{at + 1}: {height:.3g}</title></rect>"
        )
    return _svg(axes, "".join(inside))


def _polyline(axes: Axes, line: Line) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (axes.at(*pair) for pair in zip(line.x, line.y)))
    return f'<polyline class="{line.kind}" points="{points}"/>'


def ticks(low: float, high: float, most: int = N_TICKS) -> list[float]:
    """At most so many round numbers within the range."""
    if high <= low:
        return [low]
    power = 10.0 ** floor(log10((high - low) / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= most - 1)
    return [step * at for at in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _svg(axes: Axes, inside: str) -> str:
    grid = []
    for y in ticks(*axes.y):
        left, at_y = axes.at(axes.x[0], y)
        grid.append(f'<line class="grid" x1="{left:.1f}" x2="{WIDTH - RIGHT}" y1="{at_y:.1f}" y2="{at_y:.1f}"/>')
        grid.append(f'<text x="{left - 6:.1f}" y="{at_y + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    for x in ticks(*axes.x, most=9):
        at_x, bottom = axes.at(x, axes.y[0])
        grid.append(f'<text x="{at_x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{x:.3g}</text>')
    labels = f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(axes.x_label)}</text>'
    title = f"{escape(axes.y_label)} against {escape(axes.x_label)}"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{title}</title>{"".join(grid)}{labels}{inside}</svg>'
