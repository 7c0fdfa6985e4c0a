"""How results reach a reader: plain text tables, messages and progress on stderr, one JSON object on stdout."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

T = TypeVar("T")

# A log file is not a terminal: there a line every few seconds tells enough.
SECONDS_BETWEEN_LINES = 5.0


def say(message: str) -> None:
    """A message for the person who waits: on stderr, so that stdout stays clean."""
    print(message, file=sys.stderr, flush=True)


def about(kind: str, text: str) -> str:
    """What is written about clouds, about scenes of another kind (a word in the singular)."""
    return re.sub(r"\b([Cc])loud(s?)\b", lambda m: (kind.title() if m[1] == "C" else kind) + m[2], text)


def table(rows: Iterable[Sequence[object]], headers: Sequence[str]) -> str:
    """Columns as wide as their widest cell; numbers to the right, all else to the left; no line ends in a blank."""
    body = [[_cell(value) for value in row] for row in rows]
    for row in body:
        if len(row) != len(headers):
            raise ValueError(f"table: a row of {len(row)} cells under {len(headers)} headers: {row}")
    widths = [max(len(line[i]) for line in [list(headers), *body]) for i in range(len(headers))]
    right = [bool(body) and all(_is_number(row[i]) for row in body) for i in range(len(headers))]
    marks = [">" if is_right else "<" for is_right in right]
    lines = [list(headers), ["-" * width for width in widths], *body]
    return "\n".join("  ".join(f"{c:{m}{w}}" for c, m, w in zip(line, marks, widths)).rstrip() for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_number(cell: str) -> bool:
    try:
        float(cell.rstrip("%"))
    except ValueError:
        return cell == "-"
    return True


def progress(iterable: Iterable[T], total: int | None = None, label: str = "") -> Iterator[T]:
    """The items, with a bar on stderr when it is a terminal, and with a line every few seconds when it is not."""
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(iterable, total=total, desc=label, file=sys.stderr, leave=False, dynamic_ncols=True)
        return
    last = time.monotonic()
    for done, item in enumerate(iterable):
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            say(f"{label}: {done}" + (f" of {total}" if total else ""))
            last = now
        yield item


def to_json(value: object) -> str:
    """One line of strict JSON: numpy values become plain ones, a number that is not finite becomes null."""
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):  # first: an IntEnum is an int too
        return _plain(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # numpy and torch, without importing them
        return _plain(value.tolist())
    raise TypeError(f"no JSON form for {type(value).__name__}")
