"""Plain data: frozen dataclasses as what TOML and JSON hold (tables, lists, numbers, texts), and back with every check.

    read      plain data -> dataclass: unknown keys, missing keys and types are checked against the annotations, an
              error gives place, key, value and what was expected; what only the class can know, it checks itself
    of        dataclass -> plain data
    text      plain data -> JSON in one canonical form: sorted keys, no spaces, floats in their shortest exact form
    sealed    dataclass -> plain data with its own hash; `unsealed` refuses what was damaged or edited

Understood are bool, int, float (finite), str, nested dataclasses, tuple[X, ...], tuple[X, Y], dict[str, X], X | None,
Literal and Any. A bool is no number; a whole number is a float where one is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from asp_neuro.errors import AspError, ConfigError, InputError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")

SHOWN = 60  # characters of a value in an error
HASH = "sha256"
LATER = "asp_neuro later"
WORDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}


def later(default: Any) -> Any:
    """A field that files of earlier versions lack: at its default it is neither written nor hashed."""
    return dataclasses.field(default=default, metadata={LATER: True})


# Reading


def read(
    cls: type[T], data: Any, place: str, error: type[AspError] = InputError, *, complete: bool = False, within: str = ""
) -> T:
    """A dataclass from a table. `place` names the source in errors, `within` the table in it (`train`).

    A key that is not there takes the field's default; without a default, or if the table must be `complete`, it is
    missing.
    """
    values = _table(data, place, error, within)
    _check_keys(cls, values, place, error, complete, within)
    kinds = _kinds(cls)  # type: ignore[arg-type]
    reader = _Reader(place, error, complete)
    found = {key: reader.value(_key(within, key), kinds[key], value) for key, value in values.items()}
    try:
        return cls(**found)
    except AspError as refused:
        raise error(_placed(place, within, str(refused))) from None


def _check_keys(
    cls: type, values: Mapping[str, Any], place: str, error: type[AspError], complete: bool, within: str
) -> None:
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in values:
        if key not in fields:
            raise error(f"{place}: unknown key {_shown(_key(within, key))}{nearest(str(key)[:SHOWN], fields)}")
    for name, field in fields.items():
        if name not in values and (_is_required(field) or (complete and not field.metadata.get(LATER))):
            raise error(f"{place}: {_key(within, name)} is missing")


def value(kind: Any, data: Any, place: str, error: type[AspError] = InputError, key: str = "") -> Any:
    """The same for data of any other type that is understood: `dict[str, tuple[float, ...]]`."""
    return _Reader(place, error, complete=False).value(key, kind, data)


def toml(data: bytes, source: str) -> dict[str, Any]:
    """The tables of a TOML file; `source` names it in errors."""
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: not a TOML file ({error})") from None


@dataclasses.dataclass(frozen=True)
class _Reader:
    """One value after the other; `key` says where each stands: train.epochs, table[3].errors."""

    place: str
    error: type[AspError]
    complete: bool

    def value(self, key: str, kind: Any, value: Any) -> Any:
        if kind in WORDS:
            return self._simple(key, kind, value)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return read(kind, value, self.place, self.error, complete=self.complete, within=key)
        origin, options = typing.get_origin(kind), typing.get_args(kind)
        if origin in (types.UnionType, typing.Union) and len(options) == 2 and type(None) in options:
            (other,) = (option for option in options if option is not type(None))
            return None if value is None else self.value(key, other, value)
        if origin is tuple:
            return self._items(key, options, value)
        if origin is dict and options[0] is str:
            table = _table(value, self.place, self.error, key)
            return {name: self.value(_key(key, name), options[1], item) for name, item in table.items()}
        if origin is typing.Literal:
            return self._choice(key, options, value)
        if kind is Any:
            return value
        raise TypeError(f"{key}: {kind} is no plain data")

    def _simple(self, key: str, kind: type, value: Any) -> Any:
        if kind is float:
            fits = type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not
        else:
            fits = type(value) is kind
        if not fits:
            raise self._wrong(key, value, WORDS[kind])
        return kind(value)

    def _items(self, key: str, kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        any_number = len(kinds) == 2 and kinds[1] is Ellipsis
        if not isinstance(value, list | tuple) or not (any_number or len(value) == len(kinds)):
            raise self._wrong(key, value, "a list" if any_number else f"a list of {len(kinds)}")
        each = kinds[:1] * len(value) if any_number else kinds
        return tuple(self.value(f"{key}[{i}]", kind, item) for i, (kind, item) in enumerate(zip(each, value)))

    def _choice(self, key: str, choices: tuple[Any, ...], value: Any) -> Any:
        for choice in choices:
            if type(choice) is type(value) and choice == value:
                return choice
        if isinstance(value, str):
            raise self.error(f"{self.place}: {key} = {_shown(value)}{nearest(value[:SHOWN], map(str, choices))}")
        raise self._wrong(key, value, f"one of {', '.join(map(repr, choices))}")

    def _wrong(self, key: str, value: Any, expected: str) -> AspError:
        return self.error(f"{self.place}: {key} = {_shown(value)} must be {expected}")


@functools.cache  # a certificate has a hundred rows of one class
def _kinds(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _table(data: Any, place: str, error: type[AspError], within: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        what = f"{within} = {_shown(data)} must be a table" if within else f"expected a table, found {_shown(data)}"
        raise error(f"{place}: {what}")
    return data


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _key(within: str, key: object) -> str:
    return f"{within}.{key}" if within else str(key)


def _shown(value: Any) -> str:
    whole = repr(value)
    return whole if len(whole) <= SHOWN else f"{whole[: SHOWN - 3]}..."


def _placed(place: str, within: str, message: str) -> str:
    """A class names its key or itself as far as it knows; the rest of the place is put before it, once."""
    inner = message if not within or message.startswith(within) else f"{within}: {message}"
    return inner if inner.startswith(f"{place}: ") else f"{place}: {inner}"


# Writing


def of(record: Any, unset: bool = True) -> dict[str, Any]:
    """A dataclass as tables, lists, numbers and texts; without `unset`, TOML's way: no entry for what is None."""
    found = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if (value is None and not unset) or (field.metadata.get(LATER) and value == field.default):
            continue
        found[field.name] = _plain(value, unset)
    return found


def _plain(value: Any, unset: bool) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return of(value, unset)
    if isinstance(value, Mapping):
        return {key: _plain(item, unset) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, unset) for item in value]
    return value


def text(data: Any) -> str:
    """Canonical JSON: one text for one value, the same on every machine."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(kind: str, data: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical text; `kind` keeps records of different kinds with equal fields apart."""
    return hashlib.sha256(text({"kind": kind, **data}).encode()).hexdigest()


# With a hash of its own


def seal(kind: str, record: Any) -> str:
    """The hash of a record."""
    return digest(kind, of(record))


def sealed(kind: str, record: Any) -> dict[str, Any]:
    """Plain data that holds its own hash."""
    return {**of(record), HASH: seal(kind, record)}


def unsealed(kind: str, cls: type[T], data: Any) -> T:
    """The record again, if it is the one that was sealed."""
    values = dict(_table(data, kind, InputError, ""))
    stored = values.pop(HASH, None)
    record = read(cls, values, kind)
    found = seal(kind, record)
    if stored != found:
        raise InputError(f"{kind}: damaged or edited (its hash is {found[:12]}, it says {str(stored)[:12]})")
    return record
