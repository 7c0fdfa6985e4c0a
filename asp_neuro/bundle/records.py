"""Bundle and Golden: what a bundle holds, and what it must be."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asp_neuro import plain
from asp_neuro.bundle.origin import read_origin
from asp_neuro.certify import Certificate, Plan
from asp_neuro.certify.part_promise import PartPromise
from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import Array, leaf
from asp_neuro.heads.bits import DRIVE_MAX, STATE_MAX, STATE_MIN
from asp_neuro.heads.spec import HeadSpec, check_synaptic_sums
from asp_neuro.model.familiarity import Familiarity, with_statistics
from asp_neuro.model.spec import Model, ModelSpec

FORMAT = 4  # the host in integers; earlier ones held it in floating point
MAX_LAYERS = 8
MAX_WHOLE = 2**53  # whole numbers in JSON


@dataclass(frozen=True, eq=False)
class Golden:
    """Recorded runs of the reference: what every machine must reproduce, bit for bit."""

    drives_int: Array = leaf("i2", "T", "b", "D")
    membranes: Array = leaf("i4", "T", "L", "b", "H")
    spikes: Array = leaf("u1", "T", "L", "b", "H")
    inputs: Array = leaf("i2", "c", "P", 3)  # raw inputs of scenes, as the kind of scene takes them (clouds: y up)
    host_drives_int: Array = leaf("i2", "B", "c", "D")  # what the host makes of them, place 0 first


@dataclass(frozen=True, eq=False)
class Bundle:
    """A deployed model. The dictionaries are plain data (JSON); those that end it are `to_dict` of theirs."""

    model: ModelSpec
    recipe: dict[str, Any]
    golden: Golden
    record: dict[str, Any] = field(default_factory=dict)  # of the discretisation and the training
    versions: dict[str, str] = field(default_factory=dict)
    licence: str = ""
    plan: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    familiarity: dict[str, Any] | None = None  # None: no cloud is called unfamiliar
    points: dict[str, Any] | None = None  # what is promised of points (`certify/part_promise.py`)
    origin: dict[str, Any] | None = None  # own data, used calibration clouds (`origin.py`)

    def __post_init__(self) -> None:
        for name in ("recipe", "record", "versions", "plan", "certificate", "familiarity", "points", "origin"):
            value = getattr(self, name)
            if value is None and name in ("plan", "certificate", "familiarity", "points", "origin"):
                continue
            if not isinstance(value, dict):
                raise ConfigError(f"{name} is a {type(value).__name__}, expected a table")
            object.__setattr__(self, name, as_json(name, value))
        _check_words(self)
        _check_fit(self.model)
        _check_golden(self)
        _check_promises(self)
        read_origin(self.origin)

    @property
    def head(self) -> HeadSpec:
        return self.model.head

    @property
    def classes(self) -> tuple[str, ...]:
        return self.model.classes


def _check_words(bundle: Bundle) -> None:
    for name, word in [("licence", bundle.licence), *(("class", word) for word in bundle.classes)]:
        if not isinstance(word, str) or not all(letter.isprintable() or letter == "\n" for letter in word):
            raise ConfigError(f"{name} {word!r:.60} is not printable text")
    if len(set(bundle.classes)) != len(bundle.classes):
        raise ConfigError(f"{len(bundle.classes)} classes, of which {len(set(bundle.classes))} are distinct")
    for name, version in bundle.versions.items():
        if not isinstance(version, str):
            raise ConfigError(f"versions: {name} is {version!r:.60}, expected text")


def _check_fit(model: ModelSpec) -> None:
    """The model can be built, and its sums fit."""
    if len(model.head.layers) > MAX_LAYERS:
        raise ConfigError(f"{len(model.head.layers)} layers, at most {MAX_LAYERS} are stored")
    Model(model)  # its sums must be exact
    check_synaptic_sums(model.head, model.drive_bound())
    model.head.neurons.prove_ranges(model.head, model.mixer.drive, model.drive_bound(), model.budget)


def _check_golden(bundle: Bundle) -> None:
    golden, model = bundle.golden, bundle.model
    layers = model.head.layers
    if golden.drives_int.ndim != 3 or golden.drives_int.shape[2] != model.head.n_inputs:
        raise ConfigError(f"golden: drives have shape {list(golden.drives_int.shape)}")
    if golden.inputs.ndim < 1:
        raise ConfigError(f"golden: inputs have shape {list(golden.inputs.shape)}")
    steps, batch = golden.drives_int.shape[:2]
    state = (steps, len(layers), batch, layers[0].n_neurons)
    seen = (model.budget, len(golden.inputs), model.head.n_inputs)
    expected = {
        "drives_int": (golden.drives_int.shape, -DRIVE_MAX, DRIVE_MAX),
        "membranes": (state, STATE_MIN, STATE_MAX),
        "spikes": (state, 0, 1),
        "host_drives_int": (seen, -DRIVE_MAX, DRIVE_MAX),
        "inputs": (golden.inputs.shape, -(2**15), 2**15 - 1),
    }
    for item in dataclasses.fields(Golden):
        values, (shape, low, high) = getattr(golden, item.name), expected[item.name]
        dtype = np.dtype(item.metadata["leaf"].dtype)
        if values.dtype != dtype or values.shape != shape or values.size == 0:
            given = f"{values.dtype} {list(values.shape)}"
            raise ConfigError(f"golden: {item.name} is {given}, expected {dtype} {list(shape)}, not empty")
        if values.min() < low or values.max() > high:
            raise ConfigError(f"golden: {item.name} {values.min()}..{values.max()} is outside {low}..{high}")


def _check_promises(bundle: Bundle) -> None:
    """Familiarity, plan and certificate are whole: keys, types, own hashes. Whether they hold is asked at use."""
    if bundle.familiarity is not None:
        _check_familiarity(bundle)
    if bundle.points is not None:
        PartPromise.from_dict(bundle.points)
    if bundle.plan is None and bundle.certificate is None:
        return
    if bundle.plan is None:
        raise ConfigError("a certificate without its plan")
    Plan.from_dict(bundle.plan)
    if bundle.certificate is not None:
        Certificate.from_dict(bundle.certificate)


def _check_familiarity(bundle: Bundle) -> None:
    known, scene = Familiarity.from_dict(bundle.familiarity), with_statistics(bundle.model.scene)
    if known.statistics != (() if scene is None else tuple(scene.words)[: len(known.statistics)]):  # later ones follow
        raise ConfigError(f"familiarity: {len(known.statistics)} statistics, of which this kind of scene has others")
    if max(known.owners) >= len(bundle.classes):
        raise ConfigError(f"familiarity: class {max(known.owners)} of {len(bundle.classes)}")


# JSON, canonical: one text for one value


def as_json(name: str, value: Any) -> Any:
    """The value as JSON gives it back (tuples become lists); what JSON cannot say is refused."""
    try:
        return parse_json(plain.text(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not plain data ({one_line(error)})") from None


def parse_json(text: str) -> Any:
    value = json.loads(text, parse_int=_whole, parse_constant=_no_number)
    json.dumps(value, ensure_ascii=False).encode()  # refuses half a surrogate pair, which no terminal can print
    return value


def _whole(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_WHOLE:
        raise ValueError(f"whole number {digits[:20]} exceeds 2^53")
    return int(digits)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


def one_line(error: BaseException) -> str:
    """An error as one short line that a terminal can print."""
    return printable(" ".join(str(error).split()) or type(error).__name__)[:300]


def printable(text: str, also: str = "") -> str:
    return "".join(letter if letter.isprintable() or letter in also else "?" for letter in text)
