"""The layout of a bundle: one flat table from path to array.

    layer/0..          the head in NetX's layout (`netx.py`, `netx_stock.py`)
    asp/head/          of the stock form: time steps an observation, when the membrane is read
    asp/format, asp/version, asp/model_sha256
    asp/model/         budget, form, factor, belief/, and the sections scene/, mixer/, policy/, task/: kind (scene and
                       task), settings (JSON), and their arrays under the paths of their declaration
    asp/golden/        golden vectors
    asp/about/         licence, recipe, record, versions (JSON)
    asp/exit/          familiarity, plan, certificate, points, origin (JSON), outside the model's hash

No group has more than 8 entries, which HDF5 would store in another way.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from asp_neuro import plain, scenes, tasks
from asp_neuro.bundle.netx import LAYOUTS, STRING, Kinds, string
from asp_neuro.bundle.records import FORMAT, Bundle, Golden, one_line, parse_json
from asp_neuro.errors import InputError, nearest
from asp_neuro.grid.sections import Norm, build, declared, leaves, members, settings
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.mixer import MixerSpec
from asp_neuro.model.policy import PolicySpec
from asp_neuro.model.spec import ModelSpec

NAME = "asp-neuro bundle"
HASH = "asp/model_sha256"
ABOUT = {name: f"asp/about/{name}" for name in ("licence", "recipe", "record", "versions")}
EXIT = {
    name: f"asp/exit/{name}" for name in ("familiarity", "plan", "certificate", "points", "origin")
}  # outside `model_sha256`
SECTIONS = ("scene", "mixer", "policy", "task")
KINDS: dict[str, Mapping[str, Any]] = {"scene": scenes.KINDS, "task": tasks.KINDS}  # those that have several
PLAIN_SECTIONS = {"mixer": MixerSpec, "policy": PolicySpec}
BELIEF = "asp/model/belief"
FRAME: Kinds = {
    "asp/format": (STRING, 0),
    "asp/version": ("<i8", 0),
    HASH: (STRING, 0),
    **dict.fromkeys((*ABOUT.values(), *EXIT.values()), (STRING, 0)),
}
MODEL: Kinds = {"asp/model/budget": ("<i8", 0), "asp/model/form": (STRING, 0), "asp/model/factor": ("<f8", 2)}


@dataclasses.dataclass(frozen=True)
class Table:
    """What a file may hold: path -> type and number of dimensions, and the sets of paths that are there or not."""

    kinds: Kinds
    optional: tuple[frozenset[str], ...]
    layer: Kinds

    def kind(self, path: str) -> tuple[str, int] | None:
        """Of a path; None: nothing is stored there."""
        first, _, rest = path.partition("/")
        number, _, leaf = rest.partition("/")
        if first == "layer" and number in set("01234567"):
            return self.layer.get(leaf)
        return self.kinds.get(path)


def table(names: Mapping[str, str]) -> Table:
    """The table of a file; `names` are the kinds and the form that it names: scene, task, form."""
    optional: tuple[frozenset[str], ...] = ()
    golden = {f"asp/golden/{name}": _kind(one) for name, one in declared(Golden).items()}
    kinds = {**FRAME, **MODEL, **golden, **_section_kinds(f"{BELIEF}/", Norm), **LAYOUTS[names["form"]].head}
    for name in SECTIONS:
        cls, place = section_class(name, names), f"asp/model/{name}"
        kinds |= {f"{place}/settings": (STRING, 0), **_section_kinds(f"{place}/", cls)}
        kinds |= {f"{place}/kind": (STRING, 0)} if name in KINDS else {}
        optional += _optional_parts(f"{place}/", cls)
    layer = LAYOUTS[names["form"]].leaves
    return Table(kinds, (*optional, *(frozenset({path}) for path in EXIT.values())), layer)


def section_class(name: str, names: Mapping[str, str]) -> Any:
    """The class of a section, by its kind where there are several."""
    return KINDS[name][names[name]] if name in KINDS else PLAIN_SECTIONS[name]


def _kind(leaf: Any) -> tuple[str, int]:
    return np.dtype(leaf.dtype).newbyteorder("<").str, len(leaf.dims)


def _section_kinds(place: str, cls: Any) -> Kinds:
    return {f"{place}{path}": _kind(leaf) for path, leaf in declared(cls).items()}


def _optional_parts(place: str, cls: Any) -> tuple[frozenset[str], ...]:
    parts = [member.name for member in members(cls) if member.dims is not None and member.optional]
    return tuple(frozenset(f"{place}{path}" for path in declared(cls) if path.startswith(f"{p}/")) for p in parts)


# Writing


def contents(bundle: Bundle) -> dict[str, np.ndarray]:
    """Path -> array: all that a file holds."""
    held = _model_contents(bundle)
    held[HASH] = string(digest(held))
    for name, path in EXIT.items():
        value = getattr(bundle, name)
        if value is not None:
            held[path] = string(plain.text(value))
    return held


def model_sha256(bundle: Bundle) -> str:
    """Identity of a model: over everything except familiarity, plan, certificate and itself."""
    return digest(_model_contents(bundle))


def names_of(model: ModelSpec) -> dict[str, str]:
    """Kinds and form, as `table` wants them."""
    return {"scene": model.scene.kind, "task": model.task.kind, "form": model.head.form}


def _model_contents(bundle: Bundle) -> dict[str, np.ndarray]:
    model = bundle.model
    held = {place: string(plain.text(getattr(bundle, name))) for name, place in ABOUT.items()}
    held |= {f"asp/golden/{name}": array for name, array in leaves(bundle.golden).items()}
    held["asp/format"] = string(NAME)
    held["asp/version"] = np.array(FORMAT)
    held |= model_arrays(model)
    known = table(names_of(model))
    return {path: _stored(known, path, array) for path, array in sorted(held.items())}


def model_arrays(model: ModelSpec) -> dict[str, np.ndarray]:
    """Path -> array: a whole model; `read_model` is the way back."""
    return {**head_arrays(model.head), **section_arrays(model)}


def head_arrays(head: HeadSpec) -> dict[str, np.ndarray]:
    """Path -> array: the layers, and what NetX has no word for."""
    held = {"asp/model/factor": np.stack([layer.factor for layer in head.layers])}
    held |= LAYOUTS[head.form].head_contents(head)
    for number, layer in enumerate(head.layers):
        stored = LAYOUTS[head.form].contents(layer)
        held |= {f"layer/{number}/{name}": array for name, array in stored.items()}
    return held


def section_arrays(model: ModelSpec) -> dict[str, np.ndarray]:
    """Path -> array: all of a model but its head."""
    held = {"asp/model/budget": np.array(model.budget), "asp/model/form": string(model.head.form)}
    held |= {f"{BELIEF}/{path}": array for path, array in leaves(model.belief).items()}
    for name in SECTIONS:
        section: Any = getattr(model, name)
        held |= {f"asp/model/{name}/{path}": array for path, array in leaves(section).items()}
        held[f"asp/model/{name}/settings"] = string(plain.text(settings_text(section)))
        if name in KINDS:
            held[f"asp/model/{name}/kind"] = string(section.kind)
    return held


def settings_text(section: Any) -> dict[str, Any]:
    """The settings of a section as plain data."""
    return {
        name: plain.of(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        for name, value in settings(section).items()
    }


def _stored(known: Table, path: str, array: np.ndarray) -> np.ndarray:
    """The array in the type that its place in the file has."""
    kind = known.kind(path)
    assert kind is not None, path
    return np.asarray(array, order="C") if kind[0] == STRING else np.asarray(array, dtype=kind[0], order="C")


def digest(held: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over path, type, shape and bytes of every array, in sorted order."""
    total = hashlib.sha256()
    for path, array in sorted(held.items()):
        shape = ",".join(map(str, array.shape))
        total.update(f"{path} {array.dtype.str} [{shape}]\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


# Reading


def read_names(text: Any) -> dict[str, str]:
    """The kinds and the form that a file names; `text(path)` reads a word of it. Unknown ones are refused."""
    names = {name: text(f"asp/model/{name}/kind") for name in KINDS} | {"form": text("asp/model/form")}
    for name, known in (*KINDS.items(), ("form", LAYOUTS)):
        if names[name] not in known:
            raise InputError(f"{name} '{names[name][:40]}' is not known{nearest(names[name][:40], known)}")
    return names


def assemble(held: Mapping[str, np.ndarray], names: Mapping[str, str]) -> Bundle:
    """Arrays of known types and dimensions -> Bundle; the classes check the values."""
    about = {name: read_json(place, held) for name, place in (ABOUT | EXIT).items() if place in held}
    if not isinstance(about["licence"], str):
        raise InputError("the licence is not a text")
    golden = {name: held[f"asp/golden/{name}"] for name in declared(Golden)}
    return Bundle(model=read_model(held, names), golden=Golden(**golden), **about)


def read_model(held: Mapping[str, np.ndarray], names: Mapping[str, str]) -> ModelSpec:
    """A model from what `model_arrays` gave."""
    head = read_head(held, names["form"])
    sections: dict[str, Any] = {}
    for name in SECTIONS:
        cls, place = section_class(name, names), f"asp/model/{name}/"
        values = read_settings(cls, read_json(f"{place}settings", held), f"{place}settings")
        sections[name] = build(cls, below(held, place), values)
    budget = int(held["asp/model/budget"])
    return ModelSpec(head=head, belief=build(Norm, below(held, f"{BELIEF}/"), {}), budget=budget, **sections)


def below(held: Mapping[str, np.ndarray], place: str) -> dict[str, np.ndarray]:
    """The arrays below a place, by the rest of their path; texts apart."""
    return {path[len(place) :]: a for path, a in held.items() if path.startswith(place) and a.dtype.kind != "S"}


def read_settings(cls: Any, values: Any, place: str) -> dict[str, Any]:
    """A JSON object with exactly the settings of a section, of their types."""
    kinds = {member.name: member for member in members(cls) if member.leaf is None and member.dims is None}
    if not isinstance(values, dict):
        raise InputError(f"{place}: not a table")
    for key in values:
        if key not in kinds:
            raise InputError(f"{place}: unknown key '{key:.40}'{nearest(key[:40], kinds)}")
    for key in kinds:
        if key not in values:
            raise InputError(f"{place}: {key} is missing")
    hints = {key: member.cls | None if member.optional else member.cls for key, member in kinds.items()}
    return {key: plain.value(hints[key], value, place, InputError, key) for key, value in values.items()}


def read_head(held: Mapping[str, np.ndarray], form: str) -> HeadSpec:
    """A head from what `head_arrays` gave."""
    n_layers = sum(path.endswith("/neuron/type") for path in held)
    factor = held["asp/model/factor"]
    if len(factor) != n_layers:
        raise InputError(f"asp/model/factor: {len(factor)} rows for {n_layers} layers")
    each = ({leaf: held[f"layer/{number}/{leaf}"] for leaf in LAYOUTS[form].leaves} for number in range(n_layers))
    layers = tuple(LAYOUTS[form].layer(stored, row) for stored, row in zip(each, factor, strict=True))
    return HeadSpec(layers, form, **LAYOUTS[form].schedule(held))


def read_json(place: str, held: Mapping[str, np.ndarray]) -> Any:
    try:
        return parse_json(held[place].tobytes().decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not the JSON that is written here ({one_line(error)})") from None
