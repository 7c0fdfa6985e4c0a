"""The paper's tables: by hand on made-up readings, as commands on a bundle, with trainings of a tiny recipe."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro.errors import ConfigError, UsageError
from asp_neuro.model.rules import fps_orders
from asp_neuro.studies.audits.record import exits as stops_at
from asp_neuro.studies.audits.record import record
from asp_neuro.studies.tables import agreement, calibration, classes, exits, variants
from asp_neuro.studies.tables import run as tables
from asp_neuro.studies.tables.reading import Reading, Where, over

N = 40


def reading(seed: int = 0, tau: float = 0.3) -> Reading:
    """A small random network on random clouds."""
    perceiver = specs.random_perceiver(np.random.default_rng(seed))
    scenes = perceiver.scenes(specs.random_clouds(np.random.default_rng(9), N))
    seen = record(perceiver, scenes, np.arange(N) % 4)
    return Reading(f"made {seed}", seed, perceiver, scenes, seen, stops_at(seen.margins, tau))


@pytest.fixture(scope="module")
def two() -> list[Reading]:
    return [reading(0), reading(1)]


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_bins_of_exits_are_the_papers_scaled_to_the_budget():
    assert exits.bins(16) == [(1, 4), (5, 7), (8, 10), (11, 16)]
    assert exits.bins(8) == [(1, 2), (3, 4), (5, 5), (6, 8)]
    assert exits.bins(2) == [(1, 1), (2, 2)]  # bins without an observation are none


def test_exits_add_up_and_their_accuracy_is_that_of_the_answers(two):
    table = exits.table(two)
    assert sum(row["share"] for row in table.rows) == pytest.approx(1.0)
    assert sum(row["answers"] for row in table.more["_by_observation"]) == 2 * N
    by_hand = np.mean([one.stops.observations.mean() for one in two])
    assert table.numbers["mean_exit"] == pytest.approx(by_hand)
    weighted = sum((row["accuracy"] or 0.0) * row["answers"] for row in table.rows) / (2 * N)
    assert weighted == pytest.approx(np.mean([one.stops.at(one.seen.right).mean() for one in two]))


def test_calibration_of_answers_that_are_always_sure_and_right_is_perfect(two):
    one = two[0]
    sure = dataclasses.replace(one.seen, logits=60.0 * np.eye(4)[np.tile(one.seen.truth, (one.seen.n_steps, 1))])
    (ece, mce, brier) = calibration.table([dataclasses.replace(one, seen=sure)]).rows
    assert [row["exit"] for row in (ece, mce, brier)] == pytest.approx([0.0] * 3, abs=1e-9)
    wrong = dataclasses.replace(sure, truth=(sure.truth + 1) % 4)
    rows = calibration.table([dataclasses.replace(one, seen=wrong)]).rows
    assert [row["exit"] for row in rows] == pytest.approx([1.0, 1.0, 2.0])


def test_classes_are_sorted_by_their_exit_and_name_what_they_are_taken_for(two):
    table = classes.table(two[:1])
    seen = [row["observations"] for row in table.rows]
    assert seen == sorted(seen)
    assert sum(row["clouds"] for row in table.rows) == N
    assert {row["class"] for row in table.rows} == {f"class {i}" for i in range(4)}
    assert all(row["taken_for"] != row["class"] for row in table.rows)


def test_a_training_agrees_with_itself_and_less_with_another(two):
    twin = agreement.table([two[0], two[0]])
    assert [row["share"] for row in twin.rows] == [1.0] * 5
    apart = agreement.table(two)
    assert apart.rows[0]["share"] < 1.0
    with pytest.raises(UsageError, match="different seeds"):
        agreement.table(two[:1])


def test_a_spread_needs_two():
    assert over([0.5]) == (0.5, None)
    assert over([0.4, 0.6]) == (pytest.approx(0.5), pytest.approx(np.sqrt(0.02)))


def test_ways_tell_the_exit_or_the_whole_budget(two):
    ways = [variants.Way("a", "full"), variants.Way("b", "full", exits=False)]
    early, late = variants.table(ways, {("full", "learned"): two}, [1]).rows
    assert early["observations"] == pytest.approx(np.mean([one.stops.observations.mean() for one in two]))
    assert (late["observations"], late["accuracy"]) == (6, late["full_budget"])
    assert early["full_budget"] == late["full_budget"]
    assert early["k=1"] == pytest.approx(np.mean([one.seen.right[0].mean() for one in two]))


@pytest.mark.parametrize("name", ["exits", "calibration", "classes"])
def test_a_table_of_a_shipped_bundle_is_one_command(cli, tmp_path, name):
    said = cli("study", name, "compact", "--split", "validation", "--limit", "24", "--out", str(tmp_path), "--json")
    assert said.code == 0
    assert (said.json["n"], said.json["split"], said.json["study"]) == (24, "validation", name)
    assert len(rows_of(tmp_path / f"{name}.csv")) == len(said.json["rows"])
    assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / f"{name}.json").read_text())["rows"] == said.json["rows"]


@pytest.mark.parametrize("name", ["exits", "calibration", "classes"])
def test_tables_of_a_model_that_looks_at_images(cli, tmp_path, name):
    said = cli("study", name, "clutter", "--data", "strokes", "--split", "validation", "--limit", "12", "--out",
               str(tmp_path), "--json")  # fmt: skip
    assert said.code == 0
    assert (said.json["n"], said.json["models"]) == (12, ["clutter"])
    assert said.json["rows"]


def test_models_and_trainings_are_not_asked_for_at_once(cli, tmp_path):
    assert cli("study", "seeds", "compact", "--seeds", "0,1", "--out", str(tmp_path)).code == 2
    assert cli("study", "seeds", "compact", "--limit", "4", "--split", "validation", "--out", str(tmp_path)).code == 2


def test_numbers_of_chunks_rise(cli):
    for words, told in (("4,4", "does not rise"), ("16,4", "does not rise"), ("1", "below 2"), ("x", "whole number")):
        said = cli("study", "budget", "--chunks", words)
        assert said.code == 2
        assert told in said.err


# With trainings

WHERE = Where(split="validation", limit=30)


@pytest.fixture(scope="module")
def asked():
    pytest.importorskip("torch", reason="torch is not installed")
    from asp_neuro.learn.recipe import ModelRecipe, Recipe, TrainRecipe
    from asp_neuro.scenes.cloud import Chunking

    tiny = Recipe(
        name="tiny",
        scene=Chunking(n_points=64, n_groups=8, group_size=4, n_chunks=4),
        model=ModelRecipe(width=8, neurons=8, layers=2, edge_widths=(6, 8), policy_width=5, first_look=3),
        train=TrainRecipe(epochs=1, qat_epochs=1, batch_size=256, learning_rate=1e-2),
    )
    return tables.Asked(tiny, (0, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.mark.slow
def test_fixed_order_is_trained_and_read_in_farthest_point_order(asked, folder):
    report = tables.train_models("fixed", asked, WHERE, folder)
    assert [row["way"] for row in report["rows"]] == [way.name for way in variants.FIXED_WAYS]
    assert {row["models"] for row in report["rows"]} == {2}
    assert report["rows"][2]["observations"] == 4
    assert (folder / "fixed_e1_s1.pt").exists()
    from asp_neuro.studies.tables.reading import read

    (one,), _ = read([folder / "fixed_e1_s0.pt"], WHERE, "fps_order")
    assert np.array_equal(one.seen.place.T, fps_orders(30, 4))


@pytest.mark.slow
def test_budgets_share_the_model_of_the_recipe_and_differ_in_the_number_of_chunks(asked, folder):
    from asp_neuro.learn import checkpoint

    before = (folder / "full_e1_s0.pt").read_bytes() if (folder / "full_e1_s0.pt").exists() else None
    report = tables.train_models("budget", asked._replace(chunks=(2, 4)), WHERE, folder)
    assert [(row["way"], row["paper"]) for row in report["rows"]] == [
        ("M = 2", None),
        ("M = 4", "0.9062 at full budget"),
    ]
    assert before is None or (folder / "full_e1_s0.pt").read_bytes() == before  # used again
    full, other = (checkpoint.read(folder / f"{name}_e1_s0.pt")["recipe"] for name in ("full", "m2"))
    assert {**full, "scene": {**full["scene"], "n_chunks": 2}} == other
    assert max(row["observation"] for row in report["curves"] if row["way"] == "M = 2") == 2


@pytest.mark.slow
def test_policies_without_a_descriptor_do_not_see_it_and_leave_the_rest_as_it_was(asked, folder, monkeypatch):
    import torch

    from asp_neuro.learn import checkpoint, training
    from asp_neuro.scenes.cloud import DESCRIPTORS
    from asp_neuro.studies.trained import deployed_form

    monkeypatch.setattr(variants, "POLICY_EPOCHS", 1)
    report = tables.train_models("descriptors", asked, WHERE, folder)
    assert [row["way"] for row in report["rows"]] == [way.name for way in variants.DESCRIPTOR_WAYS]
    base = checkpoint.read(folder / "full_e1_s0.pt")["model"]
    for name, part in DESCRIPTORS.items():
        path = folder / f"without_{name}_e1_s0.pt"
        policy = deployed_form(path)[0].spec.policy
        outline = policy.first.outline.weight.reshape(-1, 3, 8)
        for weight in (policy.from_descriptor.weight, *np.moveaxis(outline, 1, 0)):
            assert not weight[:, part].any()
            assert np.delete(weight, part, axis=1).any()
        model = training.load_model(path)[0].state_dict()
        kept = [key for key in model if not key.startswith("policy.")]
        assert all(torch.equal(model[key], base[key]) for key in kept)


def test_what_no_descriptor_is_called_is_refused():
    pytest.importorskip("torch", reason="torch is not installed")
    from asp_neuro.learn.recipe import ModelRecipe, TrainRecipe

    with pytest.raises(ConfigError, match=r"model.hidden = 'radii'; did you mean 'radius'"):
        ModelRecipe(hidden=("radii",))
    with pytest.raises(ConfigError, match=r"train.given_order = 'fps'"):
        TrainRecipe(given_order="fps")


@pytest.mark.slow
def test_seeds_are_trained_where_no_model_is_named(asked, folder):
    report = tables.train_models("seeds", asked, WHERE, folder)
    assert report["seeds"] == [0, 1]
    assert "agreement of trainings" in tables.text(report)


@pytest.mark.parametrize("name", ["compact", "modelnet10", "modelnet40"])
def test_policies_can_learn_alone_on_models_of_every_recipe(name):
    from asp_neuro.learn import recipe as recipes

    for change in variants.policy_changes(Path("model.pt")).values():
        assert recipes.load(name).changed(**change).train.policy_only
    assert recipes.load(name).changed(**variants.FIXED_ORDER).train.lookahead == 0.0
