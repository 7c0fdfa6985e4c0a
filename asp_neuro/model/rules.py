"""The ways to look that are compared: the learned policy and its rivals (paper 3.1).

learned      the policy's choice
random       a fixed random order per cloud
fps_order    chunks in farthest-point order
oracle       the unvisited chunk whose observation gives the true class the largest log-likelihood (an upper bound)

Of images, instead of fps_order:

centre_out   from the middle of the image outwards
brightest    where it is brightest around a place, without learning
nearest      nearest to where the object lies, where that is known (it knows the truth: no rival either)
"""

from __future__ import annotations

import numpy as np

from asp_neuro.scenes.image import BRIGHTNESS, Gaze, Images, describe

RULES = ("learned", "random", "fps_order", "oracle")
IMAGE_RULES = ("learned", "random", "centre_out", "brightest", "oracle", "nearest")
TRUTH = ("oracle", "nearest")  # these know what a rule at work cannot
STREAM = 77  # of random numbers, beside those of training


def random_orders(n_clouds: int, n_chunks: int, seed: int) -> np.ndarray:
    """[n, M]: the order of a cloud follows from the seed and its place alone."""
    return np.argsort(np.random.default_rng([seed, STREAM]).random((n_clouds, n_chunks)), axis=1)


def fps_orders(n_clouds: int, n_chunks: int) -> np.ndarray:
    """[n, M]: chunks are numbered as they were found."""
    return np.tile(np.arange(n_chunks), (n_clouds, 1))


def image_orders(
    rule: str, scenes: Images, how: Gaze, seed: int, objects: np.ndarray | None = None
) -> np.ndarray | None:
    """[n, M], or None where what was seen decides; `objects` [n, 2] is where they lie. Of equals the first is taken."""
    n, at = len(scenes), 2 * how.centres  # half pixels
    if rule == "random":
        return random_orders(n, how.n_places, seed)
    if rule == "centre_out":
        far = ((at - how.size) ** 2).sum(axis=1)
        return np.tile(np.argsort(far, kind="stable"), (n, 1))
    if rule == "brightest":
        return np.argsort(-describe(scenes.pixels, how)[..., BRIGHTNESS], axis=1, kind="stable")
    if rule == "nearest" and objects is not None:
        return np.argsort(((at - 2 * objects[:, None]) ** 2).sum(axis=2), axis=1, kind="stable")
    return None
