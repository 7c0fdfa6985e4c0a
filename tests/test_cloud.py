"""Geometry: tables worked out by hand, properties over many clouds, and parity with the slowest possible form."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import plain_cloud
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro.data import load_clouds
from asp_neuro.errors import ConfigError, InputError
from asp_neuro.scenes.augment import Augmentation, augment, turn_about_up
from asp_neuro.scenes.cloud import (
    GRID,
    MAX_POINTS,
    Chunking,
    Chunks,
    adds_exactly,
    assign_chunks,
    cut,
    describe,
    farthest_points,
    normalise,
)
from asp_neuro.scenes.copies import SEEN, STREWN, THIN, copies

# Eight points on the axes, mean 0 and largest radius 1, in lexicographic order: normalising changes nothing.
AXES = np.array(
    [
        [-1.0, 0.0, 0.0],
        [-0.5, 0.0, 0.0],
        [0.0, -0.5, 0.0],
        [0.0, 0.0, -0.25],
        [0.0, 0.0, 0.25],
        [0.0, 0.5, 0.0],
        [0.5, 0.0, 0.0],
        [1.0, 0.0, 0.0],
    ]
)
BY_HAND = Chunking(n_points=8, n_groups=8, group_size=3, n_chunks=2)
SMALL = Chunking(n_points=64, n_groups=12, group_size=5, n_chunks=4)
FIELDS = ("points", "members", "first", "second")
# How far the rounding to 2^-16 can take a descriptor in the unit sphere, half a step and what the rounded mean adds:
# nothing to the mean, 2 |mean| half steps and a little to a variance, its own distance to the lengths.
NEAR = 2.0**-17 * np.array([1.0] * 3 + [3.001] * 3 + [1.0 + 3.0**0.5] * 2) + 1e-12


@pytest.fixture(scope="module")
def shapes() -> np.ndarray:
    return load_clouds("shapes", "test", n_points=256).points[:24]


def same(a: Chunks, b: Chunks) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in FIELDS)


def random_cloud(seed: int, n_points: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_points, 3)) * [1.0, 2.0, 0.5] + [3.0, -1.0, 7.0]


def test_farthest_points_come_in_the_order_worked_out_by_hand() -> None:
    # start: points 0 and 7 are both at radius 1, the lower index wins; then 7 (4), 2 before 5 (1.25 each), 5 (1),
    # 3 before 4 (0.3125), and 1, 4, 6 are left with 0.25 each
    order = farthest_points(AXES[None], 8, np.array([0]))
    assert order.tolist() == [[0, 7, 2, 5, 3, 1, 4, 6]]
    assert cut(AXES[None], BY_HAND).members[0, :, 0].tolist() == [0, 7, 2, 5, 3, 1, 4, 6]


def test_nearest_points_come_in_the_order_worked_out_by_hand_and_ties_go_to_the_lower_index() -> None:
    members = cut(AXES[None], Chunking(n_points=8, n_groups=8, group_size=4, n_chunks=2)).members[0]
    assert members.tolist() == [
        [0, 1, 3, 4],  # 0.25, then 3 and 4 both at 1.0625
        [7, 6, 3, 4],
        [2, 3, 4, 1],  # 3 and 4 both at 0.3125, then 1 before 6, both at 0.5
        [5, 3, 4, 1],
        [3, 4, 1, 2],  # 4 at 0.25, then 1, 2, 5, 6 all at 0.3125
        [1, 0, 3, 4],
        [4, 3, 1, 2],
        [6, 7, 3, 4],
    ]


def test_groups_go_to_chunks_as_worked_out_by_hand() -> None:
    chunks = cut(AXES[None], BY_HAND)
    # seeds are the points 0 and 7; the centres 2, 5, 3, 4 are as near to one as to the other: both, lower first
    assert chunks.first[0].tolist() == [0, 1, 0, 0, 0, 0, 0, 1]
    assert chunks.second[0].tolist() == [-1, -1, 1, 1, 1, -1, 1, -1]
    assert chunks.belongs()[0].astype(int).tolist() == [[1, 0, 1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0, 1, 1]]
    assert chunks.groups_of_chunks()[0].tolist() == [[0, 2, 3, 4, 5, 6], [1, 2, 3, 4, 6, 7]]


def test_a_chunk_holds_the_distinct_points_of_its_groups() -> None:
    mask = cut(AXES[None], BY_HAND).mask()[0]
    assert np.flatnonzero(mask[0]).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.flatnonzero(mask[1]).tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_descriptors_are_those_worked_out_by_hand() -> None:
    chunks = cut(AXES[None], BY_HAND)
    found = describe(chunks.coordinates(), chunks.mask())[0]
    exact = [
        [-0.25, 0, 0, 1.25 / 6 - 0.0625, 0.5 / 6, 0.125 / 6, 0.75, 0.25],
        [1 / 7, 0, 0, 1.5 / 7 - 1 / 49, 0.5 / 7, 0.125 / 7, 6 / 7, 1 / 7],
    ]
    assert (np.abs(found - exact) <= NEAR).all()
    # in steps of 2^-16; 1/7 is 9362.29 steps, and the radius is seen from where the rounded mean stands
    steps = [[-16384, 0, 0, 9557, 5461, 1365, 49152, 16384], [9362, 0, 0, 12706, 4681, 1170, 65536 - 9362, 9362]]
    assert (found * 2.0**16).tolist() == steps


def test_shorter_lists_of_groups_are_padded_with_their_first_group() -> None:
    line = np.zeros((1, 4, 3))
    line[0, :, 0] = [-1.0, -0.9375, 0.8125, 1.125]
    chunks = Chunks(line, np.zeros((1, 4, 1), int), np.array([[0, 1, 1, 1]]), np.full((1, 4), -1), 2)
    assert chunks.groups_of_chunks().tolist() == [[[0, 0, 0], [1, 2, 3]]]


def test_a_ball_radius_replaces_far_members_by_the_centre() -> None:
    within = Chunking(n_points=8, n_groups=8, group_size=4, n_chunks=2, radius=0.5)
    # up to and including 0.5: from point 0 only point 1 is (0.5 exactly); from 2 none is nearer than 0.559
    assert cut(AXES[None], within).members[0, :3].tolist() == [[0, 1, 0, 0], [7, 6, 7, 7], [2, 2, 2, 2]]


@pytest.mark.parametrize("k", range(1, 380, 7))
def test_a_group_at_exactly_115_percent_belongs_to_both_chunks_and_one_grid_step_farther_to_one(k: int) -> None:
    # seeds at 0 and 43 k grid steps: a group at 20 k is 20 k and 23 k away, and 23 = 1.15 * 20
    for place, second in ((20 * k, 1), (20 * k - 1, -1), (23 * k, 0), (23 * k + 1, -1), (21 * k, 1)):
        centres = np.zeros((1, 3, 3))
        centres[0, :, 0] = np.array([0, 43 * k, place]) / GRID
        first, other = assign_chunks(centres, 2, 1.15)
        assert (first[0, 2], other[0, 2]) == (int(place > 21.5 * k), second)


def test_the_ratio_compares_distances_and_not_their_squares() -> None:
    centres = np.zeros((1, 3, 3))
    centres[0, :, 0] = np.array([0, 2100, 1000]) / GRID  # 1000 and 1100: 1.1 in length, 1.21 in squares
    assert assign_chunks(centres, 2, 1.15)[1][0, 2] == 1


def test_normalising_centres_on_the_mean_scales_to_the_unit_sphere_and_sorts() -> None:
    raw = np.array([[14.0, 1.0, 2.0], [10.0, 5.0, 2.0], [10.0, -3.0, 2.0], [6.0, 1.0, 2.0]])
    grid, n_distinct = normalise(raw[None])
    assert grid[0].tolist() == [[-1, 0, 0], [0, -1, 0], [0, 1, 0], [1, 0, 0]]
    assert n_distinct.tolist() == [4]


def test_repeated_points_count_once_in_the_mean_and_stand_at_the_end() -> None:
    raw = np.array([[[1.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0], [-1.0, 0, 0]]])
    grid, n_distinct = normalise(raw)
    assert grid[0].tolist() == [[-1, 0, 0], [1, 0, 0], [-1, 0, 0], [-1, 0, 0]]
    assert n_distinct.tolist() == [2]


def test_a_dropped_point_leaves_its_groups_and_a_dropped_centre_stays() -> None:
    chunks = cut(AXES[None], BY_HAND)
    gone = np.zeros((1, 8), dtype=bool)
    gone[0, [1, 3]] = True
    less = chunks.without(gone)
    # groups 0 {0, 1, 3}, 3 {5, 3, 4}, and those of the dropped points 3 {3, 4, 1} and 1 {1, 0, 3} themselves
    assert less.members[0, [0, 3, 4, 5]].tolist() == [[0, 0, 0], [5, 5, 4], [3, 4, 3], [1, 0, 1]]
    assert np.array_equal(less.first, chunks.first)
    assert np.array_equal(chunks.members, cut(AXES[None], BY_HAND).members)
    assert np.array_equal(chunks.without(np.zeros((1, 8), bool)).members, chunks.members)


def test_a_quarter_turn_about_up_takes_x_to_minus_z() -> None:
    turned = turn_about_up(np.array([[[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]]]), np.array([np.pi / 2]))
    np.testing.assert_allclose(turned[0], [[0, 2, -1], [1, 3, 0]], atol=1e-15)


def slow_cut(points: list[tuple[int, ...]], how: Chunking) -> tuple[list, list, list]:
    """Members, first and second chunk of one cloud of distinct, sorted grid points."""

    def square(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        return sum((x - y) ** 2 for x, y in zip(a, b))

    index = range(len(points))
    centres = [max(index, key=lambda i: (square(points[i], (0, 0, 0)), -i))]
    while len(centres) < how.n_groups:
        centres.append(max(index, key=lambda i: (min(square(points[i], points[c]) for c in centres), -i)))
    members = [sorted(index, key=lambda i: (square(points[i], points[c]), i))[: how.group_size] for c in centres]
    first, second = [], []
    ratio = Fraction(str(how.overlap)) ** 2
    for c in centres:
        far = sorted((square(points[c], points[centres[m]]), m) for m in range(how.n_chunks))
        first.append(far[0][1])
        second.append(far[1][1] if far[1][0] <= ratio * far[0][0] else -1)
    return members, first, second


@given(
    st.lists(st.tuples(*[st.integers(-4, 4)] * 3), min_size=14, max_size=40, unique=True),
    st.sampled_from([1.0, 1.15, 1.5]),
)
def test_cutting_equals_the_slowest_form(points: list[tuple[int, int, int]], overlap: float) -> None:
    """Small integer coordinates make ties everywhere."""
    how = Chunking(n_points=len(points), n_groups=9, group_size=4, n_chunks=3, overlap=overlap)
    chunks = cut(np.array(points, dtype=float)[None], how)
    members, first, second = slow_cut([tuple(int(v) for v in row) for row in chunks.points[0]], how)
    assert chunks.members[0].tolist() == members
    assert chunks.first[0].tolist() == first
    assert chunks.second[0].tolist() == second


def test_cutting_real_shapes_equals_the_slowest_form(shapes: np.ndarray) -> None:
    how = Chunking(n_points=256, n_groups=20, group_size=8, n_chunks=6)
    chunks = cut(shapes[:2], how)
    for i in range(2):
        grid = [tuple(int(v) for v in row) for row in chunks.points[i]]
        members, first, second = slow_cut(grid, how)
        assert chunks.members[i].tolist() == members
        assert chunks.first[i].tolist() == first
        assert chunks.second[i].tolist() == second


def lattice(rng: np.random.Generator, n: int) -> np.ndarray:
    """Equal distances everywhere."""
    side = int(np.ceil(n ** (1 / 3)))
    return rng.permutation(np.stack(np.meshgrid(*[np.arange(side)] * 3), axis=-1).reshape(-1, 3))[:n].astype(float)


def with_copies(rng: np.random.Generator, n: int) -> np.ndarray:
    """A third as many points, each several times."""
    return rng.normal(size=(n // 3, 3))[np.append(np.arange(n // 3), rng.integers(n // 3, size=n - n // 3))]


def with_a_stray(rng: np.random.Generator, n: int) -> np.ndarray:
    """One point so far away that many others fall on one another on the grid."""
    return np.concatenate([rng.uniform(-1, 1, (n - 1, 3)), [[300.0, 20.0, 1.0]]])


# The first two have sums that do not round, the others do or have repeated points: both ways to the mean are taken.
KINDS = {
    "float16": lambda rng, n: rng.normal(size=(n, 3)).astype(np.float16),
    "integers": lambda rng, n: rng.integers(-(2**15), 2**15, (n, 3)),
    "float32": lambda rng, n: rng.normal(size=(n, 3)).astype(np.float32),
    "float64": lambda rng, n: rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5] + [3.0, -1.0, 7.0],
    "near zero": lambda rng, n: rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-12, 1, (n, 3)),
    "far away": lambda rng, n: rng.normal(size=(n, 3)) + 1e9,
    "huge": lambda rng, n: rng.normal(size=(n, 3)) * 1e140,
    "tiny": lambda rng, n: rng.normal(size=(n, 3)) * 1e-140,
    "plane": lambda rng, n: rng.normal(size=(n, 3)).astype(np.float32) * [1.0, 0.0, 1.0],
    "line": lambda rng, n: rng.normal(size=(n, 1)).astype(np.float32) * [0.0, 1.0, 0.0],
    "lattice": lattice,
    "lattice with copies": lambda rng, n: rng.integers(-4, 5, (n, 3)).astype(float),
    "copies": with_copies,
    "a stray": with_a_stray,
    "coarse": lambda rng, n: np.rint(rng.normal(size=(n, 3)) * 9).astype(np.float32),
}
HOWS = {
    "modelnet10": Chunking(n_points=300, n_groups=64, group_size=32, n_chunks=16),
    "a ball": Chunking(n_points=300, n_groups=20, group_size=16, n_chunks=5, overlap=1.3, radius=0.25),
    "large groups": Chunking(n_points=300, n_groups=7, group_size=70, n_chunks=7),
    "one of each": Chunking(n_points=300, n_groups=1, group_size=1, n_chunks=1),
}


def assert_same_bits(found: Chunks, plain: Chunks) -> None:
    """Chunks, masks and descriptors."""
    for name in FIELDS:
        a, b = getattr(found, name), getattr(plain, name)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name
    assert np.array_equal(found.mask(), plain_cloud.mask_of(plain))
    described = plain_cloud.describe(plain.coordinates(), plain_cloud.mask_of(plain))
    assert describe(found.coordinates(), found.mask()).tobytes() == described.tobytes()


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
@pytest.mark.parametrize("kind", KINDS)
def test_cutting_equals_the_plain_form(kind: str, how: Chunking) -> None:
    """Bit-exact."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    clouds = np.stack([KINDS[kind](rng, how.n_points) for _ in range(6)])
    coordinates, n_distinct = normalise(clouds)
    plainly, n_plainly = plain_cloud.normalise(clouds)
    assert coordinates.tobytes() == plainly.tobytes()
    assert n_distinct.tolist() == n_plainly.tolist()
    assert_same_bits(cut(clouds, how), plain_cloud.cut(clouds, how))


def test_a_batch_of_all_kinds_equals_the_plain_form_cloud_by_cloud() -> None:
    rng, how = np.random.default_rng(0), HOWS["modelnet10"]
    clouds = np.stack([kind(rng, how.n_points).astype(np.float64) for kind in KINDS.values()])
    together = cut(clouds, how)
    assert_same_bits(together, plain_cloud.cut(clouds, how))
    for i in range(len(clouds)):
        assert_same_bits(together[i : i + 1], plain_cloud.cut(clouds[i : i + 1], how))


@given(st.integers(0, 2**32 - 1), st.sampled_from(list(KINDS)), st.integers(12, 90), st.booleans())
def test_cutting_few_points_equals_the_plain_form(seed: int, kind: str, n: int, all_of_them: bool) -> None:
    """Also groups that take every distinct point, and as many groups as there are distinct points."""
    clouds = KINDS[kind](np.random.default_rng(seed), n)[None]
    distinct = int(plain_cloud.normalise(clouds)[1][0])
    size = distinct if all_of_them else max(1, distinct // 5)
    how = Chunking(n_points=n, n_groups=distinct, group_size=size, n_chunks=min(distinct, 4))
    assert_same_bits(cut(clouds, how), plain_cloud.cut(clouds, how))


def test_both_ways_to_the_mean_are_taken_and_a_sum_that_rounds_is_seen() -> None:
    rng = np.random.default_rng(0)
    ways = {kind: adds_exactly(np.ascontiguousarray(cloud(rng, 300).T, dtype=float)) for kind, cloud in KINDS.items()}
    assert ways["float16"]
    assert ways["integers"]
    assert not ways["near zero"]
    assert not ways["float64"]
    planes = np.ones((3, 1024))  # 2^10 of them: 43 bits are left for each
    planes[1, 5] = 2.0**-41
    assert adds_exactly(planes)
    planes[1, 5] = 2.0**-43
    assert not adds_exactly(planes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_descriptors_of_points_off_the_grid_equal_the_plain_form(shapes: np.ndarray, dtype: type) -> None:
    """Bit-exact though sums round: the products are the same."""
    chunks = cut(shapes, SMALL)
    points = augment(chunks.coordinates().astype(dtype), Augmentation(), np.random.default_rng(1))
    found, plain = describe(points, chunks.mask()), plain_cloud.describe(points, chunks.mask())
    assert found.dtype == plain.dtype
    assert found.tobytes() == plain.tobytes()


def test_farthest_points_of_several_clouds_equal_the_plain_form(shapes: np.ndarray) -> None:
    coordinates, start = normalise(shapes)[0], np.arange(len(shapes))
    found = farthest_points(coordinates, 100, start)
    assert found.tolist() == plain_cloud.farthest_points(coordinates, 100, start).tolist()


def test_descriptors_equal_numpy_on_each_chunk_alone(shapes: np.ndarray) -> None:
    chunks = cut(shapes, SMALL)
    xyz, mask = chunks.coordinates(), chunks.mask()
    found = describe(xyz, mask)
    for i in range(len(xyz)):
        for m in range(SMALL.n_chunks):
            inside = xyz[i][mask[i, m]]
            mean = inside.mean(axis=0)
            radius = np.linalg.norm(inside - mean, axis=1).max()
            expected = [*mean, *inside.var(axis=0), radius, np.linalg.norm(mean)]
            assert (np.abs(found[i, m] - expected) <= NEAR).all()


def test_every_group_is_in_one_or_two_chunks_and_no_chunk_is_empty(shapes: np.ndarray) -> None:
    belongs = cut(shapes, SMALL).belongs()
    assert set(np.unique(belongs.sum(axis=1))) == {1, 2}
    assert belongs.any(axis=2).all()


def test_the_seeds_are_the_farthest_point_sample_of_the_centres(shapes: np.ndarray) -> None:
    chunks = cut(shapes, SMALL)
    centres = np.take_along_axis(chunks.coordinates(), chunks.members[:, :, :1].astype(np.intp), axis=1)
    again = farthest_points(centres, SMALL.n_chunks, np.zeros(len(shapes), int))
    assert (again == np.arange(SMALL.n_chunks)).all()
    assert (chunks.first[:, : SMALL.n_chunks] == np.arange(SMALL.n_chunks)).all()


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_points_changes_nothing(seed: int) -> None:
    cloud = random_cloud(seed)
    shuffled = np.random.default_rng(seed + 1).permutation(cloud)
    assert same(cut(cloud[None], SMALL), cut(shuffled[None], SMALL))


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_points_given_twice_change_nothing(seed: int, n_more: int) -> None:
    rng = np.random.default_rng(seed)
    cloud = random_cloud(seed)
    more = rng.permutation(np.concatenate([cloud, cloud[rng.integers(64, size=n_more)]]))
    once, twice = cut(cloud[None], SMALL), cut(more[None], SMALL)
    assert np.array_equal(once.points[0], twice.points[0, :64])
    assert np.array_equal(once.members, twice.members)
    assert np.array_equal(once.first, twice.first)
    assert np.array_equal(once.second, twice.second)
    assert np.array_equal(describe(once.coordinates(), once.mask()), describe(twice.coordinates(), twice.mask()))


@given(st.integers(0, 2**32 - 1), st.integers(-20, 20))
def test_size_and_place_of_a_cloud_change_nothing(seed: int, exponent: int) -> None:
    cloud = np.rint(random_cloud(seed) * 2**12) / 2**12  # so that scaling and moving are exact
    moved = cloud * 2.0**exponent + np.array([4.0, -2.0, 1.0]) * 2.0**exponent
    assert same(cut(cloud[None], SMALL), cut(moved[None], SMALL))


def test_a_batch_of_one_equals_a_batch_of_seven() -> None:
    clouds = np.stack([random_cloud(seed) for seed in range(7)])
    together = cut(clouds, SMALL)
    described = describe(together.coordinates(), together.mask())
    for i in range(7):
        alone = cut(clouds[i : i + 1], SMALL)
        assert same(alone, together[i : i + 1])
        assert np.array_equal(describe(alone.coordinates(), alone.mask())[0], described[i])


def test_a_quarter_turn_about_up_turns_the_descriptors_and_nothing_else(shapes: np.ndarray) -> None:
    """Bit-exact: no sum here rounds, in whatever order its terms stand."""
    raw = shapes.astype(np.float64)
    turned = np.stack([raw[..., 2], raw[..., 1], -raw[..., 0]], axis=2)
    before, after = (cut(points, SMALL) for points in (raw, turned))
    old, new = (describe(c.coordinates(), c.mask()) for c in (before, after))
    assert np.array_equal(new[..., :3], np.stack([old[..., 2], old[..., 1], -old[..., 0]], axis=2))
    assert np.array_equal(new[..., 3:6], old[..., [5, 4, 3]])
    assert np.array_equal(new[..., 6:], old[..., 6:])


def test_descriptors_after_augmentation_are_those_of_the_changed_points(shapes: np.ndarray) -> None:
    chunks = cut(shapes, SMALL)
    xyz, mask = chunks.coordinates(), chunks.mask()
    everything = Augmentation(scale=1.4, shift=0.2, jitter=0.02, turn=30.0, drop=0.3)
    changed = augment(xyz, everything, np.random.default_rng(5))
    new, old = describe(changed, mask), describe(xyz, mask)
    assert np.abs(new - old).max(axis=(1, 2)).min() > 0.01
    for m in range(SMALL.n_chunks):
        assert (np.abs(new[3, m, :3] - changed[3][mask[3, m]].mean(axis=0)) <= NEAR[:3]).all()


def test_descriptors_of_a_turned_cloud_equal_the_turned_descriptors(shapes: np.ndarray) -> None:
    chunks = cut(shapes[:3], SMALL)
    xyz, mask = chunks.coordinates(), chunks.mask()
    angle = np.array([0.3, -1.1, 2.5])
    old, new = describe(xyz, mask), describe(turn_about_up(xyz, angle), mask)
    np.testing.assert_allclose(new[..., :3], turn_about_up(old[..., :3], angle), rtol=0, atol=(1 + 2**0.5) * NEAR[0])
    assert np.array_equal(new[..., [1, 4]], old[..., [1, 4]])
    np.testing.assert_allclose(new[..., 3] + new[..., 5], old[..., 3] + old[..., 5], rtol=0, atol=4 * NEAR[3])
    assert (np.abs(new[..., 6:] - old[..., 6:]) <= 2 * NEAR[6:]).all()


def test_augmentation_follows_its_seed_keeps_the_type_and_stays_within_its_limits(shapes: np.ndarray) -> None:
    points = cut(shapes, SMALL).coordinates().astype(np.float32)
    how = Augmentation(scale=1.25, shift=0.1, jitter=0.0)
    one, two, other = (augment(points, how, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.dtype == np.float32
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert (np.abs(one) <= np.abs(points) * 1.25 + 0.1 + 1e-6).all()
    still = augment(points, Augmentation(scale=1.0, shift=0.0, jitter=0.0), np.random.default_rng(1))
    assert np.array_equal(still, points)


def test_every_second_cloud_is_mirrored_left_to_right(shapes: np.ndarray) -> None:
    points = np.repeat(cut(shapes[:1], SMALL).coordinates(), 200, axis=0)
    how = Augmentation(scale=1.0, shift=0.0, jitter=0.0, mirror=True)
    changed = augment(points, how, np.random.default_rng(0))
    flipped = (changed[..., 0] == -points[..., 0]).all(axis=1)
    assert np.array_equal(changed[~flipped], points[~flipped])
    assert np.array_equal(changed[flipped][..., 1:], points[flipped][..., 1:])
    assert 70 < flipped.sum() < 130


def test_copies_are_thinned_and_stretched_by_their_seed_and_cut_in_another_way(shapes: np.ndarray) -> None:
    how = Augmentation(scale=1.5)
    one, same, other = (copies(shapes, how, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert one.dtype == shapes.dtype
    left = np.array([len(np.unique(cloud, axis=0)) for cloud in one]) / shapes.shape[1]
    assert left.min() > 1.0 - THIN - 0.15
    assert left.mean() < 1.0 - THIN / 4
    ratio = np.abs(one).max(axis=1) / np.abs(shapes).max(axis=1)
    assert ratio.max() <= 1.5 + 1e-6
    assert ratio.max() > 1.2
    before, after = cut(shapes, SMALL), cut(one, SMALL)
    assert (before.first != after.first).any(axis=1).all()


def test_copies_are_seen_from_one_side_sampled_unevenly_and_among_strewn_points(shapes: np.ndarray) -> None:
    """Each alone, on every copy; the seed decides, and a share of 0 changes no copy of before."""
    still = {"scale": 1.0, "cuts": 1}
    plain = copies(shapes, Augmentation(**still), 1)
    for name in ("partial", "uneven", "strewn"):
        how = Augmentation(**still, **{name: 1.0})
        one, same = copies(shapes, how, 1), copies(shapes, how, 1)
        assert np.array_equal(one, same)
        assert (one.shape, one.dtype) == (shapes.shape, shapes.dtype)
        assert not np.array_equal(one, plain)
    assert np.array_equal(copies(shapes, Augmentation(**still, partial=0.0), 1), plain)
    n_points = shapes.shape[1]
    seen = [len(np.unique(cloud, axis=0)) / n_points for cloud in copies(shapes, Augmentation(**still, partial=1.0), 1)]
    assert SEEN[0] * (1.0 - THIN) - 0.1 < min(seen)
    assert max(seen) <= SEEN[1]
    whole = {tuple(point) for point in normalise(shapes)[0].astype(np.float32).reshape(-1, 3)}
    for cloud in copies(shapes, Augmentation(**still, strewn=1.0), 1):
        foreign = len({tuple(point) for point in cloud} - whole)
        assert 0 < foreign <= STREWN * n_points + 1


def test_a_share_of_the_clouds_is_turned() -> None:
    points = np.repeat(np.eye(3)[None], 400, axis=0)
    how = Augmentation(scale=1.0, shift=0.0, jitter=0.0, turn=180.0, turn_share=0.3)
    moved = (augment(points, how, np.random.default_rng(0)) != points).any(axis=(1, 2))
    assert 80 < moved.sum() < 160
    with pytest.raises(ConfigError, match=r"turn_share = 1.5 must be between 0 and 1"):
        Augmentation(turn_share=1.5)
    with pytest.raises(ConfigError, match="are shares of the same copies"):
        Augmentation(cuts=1, partial=0.6, uneven=0.6)
    with pytest.raises(ConfigError, match="cuts = 0 has none of"):
        Augmentation(partial=0.5)


def test_a_bad_cloud_is_named() -> None:
    good, names = random_cloud(0), ["chair_1", "chair_2"]
    nan, inf = good.copy(), good.copy()
    nan[5, 1], inf[63, 2] = np.nan, -np.inf
    for bad in (nan, inf):
        with pytest.raises(InputError, match=r"cloud 'chair_2': .*not finite"):
            cut(np.stack([good, bad]), SMALL, names)
    with pytest.raises(InputError, match="cloud 'chair_2': all points are the same"):
        cut(np.stack([good, np.full((64, 3), 0.1)]), SMALL, names)
    few = np.concatenate([good[:11], np.repeat(good[:1], 53, axis=0)])
    with pytest.raises(InputError, match="cloud 'chair_2': 11 distinct points, at least 12 are needed"):
        cut(np.stack([good, few]), SMALL, names)
    with pytest.raises(InputError, match="cloud 1: 11 distinct points"):
        cut(np.stack([good, few]), SMALL)


@pytest.mark.parametrize("shape", [(64, 3), (1, 64, 2), (1, 64, 4), (1, 1, 64, 3)])
def test_a_batch_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"shape \[n, points, 3\]"):
        cut(np.ones(shape), SMALL)


def test_more_points_than_the_sort_key_holds_are_refused_and_not_mixed_up() -> None:
    with pytest.raises(InputError, match=f"{MAX_POINTS + 1} points, at most {MAX_POINTS}"):
        cut(random_cloud(0, MAX_POINTS + 1)[None], SMALL)
    cut(random_cloud(0, MAX_POINTS)[None], SMALL)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"n_chunks": 65}, "n_chunks = 65 must be between 1 and n_groups = 64"),
        ({"n_chunks": 0}, "n_chunks = 0"),
        ({"n_chunks": 129, "n_groups": 200}, "n_chunks = 129 exceeds 128"),
        ({"group_size": 1025}, "group_size = 1025 need at most n_points = 1024"),
        ({"n_groups": 1025}, "n_groups = 1025"),
        ({"n_points": 2**13 + 1}, f"n_points at most {MAX_POINTS}"),
        ({"group_size": 0}, "group_size = 0"),
        ({"overlap": 0.99}, "overlap = 0.99"),
        ({"overlap": float("nan")}, "overlap = nan"),
        ({"radius": 0.0}, "radius = 0.0"),
        ({"radius": float("nan")}, "radius = nan"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_their_values(values: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Chunking(**values)


def test_128_chunks_are_numbered_without_wrapping() -> None:
    how = Chunking(n_points=200, n_groups=150, group_size=2, n_chunks=128)
    chunks = cut(random_cloud(1, 200)[None], how)
    assert chunks.first.min() == 0
    assert chunks.first.max() == 127
    assert chunks.belongs().any(axis=2).all()


@pytest.mark.parametrize(
    "values",
    [
        {"scale": 0.0},
        {"scale": float("nan")},
        {"cuts": -1},
        {"jitter": -0.1},
        {"drop": 1.5},
        {"turn": -1.0},
        {"shift": -1.0},
    ],
)
def test_augmentation_that_makes_no_sense_is_refused(values: dict) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(values))} = "):
        Augmentation(**values)
