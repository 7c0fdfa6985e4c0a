"""How far do simple hand-made features go on the built-in shapes? A random forest; prints its test accuracy.

    python benchmarks/shapes_forest.py [--seed 0] [--json] [--quick]

The shapes are meant to be hard for whole-cloud statistics (65 to 85 %) and easy for who looks at the right parts.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from timing import arguments, one_thread, row, tell

from asp_neuro.data import load_clouds

BINS = 16
SLICES = 8


def features(points: np.ndarray) -> np.ndarray:
    """[n, P, 3] -> [n, F]: extents, eigenvalues, third moments, histograms, widths."""
    p = points.astype(np.float64)
    p -= p.mean(axis=1, keepdims=True)
    radius = np.linalg.norm(p, axis=2)
    p /= radius.max(axis=1)[:, None, None]
    radius = np.linalg.norm(p, axis=2)
    axis = np.hypot(p[..., 0], p[..., 2])
    extents = np.ptp(p, axis=1)
    eigenvalues = np.linalg.eigvalsh(np.einsum("npi,npj->nij", p, p) / p.shape[1])
    skew = (p**3).mean(axis=1)
    histograms = [
        np.stack([np.histogram(row, BINS, span)[0] for row in values]) / p.shape[1]
        for values, span in ((radius, (0, 1)), (p[..., 1], (-1, 1)), (axis, (0, 1)))
    ]
    return np.concatenate([extents, eigenvalues, skew, *histograms, _widths(p[..., 1], axis)], axis=1)


def _widths(height: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """[n, SLICES]: mean distance to the up axis in slices of equal height (0 where a slice is empty)."""
    low, high = height.min(axis=1, keepdims=True), height.max(axis=1, keepdims=True)
    place = np.minimum(((height - low) / (high - low) * SLICES).astype(int), SLICES - 1)
    inside = place[..., None] == np.arange(SLICES)  # [n, P, SLICES]
    return (axis[..., None] * inside).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)


def score(seed: int = 0, trees: int = 300) -> float:
    """Test accuracy of so many trees trained on the train split."""
    train, test = load_clouds("shapes", "train"), load_clouds("shapes", "test")
    forest = RandomForestClassifier(trees, random_state=seed, n_jobs=1).fit(features(train.points), train.labels)
    return float((forest.predict(features(test.points)) == test.labels).mean())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the forest")
    asked = parser.parse_args()
    one_thread()
    trees = 20 if asked.quick else 300
    found = row(f"test accuracy, {trees} trees", 100.0 * score(asked.seed, trees), "%", wanted="65 to 85 %")
    tell("Built-in shapes, simple features and a random forest", [found], asked)


if __name__ == "__main__":
    main()
