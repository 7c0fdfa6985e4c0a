"""The studies on a tiny recipe: what is trained, what is used again, what is written, and what is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from old_recipes import in_old_names

from asp_neuro.data import load_clouds
from asp_neuro.errors import AspError, ConfigError, InputError, MissingError, UsageError
from asp_neuro.learn import checkpoint, evaluation, training
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.examples import examples_of
from asp_neuro.learn.recipe import ModelRecipe, Recipe, TrainRecipe
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.rules import RULES, fps_orders
from asp_neuro.report import to_json
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.studies import order, robustness, subjects, trained
from asp_neuro.studies.deployed import DeployedSubject, oracle_orders
from asp_neuro.studies.subjects import Examples

ROOT = Path(__file__).parents[1]

TINY = Recipe(
    name="tiny",
    scene=Chunking(n_points=64, n_groups=8, group_size=4, n_chunks=4),
    model=ModelRecipe(width=8, neurons=8, layers=2, edge_widths=(6, 8), policy_width=5),
    train=TrainRecipe(epochs=2, qat_epochs=1, batch_size=256, learning_rate=1e-2),
)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A whole study with two seeds and its ablations: folder and report."""
    out = tmp_path_factory.mktemp("study")
    return out, order.run(recipe=TINY, seeds=(0, 1), ablations=True, limit=60, split="validation", out=out)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(path)["model"]


def same(one: Path, two: Path) -> bool:
    a, b = weights(one), weights(two)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_report_has_the_promised_keys(studied):
    _, report = studied
    assert set(report["rules"]) == {"learned", "random", "fps_order", "oracle"}
    for found in (*report["rules"].values(), *report["ablations"].values()):
        assert list(found["accuracy_at"]) == ["1", "2", "3", "M"]
        assert [point["threshold"] for point in found["sweep"]] == [0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5]
    assert set(report["headroom_captured"]) == {"k1", "threshold_0.30"}
    assert set(report["ablations"]) == {"geometry", "belief", "additive", "no_mask"}
    assert (report["seeds"], report["n"], report["budget"], report["head"]) == ([0, 1], 60, 4, "integer")
    ways = {(row["policy"], row["rule"]) for row in report["paired"]}
    assert {("full", "random"), ("full", "fps_order"), ("geometry", "learned"), ("no_mask", "learned")} <= ways


def test_the_headroom_is_that_of_the_means_in_the_report(studied):
    _, report = studied
    learned, random, oracle = (report["rules"][r]["accuracy_at"]["1"] for r in ("learned", "random", "oracle"))
    assert oracle > random
    assert report["headroom_captured"]["k1"] == (learned - random) / (oracle - random)


def test_every_number_of_the_tables_is_in_the_csv(studied):
    out, report = studied
    text = order.text(report).splitlines()
    cells = {(r["policy"], r["rule"], r["k"] or r["threshold"]): r for r in rows_of(out / "order.csv")}
    for rule in report["rules"]:
        (line,) = [line for line in text if line.startswith(rule) and "±" in line]
        stored = [cells["full", rule, k] for k in "1234"]
        shown = " ".join(f"{100 * float(c['accuracy']):.1f} ± {100 * float(c['spread']):.1f}" for c in stored)
        assert " ".join(line.split()[1:]) == shown
    (line,) = [line for line in text if line.split()[:1] == ["0.30"]]
    stored = [cells["full", rule, "0.3"] for rule in report["rules"]]
    assert " ".join(line.split()[1:]) == " ".join(
        f"{float(c['observations']):.2f} / {100 * float(c['accuracy']):.1f} ± {100 * float(c['spread']):.1f}"
        for c in stored
    )
    gaps = {(r["policy"], r["rule"], r["k"] or r["threshold"]): r for r in rows_of(out / "order_differences.csv")}
    for k in "1234":
        (line,) = [line for line in text if line.split()[:1] == [f"k={k}"]]
        shown = [gaps["full", rival, k] for rival in ("random", "fps_order")]
        assert line.split()[1:] == [
            word
            for r in shown
            for word in (f"{100 * float(r['difference']):+.1f}", f"({100 * float(r['standard_error']):.1f})")
        ]


def test_the_report_lies_in_the_folder_beside_table_and_picture(studied):
    out, report = studied
    assert json.loads((out / "order.json").read_text()) == json.loads(to_json(report))
    assert (out / "order.png").read_bytes()[:4] == b"\x89PNG"
    assert {Path(file).name for file in report["files"]} == {
        "order.csv",
        "order_differences.csv",
        "order.png",
        "order.json",
    }


def test_the_ablations_differ_from_the_full_policy_by_their_one_key(studied):
    out, _ = studied
    for policy, change in trained.ABLATIONS.items():
        for seed in (0, 1):
            full, less = (checkpoint.read(out / f"{name}_e2_s{seed}.pt")["recipe"] for name in ("full", policy))
            assert less == {**full, "model": {**full["model"], **change}}
            assert less != full


def test_an_ablation_that_takes_nothing_away_is_the_full_policy_bit_for_bit(studied, tmp_path, monkeypatch):
    out, _ = studied
    monkeypatch.setattr(trained, "ABLATIONS", {"nothing": {}})
    report = order.run(recipe=TINY, seeds=(0,), ablations=True, limit=30, split="validation", out=tmp_path)
    assert same(tmp_path / "nothing_e2_s0.pt", out / "full_e2_s0.pt")
    assert not same(out / "geometry_e2_s0.pt", out / "full_e2_s0.pt")
    assert {row["difference"] for row in report["paired"] if row["policy"] == "nothing"} == {0.0}


def test_a_policy_without_descriptors_looks_in_farthest_point_order(studied):
    out, report = studied
    (subject,) = subjects.subjects([out / "belief_e2_s0.pt"])
    clouds = load_clouds("shapes", "validation", n_points=64).subset(range(20))
    record = evaluation.evaluate(subject.model, examples_of(clouds, TINY.chunking))
    assert (record.order == [[0], [1], [2], [3]]).all()  # equal scores: the first unvisited chunk


def test_without_the_mask_a_chunk_can_be_taken_again(studied):
    out, _ = studied
    clouds = load_clouds("shapes", "validation", n_points=64).subset(range(20))
    for name, distinct in (("full", True), ("no_mask", False)):
        (subject,) = subjects.subjects([out / f"{name}_e2_s0.pt"])
        taken = evaluation.evaluate(subject.model, examples_of(clouds, TINY.chunking)).order
        assert all(len(set(column)) == 4 for column in taken.T) == distinct


def test_a_study_that_is_killed_goes_on_where_it_was(studied, tmp_path, monkeypatch):
    out, report = studied
    epoch = training.train_epoch

    def killed(run, examples, show):
        if (run.recipe.seed, run.epoch) == (1, 1):
            raise KeyboardInterrupt
        return epoch(run, examples, show)

    keywords = {"recipe": TINY, "seeds": (0, 1), "limit": 60, "split": "validation", "out": tmp_path}
    monkeypatch.setattr(training, "train_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        order.run(**keywords)
    assert {path.name for path in tmp_path.glob("*.pt*")} == {"full_e2_s0.pt", "full_e2_s1.pt.resume"}
    before = (tmp_path / "full_e2_s0.pt").stat().st_mtime_ns
    epochs = []
    monkeypatch.setattr(training, "train_epoch", lambda run, *rest: epochs.append(run.epoch) or epoch(run, *rest))
    again = order.run(**keywords)
    assert epochs == [1]  # the second epoch of the second seed, nothing else
    assert (tmp_path / "full_e2_s0.pt").stat().st_mtime_ns == before
    assert same(tmp_path / "full_e2_s1.pt", out / "full_e2_s1.pt")
    assert again["rules"] == report["rules"]


def test_random_orders_depend_neither_on_the_batch_nor_on_the_number_of_clouds(studied, monkeypatch):
    out, _ = studied
    (subject,) = subjects.subjects([out / "full_e2_s0.pt"])
    clouds = load_clouds("shapes", "validation", n_points=64)
    many, few = (examples_of(clouds.subset(range(n)), TINY.chunking) for n in (70, 9))
    wanted = evaluation.evaluate(subject.model, many, "random").order
    monkeypatch.setattr(evaluation, "BATCH", 7)
    assert (evaluation.evaluate(subject.model, many, "random").order == wanted).all()
    assert (evaluation.evaluate(subject.model, few, "random").order == wanted[:, :9]).all()
    assert (evaluation.evaluate(subject.model, many, "random", seed=1).order != wanted).any()


def test_checkpoints_are_read_without_training(studied, tmp_path, cli, monkeypatch):
    out, report = studied
    monkeypatch.setattr(training, "train", None)
    models = [str(out / f"full_e2_s{seed}.pt") for seed in (0, 1)]
    words = ("study", "order", *models, "--split", "validation", "--limit", "60", "--out", str(tmp_path), "--json")
    said = cli(*words)
    assert said.code == 0, said.err
    assert said.json["rules"] == json.loads(to_json(report["rules"]))
    assert said.json["ablations"] == {}
    assert "test split" not in said.err
    assert cli(*words[:-1]).out.startswith("accuracy in % on the validation split, 60 clouds")


def test_the_test_split_is_not_read_in_silence(studied, tmp_path, cli):
    out, _ = studied
    said = cli("study", "order", str(out / "full_e2_s0.pt"), "--limit", "5", "--out", str(tmp_path), "--json")
    assert said.code == 0
    assert "this reads the test split (5 of" in said.err
    assert "log it" in said.err
    assert said.json["rules"]["learned"]["spread_at"]["1"] is None  # one model has no spread


@pytest.mark.parametrize(("also", "split", "warned"), [((), "validation", False), ((), "train", True),
                                                       (("validation",), "validation", True)])  # fmt: skip
def test_clouds_that_were_trained_on_are_not_read_in_silence(also, split, warned, capsys):
    subjects.clouds_of(trained.origin(replace(TINY, data=replace(TINY.data, also=also))), None, None, split, 5)
    assert (f"trains on the {split} split" in capsys.readouterr().err) == warned


def test_averaged_logits_are_another_way_to_answer(studied, tmp_path):
    out, report = studied
    models = [out / f"full_e2_s{seed}.pt" for seed in (0, 1)]
    found = order.run(models, split="validation", limit=60, out=tmp_path, average=True)
    first, last = ({r: f["accuracy_at"][k] for r, f in found["rules"].items()} for k in ("1", "M"))
    assert first == {r: f["accuracy_at"]["1"] for r, f in report["rules"].items()}  # the mean of one is that one
    assert last != {r: f["accuracy_at"]["M"] for r, f in report["rules"].items()}


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ((), "usage", "what to study: order or robustness or beam"),
        (("ordre",), "usage", "did you mean 'order'?"),
        (("order", "--sedes", "0"), "usage", "did you mean '--seeds'?"),
        (("order", "--seeds", "0,0"), "usage", "names a seed twice"),
        (("order", "--seeds", "0,one"), "usage", "'one' is not a whole number"),
        (("order", "--seeds", "4294967296"), "config", "must be at least 0 and below"),
        (("order", "--recipe", "compcat"), "config", "did you mean 'compact'?"),
        (("order", "absent.pt"), "missing", "'absent.pt' is neither a checkpoint file nor a known name"),
        (("order", "compact", "--ablations"), "usage", "--ablations is for training"),
        (("order", "compact", "compact"), "usage", "have the same seed 0"),
        (("order", "compact", "modelnet40"), "usage", "have the same seed"),
        (("order", "compact", "modelnet10"), "usage", "differ in more than the seed"),
    ],
)
def test_bad_words_are_refused(cli, tmp_path, monkeypatch, words, kind, message):
    monkeypatch.chdir(tmp_path)
    said = cli("study", *words, "--json")
    assert said.code == 2
    assert said.json["error"]["kind"] == kind
    assert message in said.json["error"]["message"]


def test_checkpoints_of_two_recipes_are_refused(studied):
    out, _ = studied
    with pytest.raises(UsageError, match="differ in more than the seed"):
        subjects.subjects([out / "full_e2_s0.pt", out / "geometry_e2_s1.pt"])


def test_a_folder_with_models_of_another_recipe_is_refused_and_left_alone(studied, monkeypatch):
    out, _ = studied
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    other = TINY.changed(train={"learning_rate": 2e-2})
    with pytest.raises(ConfigError, match="belongs to another recipe; give this study another --out"):
        order.run(recipe=other, seeds=(0,), split="validation", out=out)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_a_model_stored_under_the_old_names_of_its_recipe_is_used_again(studied, tmp_path, monkeypatch):
    out, _ = studied
    stored = {k: v for k, v in checkpoint.read(out / "full_e2_s0.pt").items() if k not in ("format", "version")}
    recipe = recipes.from_dict("stored", stored["recipe"])
    checkpoint.save(tmp_path / "full_e2_s0.pt", {**stored, "recipe": in_old_names(recipe)})
    monkeypatch.setattr(training, "train", None)  # nothing is trained
    assert order.run(recipe=TINY, seeds=(0,), split="validation", limit=20, out=tmp_path)["seeds"] == [0]


def test_a_head_that_was_never_on_the_integer_grid_is_refused_before_and_after_training(tmp_path):
    floating = TINY.changed(train={"epochs": 1, "qat_epochs": 0})
    with pytest.raises(ConfigError, match="no integer head"):
        order.run(recipe=floating, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    order.run(recipe=floating, seeds=(0,), split="validation", limit=20, out=tmp_path, floating=True)
    with pytest.raises(InputError, match="never ran on the integer grid"):
        subjects.subjects([tmp_path / "full_e1_s0.pt"])


def test_missing_data_are_told_before_any_training(tmp_path, monkeypatch):
    monkeypatch.delenv("ASP_NEURO_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train", None)
    with pytest.raises(MissingError, match="modelnet10 not found"):
        order.run(recipe=replace(TINY, data=replace(TINY.data, name="modelnet10")), out=tmp_path / "out")
    assert issubclass(MissingError, AspError)


@pytest.fixture(scope="module")
def corrupted(studied, tmp_path_factory):
    """The study of corrupted clouds on the two full models: folder and report."""
    out = tmp_path_factory.mktemp("robustness")
    models = [studied[0] / f"full_e2_s{seed}.pt" for seed in (0, 1)]
    return out, robustness.run(models, draws=2, split="validation", limit=40, out=out)


def test_the_clean_row_is_that_of_the_study_of_order(studied, corrupted, tmp_path):
    models = [studied[0] / f"full_e2_s{seed}.pt" for seed in (0, 1)]
    full = order.run(models, split="validation", limit=40, out=tmp_path)
    (row,) = [r for r in corrupted[1]["corruptions"] if (r["corruption"], r["k"]) == ("clean", 1)]
    assert row["learned"] == full["rules"]["learned"]["accuracy_at"]["1"]
    assert row["fixed"] == full["rules"]["fps_order"]["accuracy_at"]["1"]
    (gap,) = [g for g in full["paired"] if (g["policy"], g["rule"], g["k"]) == ("full", "fps_order", 1)]
    assert (row["difference"], row["standard_error"]) == (gap["difference"], gap["standard_error"])


def test_every_corruption_is_read_at_its_budgets_and_written_down(corrupted):
    out, report = corrupted
    assert [row["k"] for row in report["corruptions"]] == [1, 4] * 13
    stored = rows_of(out / "robustness.csv")
    text = robustness.text(report).splitlines()
    for row in report["corruptions"]:
        assert row["difference"] == pytest.approx(row["learned"] - row["fixed"])
        (line,) = [line for line in text if line.startswith(row["corruption"] + " ")]
        (kept,) = [r for r in stored if (r["corruption"], int(r["k"])) == (row["corruption"], row["k"])]
        numbers = [100 * float(kept[key]) for key in ("learned", "fixed", "difference", "standard_error")]
        assert "{:.1f} / {:.1f}, {:+.1f} ({:.1f})".format(*numbers) in line
    assert (out / "robustness.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((out / "robustness.json").read_text()) == json.loads(to_json(report))


def test_the_same_seed_corrupts_the_same_way_and_another_seed_another(studied, corrupted, tmp_path):
    models = [studied[0] / f"full_e2_s{seed}.pt" for seed in (0, 1)]
    same_seed, other = (
        robustness.run(models, draws=2, seed=seed, split="validation", limit=40, out=tmp_path)["corruptions"]
        for seed in (0, 1)
    )
    assert same_seed == corrupted[1]["corruptions"]
    assert other[:2] == same_seed[:2]  # clean
    assert other[2:] != same_seed[2:]


def test_a_bundle_is_also_told_what_its_certificate_makes_of_every_condition(tmp_path):
    report = robustness.run(["compact"], draws=1, split="validation", limit=10, out=tmp_path)
    assert [row["corruption"] for row in report["promises"]] == [r["corruption"] for r in report["corruptions"][::3]]
    for row in report["promises"]:
        assert 0.0 <= row["unfamiliar_share"] + row["certified_share"] <= 1.0
        assert (row["wrong_among_certified"] is None) == (row["certified_share"] == 0.0)
    assert len(rows_of(tmp_path / "robustness-promises.csv")) == 13
    assert "wrong among certified" in robustness.text(report)


def test_a_cloud_that_becomes_too_small_to_cut_is_told(studied, tmp_path):
    many = replace(TINY.chunking, n_groups=32)
    path = tmp_path / "many.pt"
    stored = checkpoint.read(studied[0] / "full_e2_s0.pt")
    stored["recipe"]["scene"]["n_groups"] = many.n_groups
    checkpoint.save(path, {key: stored[key] for key in ("recipe", "classes", "model", "deploy")})
    with pytest.raises(InputError, match=r"16 distinct points, at least 32 are needed"):
        robustness.run([path], draws=1, split="validation", limit=5, out=tmp_path)


def test_robustness_speaks_json_and_refuses_bad_words(studied, cli, tmp_path):
    words = ("study", "robustness", str(studied[0] / "full_e2_s0.pt"), "--draws", "1", "--limit", "8", "--json")
    said = cli(*words, "--split", "validation", "--out", str(tmp_path))
    assert said.code == 0, said.err
    assert (said.json["n"], said.json["draws"], len(said.json["corruptions"])) == (8, 1, 26)
    for wrong, message in ((("--draws", "0"), "0 is below 1"), (("--epochs", "1"), "unknown option: '--epochs'")):
        refused = cli(*words, *wrong)
        assert (refused.code, refused.json["error"]["kind"]) == (2, "usage")
        assert message in refused.json["error"]["message"]


# Bundles, in numpy alone


@pytest.fixture(scope="module")
def compact() -> tuple[DeployedSubject, Examples]:
    """The shipped bundle and 40 validation clouds."""
    (subject,) = subjects.subjects(["compact"])
    clouds = subjects.clouds_of(subject.origin, None, None, "validation", 40).relabelled(subject.classes)
    return subject, subjects.cut(clouds, subject.origin.chunking, cache=False)


def test_a_shipped_name_is_its_bundle_and_a_pt_file_the_checkpoint(compact):
    assert isinstance(compact[0], DeployedSubject)
    (other,) = subjects.subjects([ROOT / "train/checkpoints/compact.pt"])
    assert isinstance(other, trained.TrainedSubject)
    (other,) = subjects.subjects(["compact"], floating=True)  # a bundle has no other head than its own
    assert isinstance(other, trained.TrainedSubject)


def test_the_oracle_takes_the_chunk_that_makes_the_true_class_most_likely(compact):
    subject, examples = compact
    n, n_chunks = len(examples.labels), examples.chunks.n_chunks
    after_one = np.empty((n, n_chunks))  # probability of the true class after any first chunk, by playing them all
    for chunk in range(n_chunks):
        order = (fps_orders(n, n_chunks) + chunk) % n_chunks
        answers = subject.perceiver.answers(examples.chunks, ExitRule(tau=0.0), order)
        assert {answer.observations for answer in answers} == {1}
        after_one[:, chunk] = [answer.probabilities[label] for answer, label in zip(answers, examples.labels)]
    orders = oracle_orders(subject.perceiver, examples.chunks, examples.labels)
    assert (np.sort(orders, axis=1) == np.arange(n_chunks)).all()
    assert after_one[np.arange(n), orders[:, 0]] == pytest.approx(after_one.max(axis=1), abs=1e-12)


def test_an_oracle_that_knows_another_class_looks_elsewhere(compact):
    subject, examples = compact
    right, wrong = (oracle_orders(subject.perceiver, examples.chunks, (examples.labels + k) % 8) for k in (0, 1))
    assert (right[:, 0] != wrong[:, 0]).mean() > 0.5


@pytest.mark.parametrize("rule", RULES)
def test_a_bundle_reads_nearly_what_its_checkpoint_reads(compact, rule):
    """The head is the same to the bit; the host is rounded to its grid, so now and then another chunk is taken."""
    subject, examples = compact
    (module,) = subjects.subjects([ROOT / "train/checkpoints/compact.pt"])
    ours, theirs = (one.read(examples, rule) for one in (subject, module))
    assert (ours.correct == theirs.correct).mean() > 0.97
    assert np.abs(ours.margins - theirs.margins).mean() < 0.03


def test_the_rules_of_a_bundle_differ(compact):
    subject, examples = compact
    at_one = {rule: subject.read(examples, rule).correct[0].mean() for rule in RULES}
    assert at_one["oracle"] > at_one["learned"] > max(at_one["random"], at_one["fps_order"])
    with pytest.raises(UsageError, match="did you mean 'oracle'"):
        subject.read(examples, "oracel")


def test_averaged_logits_of_a_bundle_are_another_way_to_answer(compact):
    subject, examples = compact
    last, mean = (subject.read(examples, "learned", average) for average in (False, True))
    assert np.array_equal(last.margins[0], mean.margins[0])  # the mean of one is that one
    assert not np.array_equal(last.margins[-1], mean.margins[-1])
