"""Labelled point clouds, y up: built-in shapes, ModelNet, folders of clouds, single files. See docs/data.md."""

from asp_neuro.data.clouds import SPLITS, CloudSet
from asp_neuro.data.files import read_cloud
from asp_neuro.data.intake import Intake, Sampling, sampling_of, take
from asp_neuro.data.part_places import PART_CARVES, PART_NAMES, load_parts, locate_parts
from asp_neuro.data.parts import Catalogue, PartSet
from asp_neuro.data.places import NAMES, Place, load_clouds, locate
from asp_neuro.data.splits import BY_NUMBER, CARVES, RANDOM

__all__ = [
    "BY_NUMBER",
    "CARVES",
    "NAMES",
    "PART_CARVES",
    "PART_NAMES",
    "RANDOM",
    "SPLITS",
    "Catalogue",
    "CloudSet",
    "Intake",
    "PartSet",
    "Place",
    "Sampling",
    "load_clouds",
    "load_parts",
    "locate",
    "locate_parts",
    "read_cloud",
    "sampling_of",
    "take",
]
