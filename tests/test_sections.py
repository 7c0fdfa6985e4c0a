"""One declaration per array: checks, paths, counts, building and random instances follow from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import (
    Array,
    Norm,
    build,
    check,
    declared,
    leaf,
    leaves,
    n_parameters,
    part,
    random,
    settings,
)


@dataclass(frozen=True)
class Map:
    """x -> W x + b."""

    weight: Array = leaf("f4", "out", "in")
    bias: Array = leaf("f4", "out")


@dataclass(frozen=True)
class Pair:
    """Two maps one after the other, perhaps a third, a table of whole numbers and two settings."""

    first: Map = part("mid", 3)
    second: Map = part("out", "mid")
    table: Array = leaf("i2", "out", 4)
    third: Map | None = part("out", "out", default=None)
    rate: float = 0.5
    words: tuple[str, ...] = ()


SIZES = {"mid": 5, "out": 2}


def draw(path: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


def made(**changes: object) -> Pair:
    return dataclasses.replace(random(Pair, SIZES, draw, {"rate": 0.25}, absent=("third",)), **changes)


def test_the_declaration_gives_paths_types_and_dimensions():
    table = {path: (str(one), one.optional) for path, one in declared(Pair).items()}
    assert table == {
        "first/weight": ("float32 [mid, 3]", False),
        "first/bias": ("float32 [mid]", False),
        "second/weight": ("float32 [out, mid]", False),
        "second/bias": ("float32 [out]", False),
        "table": ("int16 [out, 4]", False),
        "third/weight": ("float32 [out, out]", True),
        "third/bias": ("float32 [out]", True),
    }


def test_an_instance_gives_its_arrays_settings_and_count():
    pair = made()
    assert list(leaves(pair)) == ["first/weight", "first/bias", "second/weight", "second/bias", "table"]
    assert settings(pair) == {"rate": 0.25, "words": ()}
    assert n_parameters(pair) == 5 * 3 + 5 + 2 * 5 + 2 + 2 * 4
    assert check(pair, "pair") == SIZES


def test_an_instance_is_built_from_its_arrays_and_settings():
    for absent in ((), ("third",)):
        pair = random(Pair, SIZES, draw, {"words": ("a", "b")}, absent)
        again = build(Pair, leaves(pair), settings(pair))
        assert (again.third is None) == bool(absent)
        assert settings(again) == settings(pair)
        for path, array in leaves(pair).items():
            np.testing.assert_array_equal(leaves(again)[path], array)


def test_half_of_an_optional_part_is_refused():
    arrays = leaves(random(Pair, SIZES, draw))
    del arrays["third/bias"]
    with pytest.raises(ConfigError, match="third/bias is missing"):
        build(Pair, arrays, {})
    with pytest.raises(ConfigError, match="first/weight is missing"):
        build(Pair, {}, {})


def test_what_does_not_fit_is_named_with_what_was_expected():
    good = made()
    wide = Map(np.zeros((2, 6), np.float32), np.zeros(2, np.float32))
    for change, said in [
        (
            {"second": wide},
            r"second/weight is float32 \[2, 6\], expected float32 \[out, mid\] with out = 2, mid = 5",
        ),
        ({"table": good.table.astype(np.int32)}, r"pair: table is int32, expected int16 \[out, 4\]"),
        ({"table": good.table[:, :3]}, r"pair: table is int16 \[2, 3\], expected int16 \[out, 4\] with out = 2"),
        ({"table": [[1, 2, 3, 4]] * 2}, r"pair: table is list, expected int16"),
        (
            {"first": Map(np.full((5, 3), np.nan, np.float32), np.zeros(5, np.float32))},
            "first/weight holds values that",
        ),
    ]:
        with pytest.raises(ConfigError, match=said):
            check(dataclasses.replace(good, **change), "pair")


def test_a_part_whose_dimensions_do_not_match_its_class_is_a_mistake_of_the_program():
    @dataclass(frozen=True)
    class Wrong:
        only: Norm = part("a", "b")

    with pytest.raises(TypeError, match="Norm has the dimensions"):
        declared(Wrong)
