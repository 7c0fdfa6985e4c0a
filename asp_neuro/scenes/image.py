"""Images as scenes: a lattice of fixation points, glimpses of several scales, descriptors. Pure numpy, whole numbers.

    lattice      side x side fixation points, `pitch` pixels apart, in the middle of the image
    maps         the image averaged over s x s pixels, for each scale s; nothing lies beyond its border (0)
    glimpse      grid x grid cells of each map about a fixation point: the same small picture, s times as wide
    describe     per fixation point: where it lies (x, y, distance from the middle), how bright it is nearby (mean,
                 spread) and farther around (mean, spread, brightest cell): no parameters

Averages are sums of whole numbers, divided once and rounded, so that neither batch nor machine changes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from asp_neuro.errors import ConfigError, InputError
from asp_neuro.grid.arithmetic import DESCRIPTOR_BITS, on_grid
from asp_neuro.grid.sections import Array, leaf

N_DESCRIPTOR = 8
BRIGHTNESS = 5  # which descriptor tells how bright it is around a place
PIXEL_MAX = 255
CELL = 4  # pixels a side of what descriptors see: a coarse thumbnail
MAX_SIZE = 512
MAX_SIDE = 11
windows_of: Any = np.lib.stride_tricks.sliding_window_view  # numpy's own types know one axis only


@dataclass(frozen=True)
class Gaze:
    """How an image is looked at."""

    size: int = 60  # pixels a side
    channels: int = 1  # 1: brightness, 3: red, green, blue
    side: int = 7  # fixation points a side of the lattice
    pitch: int = 8  # pixels between them
    grid: int = 12  # cells a side of a glimpse
    scales: tuple[int, ...] = (1, 2, 4)  # pixels a side of a cell
    near: int = 12  # pixels a side of what a descriptor calls nearby
    wide: int = 28  # and around
    budget: int = 6  # fixations

    def __post_init__(self) -> None:
        if not 16 <= self.size <= MAX_SIZE or self.size % CELL:
            raise ConfigError(f"size = {self.size} must be a multiple of {CELL} from 16 to {MAX_SIZE}")
        if self.channels not in (1, 3):
            raise ConfigError(f"channels = {self.channels} must be 1 (brightness) or 3 (colour)")
        if not 1 <= self.side <= MAX_SIDE:
            raise ConfigError(f"side = {self.side} must be between 1 and {MAX_SIDE}")
        if not 1 <= self.budget <= self.n_places:
            raise ConfigError(f"budget = {self.budget} must be between 1 and the {self.n_places} places")
        if self.grid % 2 or not 8 <= self.grid <= 32:
            raise ConfigError(f"grid = {self.grid} must be an even number from 8 to 32")
        if not self.scales or list(self.scales) != sorted(set(self.scales)) or self.scales[0] < 1:
            raise ConfigError(f"scales = {list(self.scales)} must be rising whole numbers of at least 1")
        for scale in self.scales:
            if self.pitch < 1 or self.pitch % scale:
                raise ConfigError(f"pitch = {self.pitch} must be a multiple of every scale, {scale} among them")
        if (self.side - 1) * self.pitch >= self.size or self.first * 2 + (self.side - 1) * self.pitch != self.size:
            raise ConfigError(f"a lattice of {self.side} points at pitch {self.pitch} has no middle in {self.size}")
        for name in ("near", "wide"):
            width = getattr(self, name)
            if width < CELL or width % (2 * CELL) != 2 * self.first % (2 * CELL) or self.pitch % CELL:
                raise ConfigError(
                    f"{name} = {width} must be made of whole cells of {CELL} pixels about points at "
                    f"{self.first}, {self.first + self.pitch}, ..."
                )

    @property
    def n_places(self) -> int:
        return self.side * self.side

    @property
    def first(self) -> int:
        """Where the first point of a row lies, in pixels from the border."""
        return (self.size - (self.side - 1) * self.pitch) // 2

    @property
    def centres(self) -> np.ndarray:
        """[M, 2] x and y of the fixation points in pixels, row by row; they lie between pixels."""
        at = self.first + self.pitch * np.arange(self.side)
        return np.stack([np.tile(at, self.side), np.repeat(at, self.side)], axis=1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image, as it is given: [size, size], or [size, size, 3]."""
        return (self.size, self.size) if self.channels == 1 else (self.size, self.size, 3)


@dataclass(frozen=True)
class Images:
    """A batch of n images."""

    pixels: Array = leaf("u1", "n", "c", "y", "x")

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: slice | np.ndarray) -> Images:
        return Images(self.pixels[index])


def images(inputs: np.ndarray, how: Gaze) -> Images:
    """Raw images [n, size, size] or [n, size, size, 3], or planes one below the other [n, 3 size, size] -> a batch."""
    raw = np.asarray(inputs)
    if raw.dtype.kind not in "iub" or raw.ndim < 3:
        raise InputError(
            f"images of type {raw.dtype} and shape {list(raw.shape)}, expected whole numbers {_asked(how)}"
        )
    if raw.size and not 0 <= int(raw.min()) <= int(raw.max()) <= PIXEL_MAX:
        raise InputError(f"pixels from {raw.min()} to {raw.max()}, expected 0 to {PIXEL_MAX}")
    n, size, c = len(raw), how.size, how.channels
    if raw.shape == (n, c * size, size):
        planes = raw.reshape(n, c, size, size)
    elif c == 3 and raw.shape == (n, size, size, 3):
        planes = raw.transpose(0, 3, 1, 2)
    else:
        raise InputError(f"images of shape {list(raw.shape)}, expected {_asked(how)}")
    if n == 0:
        raise InputError("no images to look at")
    return Images(np.ascontiguousarray(planes, dtype=np.uint8))


def _asked(how: Gaze) -> str:
    return f"[n, {', '.join(map(str, how.shape))}]"


def maps(pixels: np.ndarray, how: Gaze) -> list[np.ndarray]:
    """Pixels [n, c, size, size] -> for each scale its map [n, c, m, m] uint8, from the first glimpse's corner on."""
    found = []
    for scale in how.scales:
        cells = how.grid + (how.side - 1) * how.pitch // scale  # a side of the map
        start = how.first - how.grid * scale // 2
        region = window(pixels, start, cells * scale)
        rows = reduce(np.add, (region[:, :, i::scale].astype(np.int32) for i in range(scale)))
        sums = reduce(np.add, (rows[..., j::scale] for j in range(scale)))  # twice as quick as one sum over short axes
        found.append(((sums + scale * scale // 2) // (scale * scale)).astype(np.uint8))
    return found


def window(pixels: np.ndarray, start: int, width: int) -> np.ndarray:
    """The pixels [..., start : start + width] along both axes; 0 beyond the border."""
    size = pixels.shape[-1]
    out = np.zeros((*pixels.shape[:-2], width, width), dtype=pixels.dtype)
    low, high = max(start, 0), min(start + width, size)
    inner = slice(low - start, high - start)
    out[..., inner, inner] = pixels[..., low:high, low:high]
    return out


def all_glimpses(one_map: np.ndarray, scale: int, how: Gaze) -> np.ndarray:
    """A map [n, c, m, m] -> a view [n, c, side, side, grid, grid]: the cells about every fixation point."""
    step = how.pitch // scale
    windows = windows_of(one_map, (how.grid, how.grid), axis=(2, 3))
    return np.asarray(windows[:, :, ::step, ::step])


def describe(pixels: np.ndarray, how: Gaze) -> np.ndarray:
    """Pixels [n, c, size, size] -> [n, M, 8], multiples of 2^-DESCRIPTOR_BITS.

    x, y from -1 to 1 and the distance from the middle; mean and spread of the brightness of the cells nearby; mean,
    spread and the brightest cell around, of 1. Beyond the border it is dark.
    """
    n, c = pixels.shape[:2]
    n_cells = how.size // CELL
    brightest = c * CELL * CELL * PIXEL_MAX  # of a cell
    cells = pixels.reshape(n, c, n_cells, CELL, n_cells, CELL).sum(axis=(1, 3, 5), dtype=np.int64)
    found = np.empty((n, how.n_places, N_DESCRIPTOR))
    at = (2 * how.centres - how.size) / how.size  # [M, 2]
    found[..., 0:2] = at
    found[..., 2] = np.sqrt(at[:, 0] * at[:, 0] + at[:, 1] * at[:, 1])
    for place, width in ((3, how.near), (5, how.wide)):
        around = _around(cells, width // CELL, how)  # [n, side, side, k, k]
        k = around.shape[-1] ** 2
        total, squares = around.sum(axis=(3, 4)), (around * around).sum(axis=(3, 4))
        found[..., place] = (total / (k * brightest)).reshape(n, -1)
        found[..., place + 1] = (np.sqrt((k * squares - total * total).astype(np.float64)) / (k * brightest)).reshape(
            n, -1
        )
    found[..., 7] = (_around(cells, how.wide // CELL, how).max(axis=(3, 4)) / brightest).reshape(n, -1)
    return on_grid(found, DESCRIPTOR_BITS)


def _around(cells: np.ndarray, width: int, how: Gaze) -> np.ndarray:
    """Cells [n, m, m] -> [n, side, side, width, width]: those about every fixation point."""
    start = (how.first - width * CELL // 2) // CELL
    step = how.pitch // CELL
    region = window(cells, start, width + (how.side - 1) * step)
    windows = windows_of(region, (width, width), axis=(1, 2))
    return np.asarray(windows[:, ::step, ::step])
