"""Labelled point clouds, y up: built-in shapes, ModelNet, folders of clouds, single files. See docs/data.md."""

from asp_neuro.data.clouds import SPLITS, CloudSet
from asp_neuro.data.files import read_cloud
from asp_neuro.data.intake import Intake, take
from asp_neuro.data.places import NAMES, Place, load_clouds, locate
from asp_neuro.data.splits import BY_NUMBER, CARVES, RANDOM

__all__ = [
    "BY_NUMBER",
    "CARVES",
    "NAMES",
    "RANDOM",
    "SPLITS",
    "CloudSet",
    "Intake",
    "Place",
    "load_clouds",
    "locate",
    "read_cloud",
    "take",
]
