"""Format 2 of the bundle: clouds and classes only, the host as a flat list of arrays.

Read, written back with a new certificate, and hashed as it was, until the host's arithmetic makes it obsolete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from asp_neuro import plain
from asp_neuro.bundle.netx import STRING, Kinds, string
from asp_neuro.errors import ConfigError, InputError, nearest
from asp_neuro.grid.sections import Norm, build, leaves
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.mixer import MixerSpec
from asp_neuro.model.policy import PolicySpec
from asp_neuro.model.spec import ModelSpec
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.cloud_encoder import CloudSpec
from asp_neuro.tasks.classify import ClassifySpec

FORM, TIMING = "soft", "ticked"  # what the form was called
INPUTS = "asp/golden/points"
PLACES = {  # section and path there: path in the file
    "scene": {
        "edge_in/weight": "edge/in_weight",
        "edge_in/bias": "edge/in_bias",
        "edge_out/weight": "edge/out_weight",
        "edge_out/bias": "edge/out_bias",
        "token_in/weight": "token/in_weight",
        "token_in/bias": "token/in_bias",
        "token_out/weight": "token/out_weight",
        "token_out/bias": "token/out_bias",
        "chunk/weight": "embedding/in_weight",
        "chunk/bias": "embedding/in_bias",
    },
    "mixer": {
        "embedding/gain": "embedding/gain",
        "embedding/bias": "embedding/bias",
        "gates/weight": "gates/weight",
        "gates/bias": "gates/bias",
        "drive/gain": "drive/gain",
        "drive/bias": "drive/bias",
    },
    "belief": {"gain": "belief/gain", "bias": "belief/bias"},
    "policy": {
        "from_belief": "policy/belief",
        "from_descriptor/weight": "policy/descriptor",
        "from_descriptor/bias": "policy/bias",
        "score": "policy/score",
        "first/outline/weight": "policy/first_weight",
        "first/outline/bias": "policy/first_bias",
        "first/score": "policy/first_score",
    },
    "task": {"readout/weight": "readout/weight", "readout/bias": "readout/bias"},
}
CLASSES = {"scene": CloudSpec, "mixer": MixerSpec, "belief": Norm, "policy": PolicySpec, "task": ClassifySpec}
MATRICES = ("weight", "policy/belief", "policy/descriptor")
HOST: Kinds = {
    f"asp/host/{place}": ("<f4", 2 if place.endswith(MATRICES) else 1)
    for places in PLACES.values()
    for place in places.values()
}
JSON_PARTS = ("chunking", "classes", "policy")
KINDS: Kinds = {
    "asp/model/timing": (STRING, 0),
    "asp/model/factor": ("<f8", 2),
    **dict.fromkeys((f"asp/model/{name}" for name in JSON_PARTS), (STRING, 0)),
    **HOST,
}
OPTIONAL = (
    frozenset({"asp/host/embedding/in_weight", "asp/host/embedding/in_bias"}),
    frozenset(f"asp/host/policy/first_{leaf}" for leaf in ("weight", "bias", "score")),
)


def golden(kinds: Kinds) -> Kinds:
    """The golden vectors, under the names that they had."""
    return {path.replace("inputs", "points"): kind for path, kind in kinds.items()}


def contents(held: Mapping[str, np.ndarray], model: ModelSpec) -> dict[str, np.ndarray]:
    """What both formats hold, and the model in this one."""
    scene, task = model.scene, model.task
    if not isinstance(scene, CloudSpec) or not isinstance(task, ClassifySpec) or model.budget != scene.n_places:
        raise ConfigError("format 2 holds classified clouds that are looked at whole, nothing else")
    out = {path.replace("golden/inputs", "golden/points"): array for path, array in held.items()}
    for name, places in PLACES.items():
        out |= {f"asp/host/{places[path]}": array for path, array in leaves(getattr(model, name)).items()}
    parts: dict[str, Any] = {
        "chunking": plain.of(scene.chunking),
        "classes": list(task.classes),
        "policy": {"scorer": model.policy.scorer, "mask": bool(model.policy.mask)},
    }
    out |= {f"asp/model/{name}": string(plain.text(value)) for name, value in parts.items()}
    out["asp/model/timing"] = string(TIMING)
    return out


def model(held: Mapping[str, np.ndarray], head: HeadSpec) -> ModelSpec:
    from asp_neuro.bundle.layout import read_json  # both formats store JSON alike

    timing = held["asp/model/timing"].tobytes().decode("ascii")
    if timing != TIMING:
        raise InputError(f"timing '{timing}' is not known; known: {TIMING}")
    parts = {name: read_json(f"asp/model/{name}", held) for name in JSON_PARTS}
    if not isinstance(parts["classes"], list):
        raise InputError("the classes are not a list")
    how = _section("chunking", parts["chunking"], CHUNKING_TYPES)
    values: dict[str, dict[str, Any]] = {
        "scene": {"chunking": Chunking(**how)},
        "policy": _section("policy", parts["policy"], {"scorer": str, "mask": bool}),
        "task": {"classes": tuple(parts["classes"])},
    }
    sections: dict[str, Any] = {}
    for name, places in PLACES.items():
        arrays = {path: held[f"asp/host/{place}"] for path, place in places.items() if f"asp/host/{place}" in held}
        sections[name] = build(CLASSES[name], arrays, values.get(name, {}))
    return ModelSpec(head=head, budget=how["n_chunks"], **sections)


WHOLE = ("n_points", "n_groups", "group_size", "n_chunks")
CHUNKING_TYPES: dict[str, Any] = {**dict.fromkeys(WHOLE, int), "overlap": float, "radius": (float, type(None))}


def _section(name: str, values: Any, types: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with exactly these keys and types."""
    if not isinstance(values, dict):
        raise InputError(f"asp/model/{name}: not a table")
    for key in values:
        if key not in types:
            raise InputError(f"asp/model/{name}: unknown key '{key:.40}'{nearest(key[:40], types)}")
    for key, kind in types.items():
        if key not in values:
            raise InputError(f"asp/model/{name}: {key} is missing")
        if not isinstance(values[key], kind) or (kind is int and isinstance(values[key], bool)):
            raise InputError(f"asp/model/{name}: {key} is {values[key]!r:.40}, which is not its type")
    return values
