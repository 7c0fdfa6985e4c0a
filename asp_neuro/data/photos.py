"""One file, one picture, as a model looks at it: upright, the middle square, of the model's size and colours.

What was done to a picture on the way in stands in its notes; what cannot be read is refused with file and reason. Sizes
are read from the header before anything is unpacked. Needs Pillow.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asp_neuro.errors import InputError
from asp_neuro.libraries import demand
from asp_neuro.scenes.image import Gaze

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
MAX_BYTES = 200_000_000  # of one file
MAX_PIXELS = 100_000_000  # of one picture
LEAST = 8  # pixels a side
DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # 16 bits of brightness
STDIN = "-"


class Photo(NamedTuple):
    pixels: np.ndarray  # [size, size] or [size, size, 3] uint8
    notes: tuple[str, ...] = ()


def read_photo(path: str | Path, how: Gaze) -> Photo:
    """The picture in one file ('-': standard input)."""
    return decode(_content(path), how, str(path))


def decode(content: bytes, how: Gaze, name: str) -> Photo:
    """A picture from the bytes of its file; `name` stands in errors."""
    demand("PIL", "a picture")
    from PIL import Image, ImageOps

    notes: list[str] = []
    try:
        with _opened(content) as opened:
            width, height = opened.size
            if width * height > MAX_PIXELS:
                raise InputError(f"{name}: {width} x {height} pixels, at most {MAX_PIXELS:,} are read; shrink it first")
            if (frames := getattr(opened, "n_frames", 1)) > 1:
                notes.append(f"The first of {frames} frames was taken.")
            opened.seek(0)
            opened.load()
            turned = ImageOps.exif_transpose(opened)
            upright: Any = opened if turned is None else turned
            if upright.size != (width, height) or _turn(opened) > 1:
                notes.append("It was turned upright, as its EXIF data say.")
            plain = _plain(upright, how, name, notes)
    except InputError:
        raise
    except Image.DecompressionBombError:
        raise InputError(f"{name}: more pixels than the {MAX_PIXELS:,} that are read; shrink it first") from None
    except Exception as error:  # a broken picture can fail in any way: OSError, SyntaxError, struct.error, ...
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise InputError(f"{name}: no picture that can be read ({reason})") from None
    return Photo(_squared(plain, how, name, notes), tuple(notes))


def _opened(content: bytes) -> Any:
    """Its header; Pillow's own warning of many pixels is left out, for they are refused here."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(content))


def _turn(opened: Any) -> int:
    """The orientation that EXIF tells; 1: upright."""
    return int(opened.getexif().get(0x0112, 1) or 1)


def _plain(picture: Any, how: Gaze, name: str, notes: list[str]) -> Any:
    """Of 8 bits, in the model's colours, transparent parts dark."""
    from PIL import Image

    wanted = "L" if how.channels == 1 else "RGB"
    if picture.mode == "F":
        raise InputError(f"{name}: brightness as real numbers, whose range nobody tells; save it with 8 or 16 bits")
    if picture.mode in DEEP:
        deep = np.asarray(picture).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise InputError(f"{name}: brightness from {deep.min()} to {deep.max()}, expected 16 bits")
        picture = Image.fromarray((deep // 257).astype(np.uint8))
        notes.append("Its 16 bits of brightness became 8.")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        if clear.getextrema()[3][0] < 255:
            notes.append("Transparent parts were taken as black.")
        picture = Image.alpha_composite(Image.new("RGBA", clear.size, (0, 0, 0, 255)), clear).convert("RGB")
    if how.channels == 3 and picture.mode in ("L", "1"):
        notes.append("It has no colours.")
    return picture if picture.mode == wanted else picture.convert(wanted)


def _squared(picture: Any, how: Gaze, name: str, notes: list[str]) -> np.ndarray:
    """The middle square, of the model's size."""
    from PIL import Image

    width, height = picture.size
    side = min(width, height)
    if side < LEAST:
        raise InputError(f"{name}: {width} x {height} pixels are too few, at least {LEAST} a side are needed")
    if width != height:
        notes.append(f"Only the middle {side} x {side} of its {width} x {height} pixels are looked at.")
    if side < how.size:
        notes.append(f"It was enlarged from {side} to {how.size} pixels a side: expect more errors.")
    left, top = (width - side) // 2, (height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    if side != how.size:
        square = square.resize((how.size, how.size), Image.Resampling.BICUBIC)
    return np.array(square, dtype=np.uint8)


def _content(path: str | Path) -> bytes:
    if str(path) == STDIN:
        return sys.stdin.buffer.read()
    place = Path(path)
    try:
        if place.is_dir():
            raise InputError(f"{place}: a folder; give class folders of pictures as --data")
        if place.stat().st_size > MAX_BYTES:
            raise InputError(f"{place}: {place.stat().st_size:,} bytes, at most {MAX_BYTES:,} are read")
        return place.read_bytes()
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror}") from None


def read_photos(paths: Sequence[str | Path], how: Gaze) -> list[Photo]:
    """All of them, or an error that names every one that cannot be used."""
    found, broken = [], []
    for path in paths:
        try:
            found.append(read_photo(path, how))
        except InputError as error:
            broken.append(str(error))
    if broken:
        several = f"{len(broken)} of {len(paths)} inputs cannot be used, so none was answered:\n" + "\n".join(broken)
        raise InputError(broken[0] if len(paths) == 1 else several)
    return found
