"""Small random heads of the stock form for tests: valid, and lively."""

from __future__ import annotations

import numpy as np

from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.heads.stock.layer import StockLayer

STEPS, READ_AFTER = 8, 3


def random_stock_layer(rng: np.random.Generator, n_inputs: int, n_neurons: int, first: bool) -> StockLayer:
    """Thresholds at about the spread of what a pulse brings, so that neurons fire now and then."""
    raw = rng.normal(0.0, 40.0, (n_neurons, n_inputs))
    weight = np.clip(2 * np.rint(raw / 2), -256, 254).astype(np.int64)
    spread = np.sqrt(n_inputs) * 40.0 * (4.0 if first else 0.5)
    return StockLayer(
        weight_int=weight,
        rho_int=2 * rng.integers(20, 128, n_neurons),
        threshold_int=64 * np.rint(spread * rng.uniform(0.2, 1.2, n_neurons)).astype(np.int64),
        lambda_int=int(rng.integers(3800, 4080)),
        factor=rng.uniform(0.5, 2.0, n_neurons),
        weight_exp=0,
    )


def random_stock_head(
    rng: np.random.Generator,
    n_inputs: int = 16,
    n_neurons: int = 16,
    n_layers: int = 2,
    steps: int = STEPS,
    read_after: int = READ_AFTER,
) -> HeadSpec:
    layers = [random_stock_layer(rng, n_neurons if i else n_inputs + 1, n_neurons, i == 0) for i in range(n_layers)]
    return HeadSpec(tuple(layers), STOCK, steps, read_after)


def random_stock_drives(rng: np.random.Generator, n_pulses: int, batch: int, n_inputs: int) -> np.ndarray:
    """[T, b, n] int64, spread like a LayerNormed drive: 4 steps a unit."""
    return np.rint(rng.normal(0.0, 4.0, (n_pulses, batch, n_inputs))).astype(np.int64)
