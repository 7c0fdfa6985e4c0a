"""A row of an audit: a claim of the theory, what it predicts, what was measured, and whether it holds.

holds      the whole interval lies where the theory says
fails      the whole interval lies elsewhere
unclear    so many samples cannot tell
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from asp_neuro.report import table

HOLDS, FAILS, UNCLEAR = "holds", "fails", "unclear"


@dataclass(frozen=True)
class Row:
    """One claim; `low` and `high` are the 95 % interval of `measured`, None where nothing was sampled."""

    claim: str
    theorem: str
    predicted: str
    measured: float | None
    low: float | None
    high: float | None
    null: float | None  # what chance alone would give
    paper: str | None  # what the paper measured, on models of its own
    verdict: str
    n: int  # scenes, decisions or repetitions behind it
    note: str = ""


def counted(differing: int) -> str:
    """The verdict on what must not happen at all, and was looked for everywhere."""
    return HOLDS if differing == 0 else FAILS


def above(low: float, high: float, limit: float) -> str:
    """The verdict on "more than the limit"."""
    return HOLDS if low > limit else FAILS if high <= limit else UNCLEAR


def at_most(low: float, high: float, limit: float) -> str:
    """The verdict on "at most the limit"."""
    return HOLDS if high <= limit else FAILS if low > limit else UNCLEAR


def text(rows: Iterable[Row]) -> str:
    """The table for people, and a line for each note."""
    rows = list(rows)
    cells = [
        (at, row.claim, row.theorem, row.predicted, _value(row.measured), _interval(row), _value(row.null), row.paper,
         row.verdict)
        for at, row in enumerate(rows, start=1)
    ]  # fmt: skip
    headers = ("", "claim", "theorem", "predicted", "measured", "95 % interval", "null", "paper", "verdict")
    notes = [f"{at:2d}  {row.note}" for at, row in enumerate(rows, start=1) if row.note]
    return "\n".join([table(cells, headers), "", *notes])


def _value(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _interval(row: Row) -> str | None:
    return None if row.low is None or row.high is None else f"{row.low:.4g} .. {row.high:.4g}"
