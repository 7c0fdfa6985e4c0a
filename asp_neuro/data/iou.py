"""Intersection over union of parts, the standard way: a part that is neither there nor predicted counts 1."""

from __future__ import annotations

import numpy as np

from asp_neuro.data.parts import Catalogue


def instance_ious(
    labels: np.ndarray, parts: np.ndarray, category: np.ndarray, catalogue: Catalogue, skip_absent: bool = False
) -> np.ndarray:
    """Labels and true parts [n, Q], categories [n] -> [n] the mean IoU over the parts of each cloud's category.

    `skip_absent`: a part that is neither there nor predicted does not count at all.
    """
    n, n_parts = len(labels), catalogue.n_parts
    row = np.arange(n)[:, None] * n_parts
    told, true = (np.bincount((row + x).ravel(), minlength=n * n_parts).reshape(n, n_parts) for x in (labels, parts))
    hit = np.where(labels == parts, row + labels, n * n_parts)
    inside = np.bincount(hit.ravel(), minlength=n * n_parts + 1)[:-1].reshape(n, n_parts)
    union = told + true - inside
    iou = np.where(union > 0, inside / np.maximum(union, 1), 1.0)
    counts = catalogue.own()[category] & ((union > 0) | (not skip_absent))
    return np.asarray((iou * counts).sum(axis=1) / np.maximum(counts.sum(axis=1), 1))


def class_mean(iou: np.ndarray, category: np.ndarray) -> float:
    """Mean over categories of the mean over their clouds; categories without clouds are left out."""
    return float(np.mean([iou[category == c].mean() for c in np.unique(category)]))
