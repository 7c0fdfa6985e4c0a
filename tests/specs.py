"""Small random networks for tests: valid, and lively (heads fire 10 to 60 % of the time on `random_drives`)."""

from __future__ import annotations

import numpy as np

from asp_neuro.bundle import Golden, make_golden
from asp_neuro.heads.soft.membrane import align_shift
from asp_neuro.heads.spec import HeadSpec, LayerSpec
from asp_neuro.model.host import HostSpec
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.scenes.cloud import N_DESCRIPTOR, N_MOMENTS, N_OUTLINE, Chunking

SMALL = Chunking(n_points=96, n_groups=16, group_size=8, n_chunks=6)


def random_layer(rng: np.random.Generator, n_inputs: int, n_neurons: int, first: bool) -> LayerSpec:
    """Rows of mean about 0, thresholds at about the spread of the synaptic sum, so that neurons fire now and then."""
    raw = rng.normal(0.0, 50.0, (n_neurons, n_inputs))
    if n_inputs > 1 and not first:
        raw -= raw.mean(axis=1, keepdims=True)
    weight = np.clip(2 * np.rint(raw / 2), -256, 254).astype(np.int64)
    state_bits = int(rng.integers(12, 15))
    spread = np.sqrt(n_inputs) * 50.0 * (64.0 if first else 0.5) * 2.0 ** align_shift(state_bits, first_layer=first)
    theta = spread * rng.uniform(0.6, 1.4, n_neurons)
    return LayerSpec(
        weight_int=weight,
        bias_int=np.rint(spread * rng.uniform(-0.2, 0.4, n_neurons)).astype(np.int64),
        lambda_int=rng.integers(3000, 4096, n_neurons),
        theta_int=np.rint(theta).astype(np.int64),
        theta_fire_int=np.floor(theta * rng.uniform(0.8, 1.2, n_neurons)).astype(np.int64),
        factor=rng.uniform(0.5, 2.0, n_neurons),
        state_bits=state_bits,
    )


def random_head(rng: np.random.Generator, n_inputs: int = 16, n_neurons: int = 16, n_layers: int = 2) -> HeadSpec:
    layers = [random_layer(rng, n_inputs if i == 0 else n_neurons, n_neurons, i == 0) for i in range(n_layers)]
    return HeadSpec(tuple(layers))


def random_drives(rng: np.random.Generator, n_steps: int, batch: int, n_inputs: int) -> np.ndarray:
    """[T, b, n] int64, spread like a LayerNormed drive: 2^6 steps a unit."""
    return np.rint(rng.normal(0.0, 64.0, (n_steps, batch, n_inputs))).astype(np.int64)


def random_host(
    rng: np.random.Generator,
    width: int = 16,
    n_neurons: int = 16,
    n_classes: int = 4,
    policy_width: int = 8,
    edge_widths: tuple[int, int] = (8, 12),
    scorer: str = "bilinear",
    mask: bool = True,
    token_width: int | None = None,
    moments: bool = False,
    first_look: int = 0,
) -> HostSpec:
    """A host of D = width and H = n_neurons; a token width of its own makes a chunk layer, units make a first look."""
    first, second = edge_widths
    token = token_width or width
    layer = {}

    def matrix(n_out: int, n_in: int, gain: float = 1.4) -> np.ndarray:
        return rng.normal(0.0, gain / np.sqrt(n_in), (n_out, n_in)).astype(np.float32)

    def bias(n: int) -> np.ndarray:
        return rng.normal(0.0, 0.1, n).astype(np.float32)

    def gain(n: int) -> np.ndarray:
        return rng.uniform(0.7, 1.3, n).astype(np.float32)

    if token_width is not None:
        layer = {"embedding_in_weight": matrix(width, token), "embedding_in_bias": bias(width)}
    if first_look:
        layer["policy_first_weight"], layer["policy_first_bias"] = matrix(first_look, N_OUTLINE, 3.0), bias(first_look)
        layer["policy_first_score"] = bias(first_look) * np.float32(10.0)
    return HostSpec(
        **layer,
        edge_in_weight=matrix(first, 6, 4.0),
        edge_in_bias=bias(first),
        edge_out_weight=matrix(second, first),
        edge_out_bias=bias(second),
        token_in_weight=matrix(token, second + 3 + (N_MOMENTS if moments else 0)),
        token_in_bias=bias(token),
        token_out_weight=matrix(token, token),
        token_out_bias=bias(token),
        embedding_gain=gain(width),
        embedding_bias=bias(width),
        gates_weight=matrix(5 * width, width),
        gates_bias=bias(5 * width),
        drive_gain=gain(width),
        drive_bias=bias(width),
        belief_gain=gain(n_neurons),
        belief_bias=bias(n_neurons),
        readout_weight=matrix(n_classes, n_neurons, 2.0),
        readout_bias=bias(n_classes),
        policy_belief=matrix(policy_width, n_neurons),
        policy_descriptor=matrix(policy_width, N_DESCRIPTOR, 3.0),
        policy_bias=bias(policy_width),
        policy_score=bias(policy_width) * np.float32(10.0),
        scorer=scorer,
        mask=mask,
    )


def random_perceiver(
    rng: np.random.Generator,
    width: int = 16,
    n_neurons: int = 16,
    n_layers: int = 2,
    n_classes: int = 4,
    chunking: Chunking = SMALL,
) -> Perceiver:
    head = random_head(rng, width, n_neurons, n_layers)
    host = random_host(rng, width, n_neurons, n_classes)
    return Perceiver(head, host, chunking, tuple(f"class {i}" for i in range(n_classes)))


def random_clouds(rng: np.random.Generator, n: int, n_points: int = SMALL.n_points) -> np.ndarray:
    """[n, P, 3] float64: squeezed, turned balls with a dent, all different."""
    points = rng.normal(size=(n, n_points, 3)) * rng.uniform(0.3, 1.5, (n, 1, 3))
    return points + np.abs(points[..., ::-1]) * rng.uniform(-0.7, 0.7, (n, 1, 3))


def golden(perceiver: Perceiver, drives_int: np.ndarray) -> Golden:
    """Golden vectors of given drives and of two random clouds."""
    points = random_clouds(np.random.default_rng(7), 2, perceiver.chunking.n_points)
    parts = (perceiver.host, perceiver.chunking, np.rint(points * 2000.0).astype(np.int16))
    return make_golden(perceiver.head, drives_int, *parts)
