"""A recipe's plain data as a program of before 0.2.0 stored it."""

from __future__ import annotations

from typing import Any

from asp_neuro.learn.recipe import OLD_KEYS, OLD_SECTIONS, Recipe


def in_old_names(recipe: Recipe) -> dict[str, Any]:
    """Sections and keys under their old names, no kinds of scene and task."""
    plain = recipe.as_dict()
    plain["scene"].pop("kind")
    plain.pop("task")
    for section, keys in OLD_KEYS.items():
        old = {new: name for name, new in keys.items()}
        plain[section] = {old.get(key, key): value for key, value in plain[section].items()}
    old = {new: name for name, new in OLD_SECTIONS.items()}
    return {old.get(key, key): value for key, value in plain.items()}
