"""The ways to look that are compared: the learned policy and its rivals (paper 3.1).

learned      the policy's choice
random       a fixed random order per cloud
fps_order    chunks in farthest-point order
oracle       the unvisited chunk whose observation gives the true class the largest log-likelihood (an upper bound)
"""

from __future__ import annotations

import numpy as np

RULES = ("learned", "random", "fps_order", "oracle")
STREAM = 77  # of random numbers, beside those of training


def random_orders(n_clouds: int, n_chunks: int, seed: int) -> np.ndarray:
    """[n, M]: the order of a cloud follows from the seed and its place alone."""
    return np.argsort(np.random.default_rng([seed, STREAM]).random((n_clouds, n_chunks)), axis=1)


def fps_orders(n_clouds: int, n_chunks: int) -> np.ndarray:
    """[n, M]: chunks are numbered as they were found."""
    return np.tile(np.arange(n_chunks), (n_clouds, 1))
