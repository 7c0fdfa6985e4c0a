"""One intake: whatever way a cloud comes, the same points give the same answer, and what is refused says what to do."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asp_neuro.data import load_clouds, read_cloud
from asp_neuro.data import shapes as shapes_module
from asp_neuro.data.files import take_file
from asp_neuro.data.folder import read_folder
from asp_neuro.data.intake import Sampling, draw, n_used, rounded, take, thin
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.perceiver import Perceiver, really_equal
from asp_neuro.model.promise import take_inputs
from asp_neuro.runtime import deployment
from asp_neuro.scenes.cloud import Chunking, cut


@pytest.fixture(scope="module")
def deployed() -> deployment.Deployed:
    return deployment.open_bundle("compact")


@pytest.fixture(scope="module")
def model(deployed) -> Perceiver:
    """With the threshold of its certificate, as if it held whatever the arithmetic."""
    rule = ExitRule(deployed.certificate.threshold, certified=True)
    return replace(deployed.perceiver, exit_rule=rule)


@pytest.fixture(scope="module")
def clouds() -> np.ndarray:
    return load_clouds("shapes", "test").points[:12]


def dense(n_clouds: int, n_points: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Built-in shapes with more points than a model is cut for: clouds [n, P, 3] and labels [n]."""
    return shapes_module._block(np.random.default_rng(seed), n_clouds, n_points)


def same(one, two) -> bool:
    """Bit for bit; notes aside, which say how a cloud came."""
    plain = [{**a.to_dict(), "notes": None} for a in (one, two)]
    arrays = [(a.margins, a.labels, a.probabilities.tobytes(), a.membrane.tobytes()) for a in (one, two)]
    return plain[0] == plain[1] and arrays[0] == arrays[1]


def all_same(ones, twos) -> bool:
    return all(same(one, two) for one, two in zip(ones, twos, strict=True))


# Thinning


def test_the_draw_is_pinned() -> None:
    assert draw(10, 4).tolist() == [2, 4, 6, 8]
    assert draw(10, 4, seed=1).tolist() == [0, 3, 6, 7]
    assert draw(1000, 3).tolist() == [366, 410, 821]


@settings(max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 2**40), st.data())
def test_a_draw_holds_as_many_different_ranks_as_asked(n: int, seed: int, data) -> None:
    k = data.draw(st.integers(1, n))
    ranks = draw(n, k, seed)
    assert len(ranks) == k
    assert (np.diff(ranks) > 0).all()
    assert 0 <= ranks[0] <= ranks[-1] < n


def test_every_rank_is_drawn_as_often_as_any_other() -> None:
    times = np.zeros(200)
    for seed in range(2000):
        times[draw(200, 50, seed)] += 1
    assert abs(times - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)  # five standard deviations


def test_fewer_points_are_repeated_in_turn() -> None:
    three = np.array([[2.0, 0, 0], [0, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(thin(three, Sampling(7))[:, 0], [0, 1, 2, 0, 1, 2, 0])


def test_just_as_many_points_stay_as_they_are() -> None:
    three = np.array([[2.0, 0, 0], [2, 0, 0], [1, 0, 0]])
    assert thin(three, Sampling(3)) is three


def test_repeated_points_do_not_crowd_out_others() -> None:
    line = np.array([[x, 0.0, 0.0] for x in (0, 1, 2, 3)])
    np.testing.assert_array_equal(thin(np.repeat(line, 500, axis=0), Sampling(4)), line)


@settings(max_examples=40)
@given(st.integers(2, 80), st.integers(1, 90), st.integers(0, 2**31))
def test_the_order_of_the_points_does_not_matter(n: int, wanted: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cloud = rng.integers(-3, 4, (n, 3)).astype(float)  # many ties
    one, two = thin(cloud, Sampling(wanted)), thin(rng.permutation(cloud), Sampling(wanted))
    assert one.shape == (wanted, 3)
    assert {*map(tuple, one)} <= {*map(tuple, cloud)}
    if n != wanted:
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("n", [300, 1024, 5000])
def test_the_order_of_the_points_does_not_change_an_answer(model, n) -> None:
    cloud = dense(1, n, seed=n)[0][0]
    mixed = np.random.default_rng(0).permutation(cloud)
    assert same(model(cloud), model(mixed))


def test_a_large_cloud_is_thinned_quickly(model) -> None:
    cloud = dense(1, 200_000)[0][0]
    began = time.perf_counter()
    taken = take(cloud, Sampling())
    assert time.perf_counter() - began < 5.0  # about 0.2 s on a free core
    assert taken.notes == ("200000 points were thinned to the 1024 that the model is cut for.",)
    assert model(cloud).points == 1024


@pytest.mark.slow
@pytest.mark.parametrize("n", [2048, 5000, 20_000])
def test_dense_clouds_are_answered_as_well_as_those_of_training(model, n) -> None:
    points, labels = dense(150, n, seed=5)
    answers = model(list(points))
    certified = np.array([a.exit is ExitReason.CERTIFIED for a in answers])
    right = np.array([a.label for a in answers]) == labels
    assert right.mean() > 0.90
    assert certified.mean() > 0.90
    assert (~right[certified]).mean() < 0.08  # 5 % promised in the long run, 150 clouds


# One way in


@pytest.mark.parametrize("n", [500, 1024, 3000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_call_a_file_and_a_data_set_give_the_same_bits(tmp_path: Path, deployed, model, n, dtype) -> None:
    cloud = dense(1, n, seed=n)[0][0].astype(dtype) * dtype(1.1)  # float64: more digits than a float32 holds
    (tmp_path / "box" / "test").mkdir(parents=True)
    file = tmp_path / "box" / "test" / "cloud.npy"
    np.save(file, cloud)
    called = replace(model, familiarity=deployed.familiarity)(cloud)
    single, taken = deployment.clouds_in_files(deployed, [file], None)
    [from_file] = deployment.run(deployed, single, model.exit_rule, taken=taken)[1]
    folder = read_folder(tmp_path, "test", Sampling(), "y", 0).relabelled(deployed.bundle.classes)
    [from_folder] = deployment.run(deployed, folder, model.exit_rule)[1]
    assert take(cloud, Sampling()).points.tobytes() == single.points.tobytes() == folder.points.tobytes()
    assert all_same([called, called], [from_file, from_folder])
    assert called.notes == from_file.notes
    assert called.points == min(n, 1024)


def test_the_built_in_clouds_answer_as_their_data_set_does(deployed, model, clouds) -> None:
    known = deployment.run(deployed, load_clouds("shapes", "test").subset(np.arange(12)), model.exit_rule)[1]
    assert all_same(model(clouds), known)


def test_several_clouds_of_any_sizes_are_answered_as_each_alone(model, clouds) -> None:
    given_clouds = [clouds[0], clouds[1][:400], dense(1, 2500)[0][0], clouds[2].astype(np.float64)]
    answers = model(given_clouds)
    assert all_same(answers, [model(cloud) for cloud in given_clouds])
    assert [a.points for a in answers] == [1024, 400, 1024, 1024]
    assert all_same(model(tuple(given_clouds)), answers)


def test_more_clouds_than_are_cut_at_once_are_all_answered(model, clouds, monkeypatch) -> None:
    from asp_neuro.model import perceiver

    whole = model(clouds)
    monkeypatch.setattr(perceiver, "AT_ONCE", 5)
    assert all_same(model(clouds), whole)


def test_a_batch_gives_a_list_and_one_cloud_an_answer(model, clouds) -> None:
    assert all_same(model(clouds[:3]), [model(cloud) for cloud in clouds[:3]])
    assert isinstance(model(clouds[:1]), list)
    assert same(model(clouds[0].tolist()), model(clouds[0]))  # rows of numbers are one cloud


def test_episode_and_recompute_take_what_a_call_takes(model) -> None:
    cloud = dense(1, 3000)[0][0]
    answer, exact = model(cloud, up="z"), model.recompute(cloud, up="z")
    assert really_equal(answer, exact)
    assert exact.points == 1024
    assert tuple(seen.chunk for seen in model.episode(cloud, up="z")) == answer.order
    assert answer.order != model(cloud).order  # the axis does matter
    with pytest.raises(UsageError, match="2 clouds, expected one"):
        next(model.episode([cloud, cloud]))


def test_the_up_axis_is_told_in_a_call(model, clouds) -> None:
    x, y, z = clouds[3].T
    assert same(model(np.stack([x, -z, y], axis=1), up="z"), model(clouds[3]))
    with pytest.raises(UsageError, match="unknown up axis 'w'"):
        model(clouds[3], up="w")


def test_structured_arrays_and_further_columns_and_integers_are_taken(model, clouds) -> None:
    cloud = clouds[4]
    record = np.zeros(len(cloud), [("intensity", "u1"), ("z", "f4"), ("y", "f8"), ("x", "f4")])
    for i, axis in enumerate("xyz"):
        record[axis] = cloud[:, i]
    wide = np.hstack([cloud, np.ones((len(cloud), 2), np.float32)])
    steps = (cloud * 4096).astype(np.int32)  # the built-in clouds lie on this grid
    plain = model(cloud)
    assert same(model(record), plain)
    assert same(model(wide), plain)
    assert model(wide).notes == ("5 columns: the first three are taken as x, y and z.",)
    assert same(model(steps), plain)
    assert all_same(model([record, wide]), [model(cloud)] * 2)


def test_a_file_with_further_columns_says_so(tmp_path: Path, clouds) -> None:
    np.savetxt(tmp_path / "a.xyz", np.hstack([clouds[0], clouds[0][:, :1]]))
    assert take_file(tmp_path / "a.xyz", Sampling()).notes == ("4 columns: the first three are taken as x, y and z.",)
    np.testing.assert_array_equal(read_cloud(tmp_path / "a.xyz"), clouds[0])


def test_map_coordinates_keep_their_digits(tmp_path: Path, model, clouds) -> None:
    moved = clouds[5] + np.array([500_000.0, 4_000_000.0, 5_400_000.0])  # float64
    answer, near = model(moved), model(clouds[5])
    assert (answer.label, answer.order, answer.exit) == (near.label, near.order, near.exit)
    assert answer.points == 1024
    np.save(tmp_path / "utm.npy", moved)
    assert same(model(read_cloud(tmp_path / "utm.npy")), answer)
    blurred = len(np.unique(moved.astype(np.float32), axis=0))
    assert blurred < 1000  # what rounding first would have left


def test_near_clouds_are_rounded_where_they_are(clouds) -> None:
    assert rounded(clouds).tobytes() == clouds.tobytes()
    stretched = clouds[0].astype(np.float64) * 1.1 + 3.0
    assert rounded(stretched).tobytes() == stretched.astype(np.float32).tobytes()


# Points without a return


def organised(cloud: np.ndarray) -> np.ndarray:
    """[40, 50, 3] with the 1,024 points of a cloud and NaN everywhere else."""
    out = np.full((2000, 3), np.nan)
    out[np.random.default_rng(0).permutation(2000)[:1024]] = cloud
    return out.reshape(40, 50, 3)


def test_points_without_a_return_are_dropped_on_request_and_counted(tmp_path: Path, model, clouds) -> None:
    picture, plain = organised(clouds[6]), model(clouds[6])
    np.save(tmp_path / "rows.npy", picture.reshape(-1, 3))
    np.save(tmp_path / "picture.npy", picture)
    record = np.zeros((40, 50), [(axis, "f4") for axis in "xyz"])
    for i, axis in enumerate("xyz"):
        record[axis] = picture[..., i]
    masked = np.ma.masked_invalid(picture.reshape(-1, 3))
    answers = [model(given, drop_invalid=True) for given in (picture, picture.reshape(-1, 3), record, masked)]
    answers += model([picture, picture], drop_invalid=True)
    for answer in answers:
        assert same(replace(answer, dropped=0), plain)
        assert answer.dropped == 976
        assert answer.notes == ("Left out: 976 of the points, which are NaN or inf.",)
    for name in ("rows.npy", "picture.npy"):
        taken = take_file(tmp_path / name, Sampling(), drop_invalid=True)
        assert taken.dropped == 976
        assert same(model(taken.points), plain)


def test_infinity_is_dropped_as_nan_is(clouds) -> None:
    cloud = np.vstack([clouds[0], [[np.inf, 0, 0], [0, -np.inf, np.nan]]])
    assert take(cloud, Sampling(), drop_invalid=True).dropped == 2


# What is promised


def test_fewer_points_lose_the_promise_and_say_so(model, clouds) -> None:
    full, few = model(clouds[0]), model(clouds[0][:1023])
    assert full.exit is ExitReason.CERTIFIED
    assert full.notes == ()
    assert few.exit is ExitReason.THRESHOLD
    assert few.notes == (
        "1023 distinct points, fewer than the 1024 of the clouds that the certificate was made with: "
        "no promise covers this answer.",
    )
    assert (few.label, few.points) == (full.label, 1023)


def test_repeating_points_does_not_earn_the_promise(model, clouds) -> None:
    repeated = model(np.repeat(clouds[0][:256], 4, axis=0))
    assert repeated.points == 256
    assert repeated.exit is not ExitReason.CERTIFIED


def test_without_a_certificate_few_points_are_still_told(model, clouds) -> None:
    bare = replace(model, exit_rule=ExitRule(0.5))
    assert bare(clouds[0][:300]).notes == (
        "300 distinct points, fewer than the 1024 of the clouds that the model was trained with: expect more errors.",
    )
    assert replace(model, exit_rule=ExitRule())(clouds[0][:300]).exit is ExitReason.BUDGET


def test_an_acceptance_loses_the_promise_too(model, clouds) -> None:
    accepting = replace(model, exit_rule=ExitRule(0.999999, certified=True, kappa=0.0))
    assert accepting(clouds[0]).exit is ExitReason.CERTIFIED
    assert accepting(clouds[0][:500]).exit is ExitReason.BUDGET


def test_a_data_set_of_few_points_is_not_certified(tmp_path: Path, deployed, model, clouds) -> None:
    (tmp_path / "box" / "test").mkdir(parents=True)
    for i, cloud in enumerate(clouds[:4]):
        np.save(tmp_path / "box" / "test" / f"{i}.npy", cloud[: 600 if i else 1024])
    found = read_folder(tmp_path, "test", Sampling(), "y", 0).relabelled(deployed.bundle.classes)
    report, answers = deployment.run(deployed, found, model.exit_rule)
    assert [a.points for a in answers] == [1024, 600, 600, 600]
    assert report["exits"]["certified"] == 1
    assert report["short_share"] == 0.75


def test_points_that_meet_on_the_grid_count_unless_they_are_many(clouds) -> None:
    how = Chunking(n_points=1024, n_groups=4, group_size=4, n_chunks=2)
    pair = clouds[:2].copy()
    pair[0, 1] = pair[0, 0] + np.float32(1e-6)  # on the same step of the grid
    pair[1, 0] = 1e4  # one point far away: the others shrink to a few steps
    one, two = n_used(pair, cut(pair, how))
    assert one == 1024
    assert two < 100


# What is refused

REFUSED = {
    "two columns": (np.zeros((5, 2)), r"the cloud: 2 columns, expected 3 \(x y z\); the shape is \(5, 2\)"),
    "one axis": (np.zeros(12), r"the cloud: shape \(12,\), expected \(points, 3\)"),
    "a number": (3.0, r"the cloud: shape \(\), expected \(points, 3\)"),
    "no rows": (np.zeros((0, 3)), r"the cloud: no points: shape \(0, 3\)"),
    "no clouds": (np.zeros((0, 100, 3)), r"no clouds: the batch has shape \(0, 100, 3\)"),
    "an empty list": ([], "an empty list, expected a cloud or a list of clouds"),
    "four axes": (np.zeros((2, 2, 5, 3)), r"the cloud: shape \(2, 2, 5, 3\), expected"),
    "transposed": (np.zeros((3, 1024)), r"the cloud: shape \(3, 1024\), expected \(points, 3\): transpose it"),
    "strings": (np.array([["a", "b", "c"]]), "the cloud: type <U1, expected numbers"),
    "complex": (np.zeros((100, 3), complex), "the cloud: type complex128, expected numbers"),
    "bools": (np.zeros((100, 3), bool), "the cloud: type bool, expected numbers"),
    "a path": ("cloud.ply", "'cloud.ply' is no array; a file is read with asp_neuro.data.read_cloud"),
    "ragged rows": ([[0.0, 1.0, 2.0], [3.0, 4.0]], r"the cloud: no array of numbers .*expected \(points, 3\)"),
    "nan": (np.full((100, 3), np.nan), r"point 0 is not finite \(NaN or inf\), 100 of 100 in all; .*drop_invalid=True"),
    "inf": (np.full((100, 3), np.inf), r"point 0 is not finite .*--drop-invalid"),
    "huge": (np.full((100, 3), 1e30), r"a coordinate of 1e\+30, the limit is 1e\+18"),
    "one point": (np.ones((100, 3)), "all points are the same: only one distinct point"),
    "too few": (np.arange(90.0).reshape(30, 3), "the cloud: 30 distinct points, at least 64 are needed"),
    "no field": (np.zeros(9, [("x", "f4"), ("y", "f4")]), "no field z; found x, y"),
    "text field": (np.zeros(9, [("x", "f4"), ("y", "f4"), ("z", "U2")]), "field z has type <U2, expected one number"),
    "a batch with nan": (
        np.full((2, 100, 3), np.nan),
        r"cloud 0 of a batch of shape \(2, 100, 3\): point 0 is not finite .*drop_invalid=True",
    ),
    "organised in a list": (
        [np.zeros((4, 5, 3))],
        r"cloud 0: shape \(4, 5, 3\) is an organised cloud; take it with drop_invalid=True \(--drop-invalid\)",
    ),
    "organised records": (
        np.zeros((4, 5), [("x", "f4"), ("y", "f4"), ("z", "f4")]),
        r"the cloud: shape \(4, 5\) is an organised cloud; take it with drop_invalid=True",
    ),
    "no numbers": ({"points": 3}, r"type object, expected numbers in the shape \(points, 3\)"),
    "the second of a list": (
        [np.random.default_rng(0).normal(size=(100, 3)), np.zeros((5, 2))],
        r"cloud 1: 2 columns, expected 3 \(x y z\); the shape is \(5, 2\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why_with_the_shape_that_was_passed(model, name) -> None:
    given_cloud, why = REFUSED[name]
    with pytest.raises(InputError, match=why):
        model(given_cloud)


def test_a_cloud_of_nothing_but_nan_is_refused_even_on_request(model) -> None:
    with pytest.raises(InputError, match="no point is left: all 100 are NaN or inf"):
        model(np.full((10, 10, 3), np.nan), drop_invalid=True)


# The answer as plain data


def test_an_answer_is_plain_data(model, clouds) -> None:
    import json

    answer = model(clouds[0])
    plain = answer.to_dict("here")
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) >= {
        *("id", "label", "class", "probability", "margin", "observations", "order", "exit", "preserved"),
        *("points", "dropped", "removed", "unfamiliar"),
    }
    assert plain["class"] == model.classes[answer.label] == answer.class_name
    assert (plain["exit"], plain["points"], plain["removed"], plain["unfamiliar"]) == ("certified", 1024, 0, None)
    assert "id" not in answer.to_dict()


# Scenes of another kind


def test_only_clouds_have_an_intake(model) -> None:
    class Picture:
        kind = "picture"

    taken, one = take_inputs([[1, 2], [3, 4]], Picture())
    assert one
    assert taken[0].points.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(UsageError, match="for clouds; this model looks at scenes of kind 'picture'"):
        take_inputs([[1, 2]], Picture(), up="z")


@pytest.mark.parametrize("n_first", [1, 60, 75, 500])
def test_points_that_stand_first_again_and_again_do_not_hide_the_others(n_first: int) -> None:
    """Most clouds are known to have enough distinct points from their first ones; others are counted."""
    rng = np.random.default_rng(n_first)
    others = rng.normal(size=(1024 - n_first, 3)).astype(np.float32)
    cloud = np.concatenate([np.repeat(others[:1], n_first, axis=0), others])
    assert np.array_equal(take(cloud, Sampling(1024, 64)).points, cloud)
    few = np.concatenate([np.repeat(others[:1], 1024 - 62, axis=0), others[:62]])
    with pytest.raises(InputError, match="62 distinct points, at least 64 are needed"):
        take(few, Sampling(1024, 64))
    signs = np.repeat(np.array([[0.0, 1.0, 0.0], [-0.0, 1.0, -0.0]], dtype=np.float32), 512, axis=0)
    with pytest.raises(InputError, match="all points are the same"):
        take(signs, Sampling(1024, 2))
