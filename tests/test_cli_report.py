"""Tables, progress and JSON, as a reader sees them."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro import report


def test_a_table_aligns_numbers_right_and_words_left():
    text = report.table([("learned", 0.715, 1), ("fps_order", None, 16)], ("rule", "accuracy", "k"))
    assert text.splitlines() == [
        "rule       accuracy   k",
        "---------  --------  --",
        "learned       0.715   1",
        "fps_order         -  16",
    ]


def test_a_table_without_rows_is_its_head():
    assert report.table([], ("a", "bc")) == "a  bc\n-  --"


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under 2 headers"):
        report.table([("x",)], ("a", "b"))


class Reason(enum.Enum):
    BUDGET = "budget"


class Level(enum.IntEnum):
    LOW = 1


@dataclass(frozen=True)
class Record:
    name: str
    margin: float


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, np.nan]), [1.0, None]),
        (math.inf, None),
        ({1: (2, 3)}, {"1": [2, 3]}),
        (Path("a") / "b", "a/b"),
        (Reason.BUDGET, "budget"),
        (Level.LOW, 1),
        (Record("x", math.nan), {"name": "x", "margin": None}),
        (None, None),
    ],
)
def test_json_is_plain(value, expected):
    assert json.loads(report.to_json(value)) == expected


def test_json_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="no JSON form for set"):
        report.to_json({"x": {1, 2}})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_json_is_one_line_that_any_reader_takes(value):
    text = report.to_json(value)
    assert "\n" not in text

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    json.loads(text, parse_constant=refuse)


def test_progress_hands_every_item_on_and_stays_off_stdout(capsys, monkeypatch):
    monkeypatch.setattr(report, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(report.progress(range(3), label="train")) == [0, 1, 2]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["train: 0 of 3", "train: 1 of 3", "train: 2 of 3"]


def test_progress_is_quiet_about_short_work(capsys):
    assert list(report.progress(iter("ab"), label="train")) == ["a", "b"]
    assert capsys.readouterr().err == ""
