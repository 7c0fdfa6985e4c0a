"""Plain data: a record goes to TOML and JSON and back without a change, and every mistake is told by place and key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro import plain
from asp_neuro.errors import ConfigError, InputError, UsageError


@dataclass(frozen=True)
class Row:
    threshold: float
    errors: int
    note: str | None = None

    def __post_init__(self) -> None:
        if self.errors < 0:
            raise UsageError(f"errors = {self.errors} must be at least 0")


@dataclass(frozen=True)
class Record:
    name: str
    on: bool
    grid: tuple[float, ...]
    pair: tuple[int, str]
    rows: tuple[Row, ...]
    scorer: Literal["bilinear", "geometry"] = "bilinear"
    first: Row = field(default_factory=lambda: Row(0.0, 0))
    second: Optional[Row] = None  # noqa: UP045  the old spelling is understood too
    sources: dict[str, str] = field(default_factory=dict)
    anything: Any = None
    arithmetic: int | None = plain.later(None)


SMALL = {"name": "x", "on": True, "grid": [0.5], "pair": [1, "a"], "rows": [{"threshold": 1, "errors": 2}]}

numbers = st.floats(allow_nan=False, allow_infinity=False)
rows = st.builds(Row, numbers, st.integers(0, 2**60), st.none() | st.text())
records = st.builds(
    Record,
    name=st.text(),
    on=st.booleans(),
    grid=st.lists(numbers).map(tuple),
    pair=st.tuples(st.integers(), st.text()),
    rows=st.lists(rows, max_size=3).map(tuple),
    scorer=st.sampled_from(["bilinear", "geometry"]),
    first=rows,
    second=st.none() | rows,
    sources=st.dictionaries(st.text(), st.text(), max_size=3),
    anything=st.recursive(st.none() | st.booleans() | numbers | st.text(), lambda inner: st.lists(inner, max_size=2)),
    arithmetic=st.none() | st.integers(0, 9),
)


@given(records)
def test_to_plain_data_and_back_is_the_same_record(record: Record) -> None:
    assert plain.read(Record, plain.of(record), "x") == record
    assert plain.read(Record, json.loads(plain.text(plain.of(record))), "x", complete=True) == record


@given(records)
def test_a_sealed_record_opens_again_and_only_as_it_was(record: Record) -> None:
    stored = json.loads(json.dumps(plain.sealed("x", record)))
    assert plain.unsealed("x", Record, stored) == record
    assert stored["sha256"] == plain.seal("x", record)
    with pytest.raises(InputError, match=r"x: damaged or edited"):
        plain.unsealed("x", Record, {**stored, "on": not record.on})
    with pytest.raises(InputError, match=r"y: damaged or edited"):
        plain.unsealed("y", Record, stored)


@given(records)
def test_what_is_not_set_has_no_entry_in_the_manner_of_toml(record: Record) -> None:
    assert None not in plain.of(record, unset=False).values()
    back = plain.read(Record, plain.of(record, unset=False), "x")
    assert dataclasses.replace(back, anything=record.anything) == record


def test_a_record_by_hand() -> None:
    found = plain.read(Record, SMALL, "x")
    assert found == Record("x", True, (0.5,), (1, "a"), (Row(1.0, 2),))
    assert type(found.rows[0].threshold) is float
    assert plain.of(found) == {
        "name": "x", "on": True, "grid": [0.5], "pair": [1, "a"],
        "rows": [{"threshold": 1.0, "errors": 2, "note": None}], "scorer": "bilinear",
        "first": {"threshold": 0.0, "errors": 0, "note": None}, "second": None, "sources": {}, "anything": None,
    }  # fmt: skip


def test_the_canonical_text_and_its_hash_by_hand() -> None:
    assert plain.text({"b": [1.0, 0.1], "a": "ä", "c": None}) == '{"a":"\\u00e4","b":[1.0,0.1],"c":null}'
    assert plain.digest("row", {"b": 1}) == hashlib.sha256(b'{"b":1,"kind":"row"}').hexdigest()
    with pytest.raises(ValueError, match=r"not JSON compliant"):
        plain.text({"a": math.nan})


def test_a_later_field_is_not_hashed_while_it_is_not_set() -> None:
    """So that what was stored before the field existed keeps its hash."""

    @dataclass(frozen=True)
    class Before:
        a: int

    @dataclass(frozen=True)
    class After:
        a: int
        b: int | None = plain.later(None)

    assert plain.sealed("x", After(1)) == plain.sealed("x", Before(1))
    assert plain.unsealed("x", After, plain.sealed("x", Before(1))) == After(1)
    assert plain.seal("x", After(1, 2)) != plain.seal("x", After(1))
    assert plain.of(After(1, 2)) == {"a": 1, "b": 2}
    assert plain.read(After, {"a": 1}, "x", complete=True) == After(1)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"nmae": 1}, "f: unknown key 'nmae'; did you mean 'name'?"),
    ({"zzz": 1}, "f: unknown key 'zzz'; known: anything, arithmetic, first, grid"),
    ({3: 1}, "f: unknown key '3'; known: "),
    ({"first": {"threshold": 1, "erors": 2}}, "f: unknown key 'first.erors'; did you mean 'errors'?"),
    ({"first": {"errors": 2}}, "f: first.threshold is missing"),
    ({"rows": [{"threshold": 1, "errors": 2}, {"threshold": 1}]}, "f: rows[1].errors is missing"),
    ({"name": 3}, "f: name = 3 must be a text"),
    ({"name": None}, "f: name = None must be a text"),
    ({"on": 1}, "f: on = 1 must be true or false"),
    ({"grid": 0.5}, "f: grid = 0.5 must be a list"),
    ({"grid": "ab"}, "f: grid = 'ab' must be a list"),
    ({"grid": [0.5, True]}, "f: grid[1] = True must be a finite number"),
    ({"grid": [math.nan]}, "f: grid[0] = nan must be a finite number"),
    ({"grid": [-math.inf]}, "f: grid[0] = -inf must be a finite number"),
    ({"grid": [10**400]}, "... must be a finite number"),
    ({"pair": [1]}, "f: pair = [1] must be a list of 2"),
    ({"pair": [1, "a", "b"]}, "must be a list of 2"),
    ({"pair": [1.0, "a"]}, "f: pair[0] = 1.0 must be a whole number"),
    ({"pair": [True, "a"]}, "f: pair[0] = True must be a whole number"),
    ({"scorer": "bilinaer"}, "f: scorer = 'bilinaer'; did you mean 'bilinear'?"),
    ({"scorer": 3}, "f: scorer = 3 must be one of 'bilinear', 'geometry'"),
    ({"first": 3}, "f: first = 3 must be a table"),
    ({"second": "none"}, "f: second = 'none' must be a table"),
    ({"sources": []}, "f: sources = [] must be a table"),
    ({"sources": {"a": 1}}, "f: sources.a = 1 must be a text"),
    ({"first": {"threshold": 0, "errors": -1}}, "f: first: errors = -1 must be at least 0"),
    ({"arithmetic": 2.0}, "f: arithmetic = 2.0 must be a whole number"),
    ({"name": ["x" * 99]}, "f: name = ['xxxxxxxxx"),
]


@pytest.mark.parametrize(("change", "said"), MISTAKES)
@pytest.mark.parametrize("error", [InputError, ConfigError])
def test_a_mistake_is_told_with_place_key_value_and_what_was_expected(change, said, error) -> None:
    with pytest.raises(error) as caught:
        plain.read(Record, {**SMALL, **change}, "f", error)
    assert said in str(caught.value)
    assert str(caught.value).startswith("f: ")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("key", SMALL)
def test_every_key_without_a_default_must_be_there(key: str) -> None:
    with pytest.raises(InputError, match=f"^f: {key} is missing$"):
        plain.read(Record, {name: value for name, value in SMALL.items() if name != key}, "f")


def test_a_complete_table_has_the_keys_with_a_default_too() -> None:
    with pytest.raises(InputError, match=r"^f: scorer is missing$"):
        plain.read(Record, SMALL, "f", complete=True)
    whole = plain.of(plain.read(Record, SMALL, "f"))
    assert plain.read(Record, whole, "f", complete=True)
    with pytest.raises(InputError, match=r"^f: first\.note is missing$"):
        plain.read(Record, {**whole, "first": {"threshold": 0.0, "errors": 0}}, "f", complete=True)


@pytest.mark.parametrize("data", [None, [], "record", 3])
def test_what_is_no_table_is_refused(data: object) -> None:
    with pytest.raises(InputError, match=r"^f: expected a table, found "):
        plain.read(Record, data, "f")
    with pytest.raises(InputError, match=r"^x: expected a table, found "):
        plain.unsealed("x", Record, data)


def test_the_words_of_a_class_get_the_place_before_them_once() -> None:
    @dataclass(frozen=True)
    class Named:
        size: int

        def __post_init__(self) -> None:
            raise ConfigError(f"cloud: size {self.size} is too much")

    with pytest.raises(InputError, match=r"^cloud: size 3 is too much$"):
        plain.read(Named, {"size": 3}, "cloud")
    with pytest.raises(InputError, match=r"^f\.toml: cloud: size 3 is too much$"):
        plain.read(Named, {"size": 3}, "f.toml")
    with pytest.raises(InputError, match=r"^f\.toml: cloud: size 3 is too much$"):
        plain.read(Named, {"size": 3}, "f.toml", within="cloud")


def test_a_table_of_tables_needs_no_class() -> None:
    assert plain.value(dict[str, dict[str, float]], {"a": {"b": 1}}, "f") == {"a": {"b": 1.0}}
    with pytest.raises(InputError, match=r"^f: a\.b = 'x' must be a finite number$"):
        plain.value(dict[str, dict[str, float]], {"a": {"b": "x"}}, "f")
    with pytest.raises(ConfigError, match=r"^f: a = 3 must be a table$"):
        plain.value(dict[str, dict[str, float]], {"a": 3}, "f", ConfigError)
    with pytest.raises(InputError, match=r"^f: expected a table, found 3$"):
        plain.value(dict[str, float], 3, "f")


def test_a_type_that_is_no_plain_data_is_our_own_mistake() -> None:
    @dataclass(frozen=True)
    class Odd:
        a: set

    with pytest.raises(TypeError, match=r"a: .*set.* is no plain data"):
        plain.read(Odd, {"a": [1]}, "f")


def test_toml_is_read_or_told() -> None:
    assert plain.toml(b"a = 1\n[b]\nc = [1.5]\n", "f") == {"a": 1, "b": {"c": [1.5]}}
    for bad in (b"= 3", b"\xff\xfe\x00", b"a = 1\na = 2"):
        with pytest.raises(ConfigError, match=r"^f: not a TOML file \("):
            plain.toml(bad, "f")
