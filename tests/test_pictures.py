"""Pictures as data: files of every kind, folders, cluttered digits, Imagenette's file format."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from asp_neuro.data import image_places
from asp_neuro.data.clutter import DIGIT, Rule, drawn_clutter, mnist_clutter, scatter
from asp_neuro.data.image_places import load_images, locate_images
from asp_neuro.data.photos import MAX_PIXELS, decode, read_photo, read_photos
from asp_neuro.data.strokes import strokes
from asp_neuro.errors import InputError, MissingError, UsageError
from asp_neuro.scenes.image import Gaze

Image = pytest.importorskip("PIL.Image")

GREY = Gaze()
COLOUR = Gaze(channels=3)


def slope(width: int, height: int) -> np.ndarray:
    """[height, width, 3]: red grows to the right, green downwards."""
    red = np.broadcast_to(np.linspace(0, 255, width), (height, width))
    green = np.broadcast_to(np.linspace(0, 255, height)[:, None], (height, width))
    return np.stack([red, green, np.zeros((height, width))], axis=2).astype(np.uint8)


def save(path: Path, pixels: np.ndarray, mode: str | None = None, **how) -> Path:
    made = Image.fromarray(pixels)
    (made if mode is None else made.convert(mode)).save(path, **how)
    return path


# One file


def test_a_picture_of_the_models_size_is_taken_as_it_is(tmp_path):
    pixels = slope(60, 60)
    photo = read_photo(save(tmp_path / "a.png", pixels), COLOUR)
    np.testing.assert_array_equal(photo.pixels, pixels)
    assert photo.notes == ()


def test_a_wide_picture_loses_its_sides_and_says_so(tmp_path):
    photo = read_photo(save(tmp_path / "a.png", slope(300, 120)), COLOUR)
    assert photo.pixels.shape == (60, 60, 3)
    assert photo.notes == ("Only the middle 120 x 120 of its 300 x 120 pixels are looked at.",)
    assert 70 < photo.pixels[:, 0, 0].mean() < 85  # red at 90 of 300


def test_a_grey_file_in_colour_and_a_coloured_one_in_grey(tmp_path):
    photo = read_photo(save(tmp_path / "a.png", slope(60, 60)[..., 0]), COLOUR)
    assert photo.pixels.shape == (60, 60, 3)
    assert photo.notes == ("It has no colours.",)
    assert read_photo(save(tmp_path / "b.jpg", slope(60, 60)), GREY).pixels.shape == (60, 60)


def test_exif_turns_a_picture_upright(tmp_path):
    pixels = slope(60, 60)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter
    photo = read_photo(save(tmp_path / "a.png", pixels, exif=exif), COLOUR)
    np.testing.assert_array_equal(photo.pixels, np.rot90(pixels, -1))
    assert photo.notes == ("It was turned upright, as its EXIF data say.",)


def test_transparent_parts_are_black(tmp_path):
    pixels = np.full((60, 60, 4), 255, dtype=np.uint8)
    pixels[:30, :, 3] = 0
    photo = read_photo(save(tmp_path / "a.png", pixels), GREY)
    assert (photo.pixels[:30] == 0).all()
    assert (photo.pixels[30:] == 255).all()
    assert photo.notes == ("Transparent parts were taken as black.",)


def test_of_an_animation_the_first_frame_is_taken(tmp_path):
    frames = [Image.fromarray(np.full((60, 60), v, np.uint8)) for v in (50, 200, 90)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    photo = read_photo(tmp_path / "a.gif", GREY)
    assert photo.notes == ("The first of 3 frames was taken.",)
    assert abs(int(photo.pixels[5, 5]) - 50) <= 1


def test_sixteen_bits_become_eight_and_real_numbers_are_refused(tmp_path):
    deep = np.full((60, 60), 257 * 77, dtype=np.uint16)
    photo = read_photo(save(tmp_path / "a.png", deep), GREY)
    assert (photo.pixels == 77).all()
    assert photo.notes == ("Its 16 bits of brightness became 8.",)
    with pytest.raises(InputError, match=r"a\.tif: brightness as real numbers"):
        read_photo(save(tmp_path / "a.tif", np.ones((60, 60), np.float32)), GREY)


@pytest.mark.parametrize("mode", ["1", "P", "L", "LA", "RGB", "RGBA", "CMYK"])
def test_every_usual_mode_is_read(tmp_path, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    for how in (GREY, COLOUR):
        assert read_photo(save(path, slope(64, 64), mode), how).pixels.shape == how.shape


def test_a_small_picture_is_enlarged_with_a_word_and_a_tiny_one_refused(tmp_path):
    photo = read_photo(save(tmp_path / "a.png", slope(20, 20)), GREY)
    assert photo.notes == ("It was enlarged from 20 to 60 pixels a side: expect more errors.",)
    with pytest.raises(InputError, match="5 x 400 pixels are too few"):
        read_photo(save(tmp_path / "b.png", slope(5, 400)), GREY)


def test_a_huge_picture_is_refused_before_it_is_unpacked():
    buffer = io.BytesIO()
    Image.new("1", (12_000, 9_000)).save(buffer, "PNG")
    with pytest.raises(InputError, match=rf"12000 x 9000 pixels, at most {MAX_PIXELS:,} are read"):
        decode(buffer.getvalue(), GREY, "huge.png")
    head = bytearray(buffer.getvalue())
    head[16:24] = (60_000).to_bytes(4, "big") * 2  # Pillow itself calls this a bomb
    with pytest.raises(InputError, match=r"pixels|no picture"):
        decode(bytes(head), GREY, "bomb.png")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0nonsense", b"GIF89a"])
def test_what_is_no_picture_is_refused_by_name(content):
    with pytest.raises(InputError, match=r"x\.jpg: no picture that can be read"):
        decode(content, GREY, "x.jpg")


def test_a_picture_that_is_cut_short_is_refused(tmp_path):
    path = save(tmp_path / "a.jpg", np.random.default_rng(0).integers(0, 255, (300, 300, 3)).astype(np.uint8))
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(InputError, match=r"a\.jpg: no picture that can be read"):
        read_photo(path, GREY)


def test_of_several_files_every_broken_one_is_named(tmp_path):
    good = save(tmp_path / "good.png", slope(60, 60))
    (tmp_path / "bad.png").write_bytes(b"no")
    with pytest.raises(InputError, match=r"(?s)2 of 3 inputs cannot be used.*bad\.png.*gone\.png"):
        read_photos([good, tmp_path / "bad.png", tmp_path / "gone.png"], GREY)
    with pytest.raises(InputError, match="a folder; give class folders of pictures as --data"):
        read_photo(tmp_path, GREY)


# Folders


def test_a_folder_of_classes_is_split_and_every_picture_is_in_one_split(tmp_path):
    for label, kind in enumerate(("cat", "dog")):
        (tmp_path / kind).mkdir()
        for i in range(20):
            save(tmp_path / kind / f"{i}.jpg", np.full((70, 64, 3), 40 + 100 * label + i, np.uint8))
    parts = {split: load_images(tmp_path, split, COLOUR) for split in ("train", "validation", "calibration", "test")}
    names = [name for part in parts.values() for name in part.names]
    assert len(names) == len(set(names)) == 40
    train = parts["train"]
    assert train.classes == ("cat", "dog")
    bright = train.pixels.mean(axis=(1, 2, 3)) > 100
    np.testing.assert_array_equal(bright, train.labels == 1)
    (tmp_path / "cat" / "20.jpg").write_bytes(b"broken")
    (tmp_path / "all" / "cat" / "test").mkdir(parents=True)
    (tmp_path / "cat" / "20.jpg").rename(tmp_path / "all" / "cat" / "test" / "20.jpg")
    with pytest.raises(InputError, match=r"20\.jpg: no picture"):
        load_images(tmp_path / "all", "test", COLOUR)


def test_places_are_found_or_missed_with_a_word(tmp_path, monkeypatch):
    monkeypatch.delenv("ASP_NEURO_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert locate_images("strokes").path is None
    with pytest.raises(MissingError, match=r"clutter not found \(mnist_train.npz\)"):
        locate_images("clutter")
    with pytest.raises(UsageError, match="unknown data 'cluter'; did you mean 'clutter'"):
        locate_images("cluter")
    with pytest.raises(MissingError, match="no such folder or built-in name"):
        locate_images("clutter", "nowhere")
    np.savez(tmp_path / "mnist_train.npz", images=np.zeros(1))
    assert locate_images("clutter", tmp_path).name == "clutter"
    assert locate_images("imagenette", tmp_path).name == "folder"
    with pytest.raises(InputError, match="no MNIST"):
        load_images(locate_images("clutter", tmp_path), "train", GREY)
    with pytest.raises(UsageError, match="has no colours"):
        load_images("strokes", "test", COLOUR)


# Cluttered digits


def digits(n: int) -> np.ndarray:
    return np.random.default_rng(5).integers(1, 256, (n, DIGIT, DIGIT)).astype(np.uint8)


def test_a_scene_holds_its_digit_whole_where_it_is_said_to_lie():
    own = digits(30)
    made, centres = scatter(own, np.arange(30), Rule(), np.random.default_rng(1))
    for image, digit, (x, y) in zip(made, own, centres):
        patch = image[y - 14 : y + 14, x - 14 : x + 14]
        assert (patch >= digit).all()
        assert (patch == digit).mean() > 0.6
        beyond = image.copy()
        beyond[y - 14 : y + 14, x - 14 : x + 14] = 0
        assert (beyond > 0).sum() <= 4 * 64


def test_pieces_lie_where_the_digit_does_not():
    made, _ = scatter(digits(200), np.arange(200), Rule(), np.random.default_rng(2))
    lit = (made > 0).mean(axis=0)
    assert lit[2:-2, 2:-2].min() > 0.0  # anywhere but at the very border
    assert (made > 0).sum(axis=(1, 2)).max() <= 28 * 28 + 4 * 64
    bare, _ = scatter(digits(20), np.arange(20), Rule(pieces=0), np.random.default_rng(2))
    assert ((bare > 0).sum(axis=(1, 2)) == 28 * 28).all()


def test_strokes_are_the_same_every_time_and_other_seeds_are_other_scenes():
    one, again, other = (drawn_clutter("test", Rule(), seed) for seed in (0, 0, 1))
    assert one.sha256() == again.sha256()
    assert (one.labels == other.labels).all()  # the same digits
    assert (one.pixels != other.pixels).any(axis=(1, 2)).all()  # elsewhere
    assert sorted(set(one.labels)) == list(range(10))
    assert not set(one.hashes()) & set(drawn_clutter("calibration", Rule()).hashes())


def test_drawn_digits_can_be_told_apart_by_their_mean_picture():
    train, labels = strokes(800, 0)
    test, truth = strokes(300, 3)
    means = np.stack([train[labels == digit].mean(axis=0) for digit in range(10)])
    apart = ((test[:, None].astype(float) - means) ** 2).sum(axis=(2, 3))
    assert (apart.argmin(axis=1) == truth).mean() > 0.6


def test_mnist_is_carved_into_disjoint_splits(tmp_path):
    rng = np.random.default_rng(0)
    for name, n in (("train", 15_000), ("test", 100)):
        found = {"images": rng.integers(0, 256, (n, 28, 28)).astype(np.uint8), "labels": rng.integers(0, 10, n)}
        np.savez(tmp_path / f"mnist_{name}.npz", **found)
    sizes = {split: len(mnist_clutter(tmp_path, split, Rule())) for split in ("train", "validation", "calibration")}
    assert sizes == {"train": 8000, "validation": 3000, "calibration": 4000}
    assert len(load_images(locate_images("clutter", tmp_path), "test", GREY)) == 100


def test_drawing_anew_keeps_the_digit_and_follows_a_subset():
    some = drawn_clutter("test", Rule()).subset(np.arange(40, 50))
    assert some.redraw is not None
    first, second = (some.redraw(np.array([3, 3]), np.random.default_rng(seed)) for seed in (0, 0))
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any()
    digit = strokes(1200, 3)[0][43]
    assert any((first[0, y : y + 28, x : x + 28] >= digit).all() for y in range(33) for x in range(33))


def test_imagenette_is_read_from_its_files(tmp_path):
    def packed(n: int) -> dict[str, np.ndarray]:
        files = []
        for i in range(n):
            buffer = io.BytesIO()
            Image.fromarray(np.full((128, 128, 3), i % 250, np.uint8)).save(buffer, "WEBP", lossless=True)
            files.append(np.frombuffer(buffer.getvalue(), np.uint8))
        offsets = np.cumsum([0, *map(len, files)])
        names = np.array([f"n{i:05d}".encode() for i in range(n)])  # bytes, as the file at hand has them
        labels = np.arange(n) % 2
        return {
            "data": np.concatenate(files),
            "offsets": offsets,
            "labels": labels,
            "classes": np.array(["a", "b"]),
            "names": names,
        }

    np.savez(tmp_path / "imagenette128_train.npz", **packed(2100))
    np.savez(tmp_path / "imagenette128_test.npz", **packed(9))
    place = locate_images("imagenette", tmp_path)
    test = load_images(place, "test", Gaze(size=128, channels=3, pitch=16, near=16, wide=48, budget=5))
    assert test.pixels.shape == (9, 128, 128, 3)
    assert test.pixels[:, 0, 0, 0].tolist() == list(range(9))
    assert test.names[:2] == ("n00000", "n00001")
    assert [len(load_images(place, split, GREY)) for split in ("train", "validation", "calibration")] == [
        100,
        800,
        1200,
    ]
    assert image_places.IMAGE_NAMES == ("strokes", "clutter", "imagenette")
