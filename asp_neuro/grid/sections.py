"""Sections: the deployed model as plain data, each array declared once.

A section is a frozen dataclass. Its fields are arrays (`leaf`: type and dimensions), sections within it (`part`, which
names the inner dimensions in the outer one's words; `X | None` may be absent) and settings (numbers, words). From that
one declaration follow the checks and their messages, the paths in a bundle, the form on the wire, the parameter count
and random instances for tests:

    @dataclass(frozen=True)
    class Matrix:
        weight: Array = leaf("i1", "out", "in")
        shift: Array = leaf("i1", "out")

    @dataclass(frozen=True)
    class Encoder:
        edge_in: Matrix = part("e1", 6)
        edge_out: Matrix = part("e2", "e1")
        chunk: Matrix | None = part("D", "w")
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from asp_neuro.errors import ConfigError

Array = np.ndarray
Dim = str | int
T = TypeVar("T")

LEAF, PART = "leaf", "part"
NORM_BITS = 16  # fractional bits of the gains and biases of a LayerNorm


_MEMBERS: dict[Any, tuple[Member, ...]] = {}


class Leaf(NamedTuple):
    """A declared array: numpy type code, dimensions (a number, or a name that is the same number throughout)."""

    dtype: str
    dims: tuple[Dim, ...]
    optional: bool = False  # in a part that may be absent
    is_scale: bool = False  # of the grid: not counted as a parameter

    def __str__(self) -> str:
        return f"{np.dtype(self.dtype)} [{', '.join(map(str, self.dims))}]"


def leaf(dtype: str, *dims: Dim, is_scale: bool = False) -> Any:
    """Declares an array."""
    return dataclasses.field(metadata={LEAF: Leaf(dtype, dims, is_scale=is_scale)})


def part(*dims: Dim, default: Any = dataclasses.MISSING) -> Any:
    """Declares a section within a section; `dims` stand for the inner dimensions in the order they first occur."""
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={PART: dims})
    return dataclasses.field(default=default, metadata={PART: dims})


class Member(NamedTuple):
    """A field of a section."""

    name: str
    cls: Any  # the section class of a part, else the annotated type
    leaf: Leaf | None
    dims: tuple[Dim, ...] | None  # of a part
    optional: bool


def members(cls: Any) -> tuple[Member, ...]:
    """What a section class consists of."""
    if cls not in _MEMBERS:
        _MEMBERS[cls] = _members(cls)
    return _MEMBERS[cls]


def _members(cls: Any) -> tuple[Member, ...]:
    hints = typing.get_type_hints(cls)
    found = []
    for item in dataclasses.fields(cls):
        if not item.init:
            continue
        hint, optional = _without_none(hints[item.name])
        found.append(Member(item.name, hint, item.metadata.get(LEAF), item.metadata.get(PART), optional))
    return tuple(found)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(inner) < len(typing.get_args(hint)):
            return (inner[0] if len(inner) == 1 else hint), True
    return hint, False


def declared(cls: Any) -> dict[str, Leaf]:
    """Path (`edge_in/weight`) -> leaf, all of them, in the order of the declaration."""
    found: dict[str, Leaf] = {}
    for member in members(cls):
        if member.leaf is not None:
            found[member.name] = member.leaf
        elif member.dims is not None:
            for path, inner in _renamed(member.cls, member.dims).items():
                found[f"{member.name}/{path}"] = inner._replace(optional=inner.optional or member.optional)
    return found


def _renamed(cls: type, dims: tuple[Dim, ...]) -> dict[str, Leaf]:
    """The leaves of an inner section, its dimensions in the words of the outer one."""
    inner = declared(cls)
    names = list(dict.fromkeys(dim for one in inner.values() for dim in one.dims if isinstance(dim, str)))
    if len(names) != len(dims):
        raise TypeError(f"{cls.__name__} has the dimensions {names}, {len(dims)} are given: {dims}")
    outer = dict(zip(names, dims))
    return {
        path: one._replace(dims=tuple(outer[dim] if isinstance(dim, str) else dim for dim in one.dims))
        for path, one in inner.items()
    }


def leaves(section: Any) -> dict[str, Array]:
    """Path -> array, of the parts that are there."""
    return dict(_leaves(section))


def _leaves(section: Any) -> Iterator[tuple[str, Array]]:
    for member in members(type(section)):
        value = getattr(section, member.name)
        if member.leaf is not None:
            yield member.name, value
        elif member.dims is not None and value is not None:
            for path, array in _leaves(value):
                yield f"{member.name}/{path}", array


def settings(section: Any) -> dict[str, Any]:
    """Name -> value of everything that is neither an array nor a part."""
    return {m.name: getattr(section, m.name) for m in members(type(section)) if m.leaf is None and m.dims is None}


def n_parameters(section: Any) -> int:
    """Elements of all arrays, scales of the grid apart."""
    known = declared(type(section))
    return sum(array.size for path, array in leaves(section).items() if not known[path].is_scale)


def check(section: Any, place: str) -> dict[str, int]:
    """Types, dimensions and values of every array as declared; returns what each named dimension stands for.

    A dimension takes its meaning from the first array that has it; the error names the array that does not fit.
    """
    sizes: dict[str, int] = {}
    table = declared(type(section))
    for path, array in leaves(section).items():
        expected = table[path]
        if not isinstance(array, np.ndarray) or array.dtype != np.dtype(expected.dtype):
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise ConfigError(f"{place}: {path} is {kind}, expected {expected}")
        fits = array.ndim == len(expected.dims) and array.size > 0
        if not fits or not all(_same(sizes, dim, n) for dim, n in zip(expected.dims, array.shape)):
            known = ", ".join(f"{dim} = {sizes[dim]}" for dim in expected.dims if isinstance(dim, str) and dim in sizes)
            where = f" with {known}" if known else ""
            raise ConfigError(f"{place}: {path} is {array.dtype} {list(array.shape)}, expected {expected}{where}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ConfigError(f"{place}: {path} holds values that are not finite")
    return sizes


def _same(sizes: dict[str, int], dim: Dim, n: int) -> bool:
    return n == (sizes.setdefault(dim, n) if isinstance(dim, str) else dim)


def build(cls: type[T], arrays: Mapping[str, Array], values: Mapping[str, Any]) -> T:
    """A section from its arrays by path and its settings; a part none of whose arrays is there is absent."""
    given: dict[str, Any] = {}
    for member in members(cls):
        if member.leaf is not None:
            if member.name not in arrays:
                raise ConfigError(f"{member.name} is missing")
            given[member.name] = arrays[member.name]
        elif member.dims is not None:
            inner = {path.split("/", 1)[1]: a for path, a in arrays.items() if path.startswith(f"{member.name}/")}
            if inner or not member.optional:
                given[member.name] = _built_part(member, inner)
            else:
                given[member.name] = None
        elif member.name in values:
            given[member.name] = values[member.name]
    return cls(**given)


def _built_part(member: Member, arrays: Mapping[str, Array]) -> Any:
    try:
        return build(member.cls, arrays, {})
    except ConfigError as error:
        raise ConfigError(f"{member.name}/{error}") from None


def random(
    cls: type[T],
    sizes: Mapping[str, int],
    draw: Callable[[str, tuple[int, ...]], Array],
    values: Mapping[str, Any] | None = None,
    absent: tuple[str, ...] = (),
) -> T:
    """An instance with arrays from `draw(path, shape)`; `absent` names optional parts to leave out."""
    arrays = {}
    for path, one in declared(cls).items():
        if not any(path.startswith(f"{name}/") for name in absent):
            shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in one.dims)
            arrays[path] = np.asarray(draw(path, shape)).astype(one.dtype)
    return build(cls, arrays, values or {})


@dataclass(frozen=True)
class Matrix:
    """x -> 2^-shift W x, row by row; 8-bit weights."""

    weight: Array = leaf("i1", "out", "in")
    shift: Array = leaf("i1", "out", is_scale=True)

    @property
    def n_outputs(self) -> int:
        return len(self.shift)


@dataclass(frozen=True)
class Affine:
    """x -> 2^-shift (W x + b), row by row; 8-bit weights, the bias in the unit of the sum or a part of it."""

    weight: Array = leaf("i1", "out", "in")
    bias: Array = leaf("i4", "out")
    shift: Array = leaf("i1", "out", is_scale=True)

    @property
    def n_outputs(self) -> int:
        return len(self.shift)


@dataclass(frozen=True)
class Norm:
    """LayerNorm: x -> gain (x - mean x) / sqrt(var x + eps) + bias, both in units of 2^-NORM_BITS."""

    gain: Array = leaf("i4", "n")
    bias: Array = leaf("i4", "n")

    @property
    def values(self) -> tuple[Array, Array]:
        """Gain and bias [n] float64."""
        return self.gain * 2.0**-NORM_BITS, self.bias * 2.0**-NORM_BITS

    @property
    def bound(self) -> Array:
        """[n] float64: the proven largest output, |gain| sqrt(n - 1) + |bias|."""
        gain, bias = self.values
        return np.asarray(np.abs(gain) * np.sqrt(len(gain) - 1.0) + np.abs(bias))
