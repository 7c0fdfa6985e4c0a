"""Labelled point clouds, y up: built-in shapes, ModelNet, folders of clouds, single files. See docs/data.md."""

from asp_neuro.data.clouds import SPLITS, CloudSet

__all__ = ["SPLITS", "CloudSet", "load"]


def load(data, split, *, n_points=1024, up=None, seed=0, classes=None):
    from asp_neuro.data.shapes import shapes

    found = shapes(split, n_points, seed)
    return found if classes is None else found.relabelled(classes)
