"""Parts: points of a cloud, by hand, in any order and batch, trained as deployed; no proof of theirs is false."""

from __future__ import annotations

import json

import numpy as np
import pytest
import specs

import asp_neuro
from asp_neuro.bundle import Bundle, write
from asp_neuro.certify.part_promise import PartPromise
from asp_neuro.certify.points import PointRecording, certify_points, plan_points, promise_shapes
from asp_neuro.cli.main import main
from asp_neuro.data.iou import class_mean, instance_ious
from asp_neuro.data.parts import Catalogue
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.episode import episodes, play
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver, really_equal
from asp_neuro.model.points import PointRule, answer_points
from asp_neuro.model.stability import Stability
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.scenes.frame import frame_of
from asp_neuro.scenes.interpolation import hear, neighbours, squares, weights

KINDS = Catalogue(("kind 0", "kind 1"), (2, 3))


def clouds(rng: np.random.Generator, n: int, n_points: int = 96) -> np.ndarray:
    return rng.normal(size=(n, n_points, 3)).astype(np.float32)


def setting(seed: int, n: int = 6) -> tuple[Perceiver, Chunks, np.ndarray]:
    rng = np.random.default_rng(seed)
    perceiver = Perceiver(specs.random_part_model(rng))
    raw = clouds(rng, n)
    return perceiver, perceiver.scenes(raw).asking(rng.integers(-1, 2, n)), raw


def labelled(perceiver: Perceiver, scenes: Chunks, raw: np.ndarray, rule: PointRule = PointRule()) -> list:
    asked = [frame_of(cloud, specs.SMALL).steps(cloud) for cloud in raw]
    answers = perceiver.answers(scenes)
    return answer_points(perceiver.model, perceiver.stability, scenes, answers, asked, rule)


# By hand


def test_a_point_hears_the_three_nearest_seen_groups_with_whole_weights():
    centres = np.array([[[0, 0, 0], [100, 0, 0], [0, 300, 0], [0, 0, 100], [5000, 0, 0]]], dtype=np.float64)
    point = np.array([[[0, 0, 0], [90, 0, 0]]], dtype=np.float64)
    seen = np.array([[False, True, True, True, True]])
    told = hear(point, centres, seen, squares(point, centres))
    assert told.group[0].tolist() == [[1, 3, 2], [1, 3, 2]]  # 1 and 3 are equally far: the lower first
    assert (told.weight.sum(axis=2) == 4096).all()
    pull = 1.0 / (np.array([10_000.0, 10_000.0, 90_000.0]) + 1e-4 * 2**28)
    by_hand = np.rint(pull / pull.sum() * 4096)
    assert told.weight[0, 0, 1:].tolist() == by_hand[1:].tolist()
    assert told.features[0, 0].tolist() == [0, 0, 0, -25, 0, 0, np.rint(100 / (100 + 0.2 * 2**14) * 2048), 0]
    assert told.features[0, 1, 7] == 2048  # its own group, 1, was seen


def test_what_rounding_leaves_goes_to_the_nearest_group():
    assert weights(np.array([[0.0, 0.0, 0.0]])).tolist() == [[1366.0, 1365.0, 1365.0]]
    assert weights(np.array([[5.0, np.inf, np.inf]])).tolist() == [[4096.0, 0.0, 0.0]]


def test_neighbours_begin_with_the_group_itself():
    centres = np.array([[0, 0, 0], [0, 0, 0], [3, 0, 0], [1, 0, 0]], dtype=np.float64)
    assert neighbours(squares(centres, centres), 3).tolist() == [[0, 1, 3], [1, 0, 3], [2, 3, 0], [3, 0, 1]]


def test_iou_counts_an_absent_part_as_one_or_not_at_all():
    parts, labels = np.array([[0, 0, 0, 0], [2, 2, 3, 3]]), np.array([[0, 0, 0, 0], [2, 3, 3, 3]])
    category = np.array([0, 1])
    found = instance_ious(labels, parts, category, KINDS)
    assert found.tolist() == [1.0, pytest.approx((1 / 2 + 2 / 3 + 1) / 3)]
    assert instance_ious(labels, parts, category, KINDS, skip_absent=True)[1] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert class_mean(found, category) == pytest.approx(found.mean())


def test_the_frame_is_that_of_the_cut():
    raw = clouds(np.random.default_rng(3), 2)
    cut = specs.random_scene(np.random.default_rng(0)).scenes(raw)
    for cloud, points in zip(raw, cut.points, strict=True):
        assert set(map(tuple, frame_of(cloud, specs.SMALL).steps(cloud).tolist())) == set(map(tuple, points.tolist()))


# Invariants


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_one_equals_a_batch_of_many(seed):
    perceiver, scenes, raw = setting(seed)
    whole = labelled(perceiver, scenes, raw)
    for i in range(len(raw)):
        (one,) = labelled(perceiver, scenes[i : i + 1], raw[i : i + 1])
        assert one.margins == whole[i].margins
        assert (one.labels == whole[i].labels).all()
        assert (one.point_margins == whole[i].point_margins).all()
        assert (one.proven == whole[i].proven).all()


def test_points_in_another_order_get_the_same_labels():
    perceiver, scenes, raw = setting(5)
    order = np.random.default_rng(0).permutation(raw.shape[1])
    again = perceiver.scenes(raw[:, order]).asking(scenes.categories)
    for ours, theirs in zip(labelled(perceiver, scenes, raw), labelled(perceiver, again, raw[:, order]), strict=True):
        assert (ours.labels[order] == theirs.labels).all()
        assert (ours.point_margins[order] == theirs.point_margins).all()


@pytest.mark.parametrize("n_points", [40, 96, 700])
def test_more_or_fewer_points_than_the_model_is_cut_for_get_the_same_labels_in_any_order(n_points):
    rng = np.random.default_rng(n_points)
    perceiver, raw = Perceiver(specs.random_part_model(rng)), clouds(rng, 1, n_points)[0]
    order = rng.permutation(n_points)
    ours, theirs = perceiver(raw, category="kind 1"), perceiver(raw[order], category="kind 1")
    assert ours.order == theirs.order
    assert (ours.labels[order] == theirs.labels).all()
    assert (ours.point_margins[order] == theirs.point_margins).all()
    assert len(set(ours.labels.tolist())) > 1


def test_labels_are_parts_of_the_category_that_was_given_or_answered():
    perceiver, scenes, raw = setting(7)
    for category, answer in zip(scenes.categories, labelled(perceiver, scenes, raw), strict=True):
        assert category in (-1, answer.label)
        assert answer.given == (category >= 0)
        assert KINDS.own()[answer.label][answer.labels].all()


def test_logits_are_affine_in_the_belief():
    perceiver, scenes, _ = setting(9)
    model, rows = perceiver.model, np.arange(len(scenes))
    view = model.encoder.view(scenes)
    view.embed(rows, np.zeros(len(rows), dtype=int))
    step = np.zeros((len(rows), 16))
    step[:, 3] = 0.5
    zero = np.zeros_like(step)
    free = scenes.categories < 0
    moved = (model.task.logits(step, view, rows) - model.task.logits(zero, view, rows))[free][:, :-1, :5]
    assert np.allclose(moved, model.task.weight[:5, 3] * 0.5, atol=1e-9)


def test_groups_that_were_not_seen_are_not_heard():
    perceiver, scenes, _ = setting(11)
    model, rows = perceiver.model, np.arange(len(scenes))
    view = model.encoder.view(scenes)
    view.embed(rows, np.zeros(len(rows), dtype=int))
    before = model.task.logits(np.zeros((len(rows), 16)), view, rows)
    hidden = ~view.known
    view.tokens[hidden] = 1e4
    view.kept.clear()
    assert (model.task.logits(np.zeros((len(rows), 16)), view, rows) == before).all()
    view.known[hidden] = True  # the same numbers, seen, are heard
    view.kept.clear()
    assert (model.task.logits(np.zeros((len(rows), 16)), view, rows) != before).any()


def test_acceptance_is_a_margin_strictly_above():
    perceiver, scenes, raw = setting(13)
    gap = labelled(perceiver, scenes, raw)[0].point_margins
    tau = float(np.sort(gap)[len(gap) // 2])
    answer = labelled(perceiver, scenes, raw, PointRule(tau, None))[0]
    assert (answer.accepted == (gap > tau)).all()
    assert not answer.accepted_each.any()


# Proofs


def close_call(margins: np.ndarray) -> float:
    """Margins [T, n] -> one of them, the first that its cloud reaches: there rounding decides on the exit."""
    before = np.maximum.accumulate(margins, axis=0)[1:-1]
    reached = margins[2:][(margins[2:] > before) & (margins[2:] < 0.99)]
    return float(np.sort(reached)[len(reached) // 2])


def false_proofs(seeds: range, n: int) -> tuple[int, int, int]:
    """Episodes, proven ones, and false proofs: an answer or a point that exact arithmetic answers otherwise."""
    total = proven = wrong = 0
    for seed in seeds:
        perceiver, scenes, raw = setting(seed, n)
        rule = ExitRule(tau=close_call(np.stack([look.margin for look in perceiver.played(scenes).looks])))
        asked = [frame_of(cloud, specs.SMALL).steps(cloud)[:24] for cloud in raw]
        answers = perceiver.answers(scenes, rule)
        model = perceiver.model
        dense = answer_points(model, perceiver.stability, scenes, answers, asked, PointRule())
        exact = perceiver.replay(scenes, rule)
        engine = perceiver.head.neurons.exact(perceiver.head)
        last = {}
        for look in play(episodes(model, scenes, rule), engine).looks:
            last |= {int(row): look.belief[i] for i, row in enumerate(look.rows)}
        for row, (ours, theirs) in enumerate(zip(dense, exact, strict=True)):
            total += 1
            if not ours.proven.any():
                continue
            proven += 1
            view = model.encoder.view(scenes[row : row + 1])
            for place in theirs.order:
                view.embed(np.array([0]), np.array([place]))
            labels = model.task.points(last[row], view, 0, asked[row], int(theirs.label)).argmax(axis=1)
            wrong += (not really_equal(answers[row], theirs)) or bool((labels != ours.labels)[ours.proven].any())
    return total, proven, wrong


def test_no_proof_about_points_is_false():
    total, proven, wrong = false_proofs(range(4), 40)
    assert wrong == 0
    assert proven > total / 10


@pytest.mark.slow
def test_no_proof_is_false_in_ten_thousand_episodes():
    total, proven, wrong = false_proofs(range(100, 150), 200)
    assert (total, wrong) == (10_000, 0)
    assert proven > 1_000


def test_a_planted_fault_is_found(monkeypatch):
    monkeypatch.setattr(Stability, "_doubts", lambda self, played, rule: iter(()))
    monkeypatch.setattr(Stability, "points_proven", lambda self, box, logits, margins: np.ones(len(logits), dtype=bool))
    assert false_proofs(range(8), 40)[2] > 0


# Promises and commands


def promise(model_sha256: str = "m") -> PartPromise:
    rng = np.random.default_rng(0)
    margins = rng.random((300, 20))
    seen = PointRecording(margins, rng.random((300, 20)) < 0.02, np.ones((300, 20), dtype=bool))
    plan = plan_points(seen, 0.05, 0.05, 300, model_sha256=model_sha256, data_sha256="v")
    return PartPromise(0.5, plan, certify_points(seen, plan, "c"), promise_shapes(seen, 0.1, 0.2, model_sha256), 4.0)


def test_a_promise_survives_the_way_into_a_bundle_and_back():
    made = promise()
    assert PartPromise.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert made.why_void("m", "x") is None
    assert "another model" in (made.why_void("other", "x") or "")
    with pytest.raises(InputError, match="keys"):
        PartPromise.from_dict({"exit": 0.1})


@pytest.fixture
def bundle(tmp_path):
    rng = np.random.default_rng(17)
    spec = specs.random_part_model(rng)
    golden = specs.golden(spec, specs.random_drives(rng, 6, 2, 16))
    place = tmp_path / "parts.net"
    write(place, Bundle(spec, {"name": "parts", "data": {"name": "shapenetpart", "splits": "far"}}, golden))
    np.savetxt(tmp_path / "cloud.xyz", rng.normal((593000.0, 5763000.0, 80.0), size=(150, 3)))
    return place


@pytest.mark.parametrize("kind", ["ply", "npz", "csv"])
def test_every_point_of_the_input_is_written(bundle, tmp_path, kind, capsys):
    out = tmp_path / f"labelled.{kind}"
    code = main(["run", str(bundle), "--input", str(tmp_path / "cloud.xyz"), "--category", "Kind 1", "--out", str(out),
                 "--up", "z", "--json"])  # fmt: skip
    report = json.loads(capsys.readouterr().out)
    assert code == 0
    answer = report["answers"][0]
    assert (answer["class"], answer["category_given"], answer["n_labelled"]) == ("kind 1", True, 150)
    if kind == "npz":
        with np.load(out) as stored:
            assert len(stored["labels"]) == len(stored["accepted"]) == 150
            assert set(stored["labels"].tolist()) <= {2, 3, 4}
            found = stored["points"]
    elif kind == "csv":
        found = np.loadtxt(out, delimiter=",", skiprows=1)[:, :3]
    else:
        head, body = out.read_bytes().split(b"end_header\n")
        assert b"element vertex 150\n" in head
        found = np.frombuffer(body, "<f8,<f8,<f8,u1,u1,u1,<i2,<f4,u1")
        found = np.stack([found[f"f{axis}"] for axis in range(3)], axis=1)
    np.testing.assert_array_equal(found, np.loadtxt(tmp_path / "cloud.xyz"))  # as they came: far away, z up


def test_without_a_category_the_model_answers_it(bundle, tmp_path, capsys):
    assert main(["run", str(bundle), "--input", str(tmp_path / "cloud.xyz"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["answers"][0]
    assert not answer["category_given"]
    assert answer["class"] in ("kind 0", "kind 1")


def test_python_labels_every_row_and_says_which_are_accepted(bundle, tmp_path):
    model, cloud = asp_neuro.load(str(bundle)), np.loadtxt(tmp_path / "cloud.xyz")
    told = model(cloud, category="kind 0")
    assert told.labels.shape == told.accepted.shape == (150,)
    assert not told.accepted.any()  # nothing is promised
    cloud[7] = np.nan
    assert model(cloud, drop_invalid=True, category="kind 0").labels[7] == -1
    with pytest.raises(UsageError, match="no category"):
        model(cloud, category="mug")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--category", "kid 1"], "no category 'kid 1'; did you mean 'kind 1'?"),
        (["--out", "points.obj"], "known: .ply .npz .csv"),
        (["--prefix"], "--prefix is for models that answer with a class"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(bundle, tmp_path, words, reason, capsys):
    assert main(["run", str(bundle), "--input", str(tmp_path / "cloud.xyz"), *words]) != 0
    assert reason in capsys.readouterr().err
