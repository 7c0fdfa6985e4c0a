"""Familiarity: what it promises of itself, what it finds, and that a certificate holds with it or not at all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from asp_neuro import bundle as bundles
from asp_neuro.certify import Recording, certify, familiarity, make_plan, tallies, why_void
from asp_neuro.certify.familiarity import Odd, Seen, limit, needed, oddness, reference
from asp_neuro.errors import ConfigError, InputError, UsageError
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.familiarity import Familiarity, steps, told
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime import deployment
from asp_neuro.runtime.deployment import Deployed

# The limit: split conformal


def test_the_limit_by_hand():
    assert limit(np.arange(1.0, 100.0), 0.01) == 99.0  # 99 clouds: the largest
    assert limit(np.arange(1.0, 200.0), 0.01) == 198.0  # 199: two of 200 may exceed it
    assert limit(np.arange(1.0, 194.0), 0.01) == 193.0
    assert (needed(0.01), needed(0.05), needed(0.02)) == (99, 19, 49)
    with pytest.raises(UsageError, match="98 clouds: 99 are needed"):
        limit(np.arange(98.0), 0.01)
    with pytest.raises(UsageError, match="strictly between 0 and 1"):
        needed(1.5)


def test_at_most_the_chosen_share_of_clouds_like_these_exceeds_the_limit():
    rng = np.random.default_rng(0)
    n, level, repeats = 49, 0.02, 20000
    scores = rng.exponential(size=(repeats, n + 1))
    over = np.mean([new > limit(known, level) for known, new in zip(scores[:, :n], scores[:, n])])
    assert over == pytest.approx(level, abs=3 * (level / repeats) ** 0.5)  # exact at this n
    planted = np.mean([new > np.quantile(known, 1 - level) for known, new in zip(scores[:, :n], scores[:, n])])
    assert planted > level + 3 * (level / repeats) ** 0.5  # the plain quantile breaks it


# The distances


def toy(rng: np.random.Generator, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in five statistics, of which two go together."""
    classes = rng.integers(3, size=n)
    x = rng.normal(size=(n, 5)) * [0.1, 0.02, 0.1, 0.3, 0.05]
    x[:, 2] += 2.0 * x[:, 0]
    x[:, 1] += 0.5 * classes
    return x, classes


def test_distances_are_those_of_mahalanobis_up_to_ridge_and_rounding():
    x, classes = toy(np.random.default_rng(0), 3000)
    known = reference([(x, np.zeros(len(x), dtype=int) + (classes > 5))])  # one class
    one = reference([(x[classes == 1], np.zeros((classes == 1).sum(), dtype=int))])
    assert set(known.owners) == {0}
    mine = x[classes == 1]
    inverse = np.linalg.inv(np.cov(mine.T))
    centred = mine - mine.mean(axis=0)
    exact = np.einsum("ni,ij,nj->n", centred, inverse, centred)
    ours = one.to_classes(mine, 1)[:, 0]
    assert np.corrcoef(exact, ours)[0, 1] > 0.7  # eight prototypes in place of one mean
    far = mine + np.array([0.3, 0.0, -0.6, 0.0, 0.0])  # each statistic as usual, both together never
    assert np.median(one.to_classes(far, 1)[:, 0]) > 3 * np.quantile(ours, 0.99)


def test_the_class_that_was_answered_counts():
    x, classes = toy(np.random.default_rng(0))
    known = reference([(x, classes)])
    far = known.to_classes(x, 3)
    assert (far[:, :3].argmin(axis=1) == classes).mean() > 0.95
    assert (far[:, 3] == far[:, :3].min(axis=1)).all()
    assert np.isinf(known.to_classes(x, 5)[:, 3:5]).all()  # classes that nobody knows


def test_distances_are_exact_so_that_no_batch_changes_them():
    x, classes = toy(np.random.default_rng(0))
    known = reference([(x, classes)])
    whole = known.distances(x)
    assert (np.concatenate([known.distances(x[i : i + 1]) for i in range(len(x))]) == whole).all()
    assert (whole * 2**12 == np.rint(whole * 2**12)).all()
    wild = known.distances(np.full((1, 5), 1e9))
    assert np.isfinite(wild).all()
    assert (wild > whole.max()).all()


def test_statistics_that_only_say_what_a_cloud_is_like_change_no_distance():
    x, classes = toy(np.random.default_rng(0))
    known, more = reference([(x, classes)], 4), x + np.array([0.0, 0.0, 0.0, 0.0, 0.5])
    assert (known.apart(more) == known.apart(x)).all()
    assert (known.apart(x) == reference([(x[:, :4], classes)]).apart(x[:, :4])).all()
    assert (reference([(x, classes)]).apart(more) != known.apart(x)).any()


# Oddness: what misleads the model


def test_what_is_like_changed_clouds_is_odd_and_what_is_like_known_ones_is_not():
    rng = np.random.default_rng(0)
    x, classes = toy(rng, 600)
    lean = np.array([0.1, 0.0, -0.2, 0.0, 0.0])  # no more than usual of each, and never together
    leaning = x + lean
    known = reference([(x, classes)])
    found = oddness(known, [(x, classes)], [x + np.array([0.0, 0.0, 0.0, 0.1, 0.0])], [Odd("leaning", leaning)])
    new, _ = toy(rng, 600)
    score, most = found(steps(new)), np.quantile(known.apart(x).min(axis=1), 0.99)
    assert (score >= 0.0).all()
    assert 0.3 < (score == 0.0).mean() < 0.7  # the middle of known clouds is nothing
    assert np.quantile(found(steps(x)), 0.99) == pytest.approx(most, rel=0.3)  # counts as much as a distance
    odder = found(steps(new + lean))
    assert np.median(odder) > np.quantile(score, 0.9)
    both = dataclasses.replace(known, odd=found)
    assert (both.distances(new) == np.maximum(known.apart(new), found(steps(new)))).all()


def test_oddness_is_exact_so_that_no_batch_changes_it():
    rng = np.random.default_rng(0)
    x, classes = toy(rng)
    found = oddness(reference([(x, classes)]), [(x, classes)], [], [Odd("a", x + 0.1), Odd("b", x - 0.1)])
    whole = found(steps(x))
    assert whole.shape == (300, 2)
    assert (np.concatenate([found(steps(x[i : i + 1])) for i in range(300)]) == whole).all()
    assert (found.slopes == np.rint(found.slopes)).all()
    assert np.isfinite(found(steps(np.full((1, 5), 1e9)))).all()


def made(n: int = 150, exits=(0.8, 0.5)) -> Familiarity:
    rng = np.random.default_rng(1)
    x, classes = toy(rng)
    new, labels = toy(rng, n)
    seen = Seen(new, np.stack([labels, labels]), rng.random((2, n)))
    return familiarity.make(
        [(x, classes)],
        [seen],
        exits,
        n_classes=3,
        statistics=list("abcde"),
        known=["clean"],
        odd=[Odd("leaning", x + 0.2)],
        level=0.05,
    )


def test_every_exit_threshold_has_a_limit_of_its_own():
    found = made()
    assert found.limit(0.8) == found.limits[0]
    assert found.limit(0.5) == found.limits[1]
    assert found.limit(None) == found.whole
    assert found.limit(0.7) == max(found.limits)
    assert found.limit(0.9) == found.limits[0]
    assert found.limit(0.1) == found.limits[1]


def test_a_record_comes_back_and_a_damaged_one_does_not():
    found = made()
    stored = found.to_dict()
    assert Familiarity.from_dict(stored) == found
    for change, message in (
        ({"level": 0.5}, "damaged or edited"),
        ({"middles": "AAAA"}, "bytes, expected"),
        ({"spread": "?"}, "base64"),
        ({"limits": [1.0]}, "do not fit"),
        ({"exits": [0.1, 0.5]}, "fall strictly"),
        ({"level": 0.0}, "strictly between"),
        ({"units": [0.0] * 5}, "above 0"),
        ({"odd": ["one", "two"]}, "bytes, expected"),
        ({"odd_unit": [1.0, 1.0]}, "do not fit"),
        ({"odd_width": [0.0] * 5}, "above 0"),
    ):
        with pytest.raises(InputError, match=message):
            Familiarity.from_dict({**stored, **change})


# Inside a certificate


def test_unfamiliar_samples_are_not_accepted_and_cost_no_promise():
    margins = np.array([[0.9, 0.9, 0.2, 0.6], [0.95, 0.95, 0.7, 0.3]])
    correct = np.array([[True, False, True, False], [True, True, False, True]])
    strange = np.array([[1.0, 9.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    found = tallies(Recording(margins, correct, strange=strange), np.array([0.8, 0.65, 0.5]), [5.0, 5.0, 0.5])
    assert found.accepted.tolist() == [1, 2, 0]  # the second stops at once, where it is strange; a limit of its own
    assert found.errors.tolist() == [0, 1, 0]
    free = tallies(Recording(margins, correct, strange=strange), np.array([0.8, 0.65, 0.5]))
    assert free.accepted.tolist() == [2, 3, 4]
    assert found.mean_observations.tolist() == free.mean_observations.tolist()
    with pytest.raises(UsageError, match="does not say how familiar"):
        tallies(Recording(margins, correct), np.array([0.8]), [5.0])
    with pytest.raises(InputError, match="strange has shape"):
        Recording(margins, correct, strange=strange[:2])


@pytest.fixture(scope="module")
def compact() -> tuple[Deployed, dict]:
    deployed = deployment.open_bundle("compact")
    sizes = {"train": 500, "validation": 160, "calibration": 400}
    splits = {name: deployment.clouds_of(deployed, None, name, None, n) for name, n in sizes.items()}
    return deployed, splits


@pytest.fixture(scope="module")
def certified(compact, tmp_path_factory) -> Deployed:
    deployed, splits = compact
    found = deployment.certify_on(deployed, splits)
    assert found.familiarity is not None
    assert found.certificate.certified
    place = tmp_path_factory.mktemp("bundle") / "known.net"
    return deployment.store(deployed, found, place)


def test_the_rule_is_stored_and_read_again_and_the_model_is_the_same(compact, certified):
    again = deployment.open_bundle(certified.path)
    assert again.sha256 == compact[0].sha256
    assert again.familiarity == certified.familiarity
    assert again.certificate.familiarity_sha256 == again.familiarity.sha256
    assert "nor does one whose cloud is unfamiliar" in deployment.exit_rule(again)[1]
    text = bundles.describe(again.bundle)
    assert "at most 1 % of clouds like these are called unfamiliar" in text
    assert certified.path.stat().st_size < compact[0].path.stat().st_size + 80_000


def test_a_bundle_without_runs_as_before_and_says_so(compact):
    deployed, splits = compact
    plain = dataclasses.replace(deployed.bundle, familiarity=None, certificate=None)
    bare = dataclasses.replace(deployed, bundle=plain)
    report, answers = deployment.run(bare, splits["validation"].subset(np.arange(8)), ExitRule())
    assert report["unfamiliar_share"] is None
    assert all(answer.unfamiliar is None for answer in answers)
    assert "familiarity: none" in bundles.describe(bare.bundle)


def plane(n: int = 256) -> np.ndarray:
    side = np.linspace(-1.0, 1.0, int(n**0.5))
    return np.stack(np.meshgrid(side, [0.0], side), axis=-1).reshape(-1, 3)


def test_degenerate_clouds_are_unfamiliar_and_new_ones_are_not(compact, certified):
    rng = np.random.default_rng(0)
    perceiver = deployment.load_perceiver(certified.path)
    n = certified.chunking.n_points
    octant = np.abs(rng.normal(size=(n, 3)))
    clouds = {
        "plane": plane(n),
        "wall": plane(n)[:, [0, 2, 1]],
        "line": np.linspace(-1.0, 1.0, n)[:, None] * [1.0, 0.0, 0.0],
        "octant": octant / np.linalg.norm(octant, axis=1, keepdims=True),
        "zeros": np.concatenate([np.zeros((n // 3, 3)), 5.0 + 0.1 * rng.normal(size=(n - n // 3, 3))]),
    }
    for name, cloud in clouds.items():
        answer = perceiver(cloud)
        assert answer.exit is ExitReason.UNFAMILIAR, name
        assert answer.unfamiliar.startswith("not like known clouds"), name
        assert answer.to_dict()["unfamiliar"] == answer.unfamiliar
    new = deployment.clouds_of(certified, None, "test", None, 200)
    rule = deployment.exit_rule(certified)[0]
    report, answers = deployment.run(certified, new, rule)
    assert report["unfamiliar_share"] <= 0.05
    assert report["exits"]["unfamiliar"] == sum(answer.exit is ExitReason.UNFAMILIAR for answer in answers)


def test_what_was_answered_stays_and_only_the_promise_goes(certified):
    rule, spec = deployment.exit_rule(certified)[0], certified.bundle.model
    scenes = spec.scene.scenes(plane(certified.chunking.n_points)[None].astype(np.float32))
    perceiver = Perceiver(spec, rule)
    before = perceiver.answers(scenes)
    (after,) = told(before, scenes, spec, rule, certified.familiarity)
    kept = ("label", "probability", "margin", "observations", "order", "verdict", "margins")
    assert all(getattr(after, name) == getattr(before[0], name) for name in kept)
    assert after.exit is ExitReason.UNFAMILIAR
    assert told(before, scenes, spec, rule, None) == before


def test_the_same_answers_one_by_one_and_in_batches_and_in_any_order_of_the_points(certified):
    clouds = deployment.clouds_of(certified, None, "test", None, 40)
    noisy = dataclasses.replace(clouds, points=clouds.points + np.float32(0.08) * np.sign(clouds.points))
    rule = deployment.exit_rule(certified)[0]
    whole = [a.unfamiliar for a in deployment.run(certified, noisy, rule, batch=64)[1]]
    single = [a.unfamiliar for a in deployment.run(certified, noisy, rule, batch=1)[1]]
    mixed = dataclasses.replace(noisy, points=noisy.points[:, ::-1].copy())
    assert whole == single == [a.unfamiliar for a in deployment.run(certified, mixed, rule)[1]]


def test_the_score_of_a_run_is_the_score_of_the_recording(compact, certified):
    """What was calibrated is what runs: crossed and familiar, cloud by cloud."""
    _, splits = compact
    rule, known = deployment.exit_rule(certified)[0], certified.familiarity
    found = deployment.take(certified, splits["calibration"]).judged(known, len(certified.bundle.classes))
    counted = tallies(found, np.array([rule.tau]), [known.limit(rule.tau)])
    report, _ = deployment.run(certified, splits["calibration"], rule)
    assert report["exits"]["certified"] == counted.accepted[0] == certified.certificate.n_accepted
    assert round(report["wrong_among_certified"] * counted.accepted[0]) == counted.errors[0]


def test_a_certificate_without_its_familiarity_is_void(certified):
    plan, found = certified.plan, certified.certificate
    assert why_void(found, plan, certified.sha256, known=certified.familiarity) is None
    assert "made with familiarity" in why_void(found, plan, certified.sha256)
    other = dataclasses.replace(certified.familiarity, whole=certified.familiarity.whole + 1.0)
    assert "made with familiarity" in why_void(found, plan, certified.sha256, known=other)
    bare = dataclasses.replace(certified, bundle=dataclasses.replace(certified.bundle, familiarity=None))
    with pytest.raises(InputError, match="the certificate is void"):
        deployment.exit_rule(bare)


def test_a_familiarity_of_another_model_is_refused(certified):
    other = dataclasses.replace(certified.familiarity, model_sha256="0" * 64)
    b = certified.bundle
    with pytest.raises(InputError, match="the familiarity is for model"):
        bundles.with_certificate(b, b.plan, b.certificate, other.to_dict())
    fewer = dataclasses.replace(certified.familiarity, owners=tuple(99 for _ in certified.familiarity.owners))
    with pytest.raises(ConfigError, match="class 99"):
        dataclasses.replace(b, familiarity=fewer.to_dict())


def test_too_few_clouds_give_no_familiarity_and_a_certificate_all_the_same(compact, capsys):
    deployed, splits = compact
    few = {**splits, "validation": splits["validation"].subset(np.arange(90))}
    found = deployment.certify_on(deployed, few)
    assert found.familiarity is None
    assert found.certificate.familiarity_sha256 is None
    assert "90 clouds plan, 99 are needed" in capsys.readouterr().err
    assert deployment.certify_on(deployed, splits, unfamiliar=None).familiarity is None


def test_a_plan_and_a_recording_of_different_familiarity_do_not_go_together():
    rng = np.random.default_rng(0)
    margins = rng.random((2, 300))
    recording = Recording(margins, rng.random((2, 300)) < 0.99, strange=np.zeros((3, 300)))
    plain = make_plan(Recording(margins, recording.correct), n_calibration=300)
    known = made(exits=plain.grid)
    with pytest.raises(UsageError, match="another familiarity"):
        certify(recording, plain, known=known)
    with pytest.raises(UsageError, match="other exit thresholds"):
        make_plan(recording, n_calibration=300, known=made())
    assert make_plan(recording, n_calibration=300, known=known).familiarity_sha256 == known.sha256
