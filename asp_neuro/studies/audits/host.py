"""The host: a mean of what was seen stands for the whole (S14), and descriptors must belong to what is seen (S15)."""

from __future__ import annotations

import numpy as np

from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.row import Row, above, at_most

DELTA = 0.05


def deviations(embeddings: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Embeddings [n, M, w] of all places and an order [n, T] -> [T, n] largest |running mean - mean of all|."""
    seen = np.take_along_axis(embeddings, order[..., None], axis=1)  # [n, T, w]
    running = np.cumsum(seen, axis=1) / np.arange(1, order.shape[1] + 1)[:, None]
    return np.asarray(np.abs(running - embeddings.mean(axis=1, keepdims=True)).max(axis=2).T)


def serfling(width: np.ndarray, n_places: int, n_features: int, n_steps: int, delta: float = DELTA) -> np.ndarray:
    """Ranges [n] -> [T, n] the bound that holds with probability 1 - delta after t places in random order."""
    t = np.arange(1, n_steps + 1)[:, None]
    return np.asarray(width * np.sqrt((1.0 - (t - 1) / n_places) / (2.0 * t) * np.log(2.0 * n_features / delta)))


def lazy(embeddings: np.ndarray, order: np.ndarray, learned: np.ndarray) -> Row:
    """In a random order the running mean stays near the mean of all; the learned order is told beside it."""
    n, n_places, n_features = embeddings.shape
    width = (embeddings.max(axis=1) - embeddings.min(axis=1)).max(axis=1)  # [n]
    bound = serfling(width, n_places, n_features, order.shape[1])
    outside = deviations(embeddings, order) > bound
    worst = int(outside.sum(axis=1).argmax())
    found = intervals.share(int(outside[worst].sum()), n)
    far = deviations(embeddings, learned)
    used = np.divide(far, bound, out=np.zeros_like(far), where=bound > 0).max()
    return Row(
        "the mean of the embeddings seen stands for the mean of all", "S14", f"at most {DELTA} beyond the bound",
        *found, None, None, at_most(found.low, found.high, DELTA), n,
        f"random order, worst at look {worst + 1}; in the learned order, for which the theorem has a wider bound, the "
        f"largest deviation is {used:.2f} of this one",
    )  # fmt: skip


def descriptors(fresh: np.ndarray, stale: np.ndarray, n_looks: int, how: str) -> Row:
    """[n] right answers after so many looks, with descriptors of the scene as it is and as it was before."""
    lost = intervals.mean(fresh.astype(np.float64) - stale)
    return Row(
        "descriptors that do not belong to the scene cost accuracy", "S15", "above 0", *lost, 0.0, None,
        above(lost.low, lost.high, 0.0), len(fresh),
        f"{how}; after {n_looks} looks {fresh.mean():.4f} with its own descriptors, {stale.mean():.4f} with those of "
        "before; paired",
    )  # fmt: skip
