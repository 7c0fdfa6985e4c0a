"""The head as a NIR graph (`--nir`), for other neuromorphic tools: affine maps and leaky neurons that fire.

    input -> affine_1 -> lif_1 -> affine_2 -> lif_2 -> ... -> output          (and lif_i -> affine_j for every later j)

In NIR's words, with one observation as the unit of time: weight = W_int / 2^6, bias = bias_int / 2^f,
tau = r = 1/(1 - lambda), v_threshold = theta_fire_int / 2^f; a drive is x_int / 2^6, a membrane u_int / 2^f.
NIR has no word for the rest, which is therefore metadata: the reset subtracts `theta_int`, the synaptic sum is
rectified, the integer grid, the ticked timing. A tool that ignores the metadata runs a different network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro import files
from asp_neuro.errors import ConfigError, InputError, MissingError, UsageError
from asp_neuro.heads.bits import DRIVE_BITS
from asp_neuro.heads.membrane import LEAK_BITS, WEIGHT_BITS
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.spec import SOFT, HeadSpec
from asp_neuro.libraries import demand
from asp_neuro.runtime.kinds import kind

FORMAT = "asp-neuro head"
VERSION = 1
WHOLE = float(1 << LEAK_BITS)
NOTE = (
    "Soft reset: a spike subtracts theta_int at the next observation and keeps the overshoot. The affine map's output"
    " is rectified. The leak rounds toward zero and states saturate at 24 bits. Neurons update once per observation"
    " (tick). NIR's v_reset does not apply."
)

TIMING = {"soft": "ticked"}  # what a form is called in the file


def _library() -> Any:
    """The `nir` package, or an error that says how to have it."""
    demand("nir", "a NIR file")
    import nir

    return nir


def graph(head: HeadSpec, model_sha256: str = "") -> Any:
    """HeadSpec -> nir.NIRGraph."""
    nir = _library()

    width = head.layers[0].n_neurons
    nodes: dict[str, Any] = {"input": nir.Input(input_type=np.array([head.n_inputs]))}
    edges = [("input", "affine_1")]
    for number, layer in enumerate(head.layers, start=1):
        nodes[f"affine_{number}"], nodes[f"lif_{number}"] = _nodes(nir, layer)
        edges.append((f"affine_{number}", f"lif_{number}"))
        edges += [(f"lif_{number}", f"affine_{later}") for later in range(number + 1, len(head.layers) + 1)]
    nodes["output"] = nir.Output(output_type=np.array([width]))
    edges.append((f"lif_{len(head.layers)}", "output"))
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "layers": len(head.layers),
        "timing": TIMING[head.form],
        "drive_bits": DRIVE_BITS,
        "note": NOTE,
        "model_sha256": model_sha256 or "none",
    }
    return nir.NIRGraph(nodes=nodes, edges=edges, metadata=metadata)


def _nodes(nir: Any, layer: LayerSpec) -> tuple[Any, Any]:
    scale = 2.0**layer.state_bits
    tau = WHOLE / (WHOLE - layer.lambda_int)  # 1 / (1 - lambda); lambda_int is at most 4095
    affine = nir.Affine(
        weight=layer.weight_int / 2.0**WEIGHT_BITS,
        bias=layer.bias_int / scale,
        metadata={"weight_bits": WEIGHT_BITS, "state_bits": layer.state_bits, "rectified": 1},
    )
    neuron = nir.LIF(
        tau=tau,
        r=tau.copy(),
        v_leak=np.zeros(layer.n_neurons),
        v_threshold=layer.theta_fire_int / scale,
        metadata={
            "reset": "subtract",
            "state_bits": layer.state_bits,
            "theta_int": layer.theta_int.astype(np.int64),
            "factor": layer.factor.astype(np.float64),
        },
    )
    return affine, neuron


@dataclass(frozen=True)
class _Plain:
    """A graph as nir writes it, but without a `v_reset` of 0: nir before 1.0.5 knows no such word and refuses the file,
    and later ones take 0 where it is not said."""

    graph: Any

    def to_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = self.graph.to_dict()
        for node in content["nodes"].values():
            if "v_reset" in node and not np.any(node["v_reset"]):
                del node["v_reset"]
        return content


def write(path: str | Path, head: HeadSpec, model_sha256: str = "") -> None:
    """The file at `path` is always whole, the old one or the new one."""
    if head.form != SOFT:
        raise UsageError(f"NIR files hold heads of the soft form, this one is '{head.form}': its file is NetX already")
    nir = _library()
    with files.writing(path) as file:
        nir.write(file, _Plain(graph(head, model_sha256)))


def read(path: str | Path) -> HeadSpec:
    """The integer head again. For files of our own: other NIR graphs lack the metadata and are refused."""
    nir = _library()

    if not Path(path).exists():
        raise MissingError(f"'{path}' does not exist")
    try:
        found = nir.read(path)
        return _head(found)
    except (ConfigError, InputError) as error:
        raise InputError(f"'{path}': {error}") from None
    except Exception as error:  # a file that is not NIR can fail anywhere in the reader
        if kind(path) == "bundle":
            made = "`asp-neuro export model.pt --nir FILE` writes one from its checkpoint"
            raise InputError(f"'{path}' is a bundle and no NIR graph; {made}") from None
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        raise InputError(f"'{path}': cannot be read as a NIR graph ({reason})") from None


def _head(found: Any) -> HeadSpec:
    about = {key: _text(value) for key, value in found.metadata.items()}
    if about.get("format") != FORMAT or int(about.get("version", -1)) != VERSION:
        raise InputError("a NIR graph, but not a head that was written here (its metadata are missing)")
    n_layers = int(about["layers"])
    layers = tuple(_layer(found.nodes[f"affine_{n}"], found.nodes[f"lif_{n}"]) for n in range(1, n_layers + 1))
    forms = {timing: form for form, timing in TIMING.items()}
    return HeadSpec(layers, forms.get(about["timing"], about["timing"]))


def _layer(affine: Any, neuron: Any) -> LayerSpec:
    state_bits = int(neuron.metadata["state_bits"])
    scale = 2.0**state_bits
    return LayerSpec(
        weight_int=_whole("weight", affine.weight * 2.0**WEIGHT_BITS),
        bias_int=_whole("bias", affine.bias * scale),
        lambda_int=_whole("leak", WHOLE - WHOLE / neuron.tau, slack=1e-6),
        theta_int=np.asarray(neuron.metadata["theta_int"], dtype=np.int64),
        theta_fire_int=_whole("threshold", neuron.v_threshold * scale),
        factor=np.asarray(neuron.metadata["factor"], dtype=np.float64),
        state_bits=state_bits,
    )


def _whole(name: str, values: np.ndarray, slack: float = 0.0) -> np.ndarray:
    nearest = np.rint(values)
    if not (np.abs(values - nearest) <= slack).all():
        raise InputError(f"{name} is not on the integer grid")
    return nearest.astype(np.int64)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
