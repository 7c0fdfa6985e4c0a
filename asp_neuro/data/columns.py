"""Columns of numbers in a text: split by blanks, commas or semicolons, with comments and a header, as tools write them.

# a comment, anywhere
//X Y Z R G B               a header: words, or the number of points alone; x, y and z in it say which columns
593000.12 5763000.34 50.1 ...
"""

from __future__ import annotations

import io
import warnings

import numpy as np

from asp_neuro.errors import InputError

HEADER_LINES = 3  # at most: names, units, number of points
SHOWN = 40  # characters of a header in a note
AXES = ("x", "y", "z")


def read_columns(text: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """A table [n, columns], x, y and z first, and notes; a ValueError says what is no number."""
    delimiter = next((sign for sign in ",;" if sign in text), None)
    header, body = _header(text, delimiter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 'input contained no data': we say it ourselves
        table = np.loadtxt(io.StringIO(body), np.float64, delimiter=delimiter, ndmin=2)
    if table.size == 0:
        raise InputError("no points")
    notes = [f"Taken for a header: '{line[:SHOWN]}'." for line in header]
    for line in header:
        names = [word.strip("/#\"' ").lower() for word in _words(line, delimiter)]
        if len(names) == table.shape[1] and set(AXES) <= set(names) and tuple(names[:3]) != AXES:
            first = [names.index(axis) for axis in AXES]
            table = table[:, [*first, *(i for i in range(len(names)) if i not in first)]]
            notes.append(f"Columns {', '.join(str(i + 1) for i in first)} are x, y and z, by that header.")
    return table, tuple(notes)


def _header(text: str, delimiter: str | None) -> tuple[list[str], str]:
    """Lines before the numbers, and the rest; where no numbers follow, nothing is a header."""
    header: list[str] = []
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end + 1
        line = text[start:end].split("#", 1)[0].strip()
        if line and not _is_header(line, delimiter):
            return header, text[start:]
        if line and len(header) == HEADER_LINES:
            break
        header += [line] if line else []
        start = end
    return [], text


def _is_header(line: str, delimiter: str | None) -> bool:
    words = _words(line, delimiter)
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return True
    return len(numbers) == 1 and numbers[0].is_integer()  # how many points follow


def _words(line: str, delimiter: str | None) -> list[str]:
    return [word for word in line.split(delimiter) if word.strip()]
