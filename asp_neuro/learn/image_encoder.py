"""Glimpses to embeddings: small convolutions and a maximum over positions, trained.

The twin of `scenes/image_encoder.py`. No convolution looks beyond its map, so that a whole map can be encoded at once
(`over_maps`), for all of its glimpses: cheaper than glimpse by glimpse where most of a map is looked at anyway. With
four convolutions (photographs) each has a batch normalisation, folded into it; on the grid its statistics are those
seen so far. `on_grid` is the deployed arithmetic, with gradients that pass through its roundings: sums of whole
numbers so few that float32 adds them without rounding, in whatever order a library likes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import SIGNED_MAX, UNSIGNED_MAX
from asp_neuro.grid.sections import Affine, Matrix
from asp_neuro.learn.cloud_encoder import over_processes
from asp_neuro.learn.grid import GridRows, Ranges, Rows, round_through, to_range
from asp_neuro.scenes.image import PIXEL_MAX, Gaze
from asp_neuro.scenes.image_encoder import KERNEL, sides

PIXEL = 4.0 / PIXEL_MAX  # what a step of brightness is to the first convolution: most of an image is dark
NAMES = {3: ("first", "second", "third"), 4: ("first", "second", "between", "third")}
EPSILON = 1e-5
Maps = list[Tensor]  # [b, c, h, w] each, of several sizes
Convolve = Callable[[str, Maps], Maps]  # the convolution of this name


class NormedConv(nn.Module):
    """A convolution and its batch normalisation, over all maps; `fold` is the affine map that inference runs."""

    def __init__(self, n_inputs: int, n_outputs: int, momentum: float = 0.05) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.Conv2d(n_inputs, n_outputs, KERNEL).weight.detach())
        self.gain = nn.Parameter(torch.ones(n_outputs))
        self.bias = nn.Parameter(torch.zeros(n_outputs))
        self.register_buffer("mean", torch.zeros(n_outputs))
        self.register_buffer("variance", torch.ones(n_outputs))
        self.momentum = momentum

    def forward(self, maps: Maps) -> Maps:
        if not self.training:
            weight, bias = self.fold()
            return [F.conv2d(x, weight, bias) for x in maps]
        found = [F.conv2d(x, self.weight) for x in maps]
        flat = self._normed(torch.cat([x.flatten(2) for x in found], dim=2))
        parts = flat.split([x.shape[2] * x.shape[3] for x in found], dim=2)
        return [part.reshape(x.shape) for part, x in zip(parts, found)]

    def _normed(self, x: Tensor) -> Tensor:
        """[b, c, n] with the statistics of the whole batch, over all processes."""
        if not torch.distributed.is_initialized():
            return F.batch_norm(x, self.mean, self.variance, self.gain, self.bias, True, self.momentum, EPSILON)
        n = over_processes(torch.full((1,), float(x.numel() // x.shape[1])))
        mean = over_processes(x.sum(dim=(0, 2))) / n
        variance = over_processes((x - mean[:, None]).square().sum(dim=(0, 2))) / n
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance * (n / (n - 1.0)), self.momentum)
        scale = self.gain / (variance + EPSILON).sqrt()
        return x * scale[:, None] + (self.bias - mean * scale)[:, None]

    def fold(self) -> tuple[Tensor, Tensor]:
        """Weight and bias."""
        scale = self.gain / (self.variance + EPSILON).sqrt()
        return self.weight * scale.view(-1, 1, 1, 1), self.bias - self.mean * scale


class ImageEncoder(nn.Module):
    """Glimpses [m, k, c, grid, grid] and the places that they are of -> embeddings [m, w]."""

    def __init__(self, how: Gaze, widths: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.how, self.n_scales = how, len(how.scales)
        self.names, self.deep = NAMES[len(widths)], len(widths) == 4
        sides(how.grid, self.deep)  # refuses what does not fit
        inputs = (how.channels, *widths[:-1])
        for name, n_inputs, n_outputs in zip(self.names[:-1], inputs, widths):
            kind = NormedConv(n_inputs, n_outputs) if self.deep else nn.Conv2d(n_inputs, n_outputs, KERNEL)
            self.add_module(name, kind)
        last = (inputs[-1], widths[-1])
        self.third = NormedConv(*last) if self.deep else nn.Conv2d(*last, KERNEL, bias=False)
        self.scale = nn.Parameter(torch.zeros(self.n_scales, widths[-1]))  # in the third's bias: embedding of the scale
        n_inputs = self.n_scales * widths[-1] + 2
        self.embedding = nn.Linear(n_inputs, width)
        where = torch.from_numpy(2 * how.centres - how.size).float()
        self.register_buffer("where", where, persistent=False)  # [M, 2] half pixels from the middle
        inner = KERNEL * KERNEL
        grids = {name: GridRows(n_out, inner * n_in) for name, n_in, n_out in zip(self.names, inputs, widths)}
        self.grid = nn.ModuleDict({**grids, "embedding": GridRows(width, n_inputs)})
        self.ranges: Ranges | None = None  # where activations are noted
        self.bfloat16 = False  # convolutions that learn, in floating point

    def forward(self, glimpses: Tensor, place: Tensor) -> Tensor:
        m, k = glimpses.shape[:2]
        x = self._last([glimpses.flatten(0, 1)])[0].amax(dim=(2, 3)).view(m, k, -1)
        features = self._noted("features", F.relu(x + self.scale)).flatten(1)
        return self._embedded(features, self.where[place])

    def over_maps(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Maps [b, c, m, m] of every scale -> embeddings [b, M, w] of all places, and features [b, 2 k c3] of the
        whole image: the largest and the mean of each map."""
        found, whole = [], []
        for number, last in enumerate(self._last(maps)):
            x = F.relu(last + self.scale[number].view(-1, 1, 1))
            found.append(self._noted("features", self._at_places(x, number)))
            whole += [x.amax(dim=(2, 3)), x.mean(dim=(2, 3))]
        return self._embedded(torch.cat(found, dim=2), self._everywhere(len(maps[0]))), torch.cat(whole, dim=1)

    def _last(self, maps: Maps) -> Maps:
        """Pixels through all convolutions, the last one not yet rectified."""

        def convolved(name: str, maps: Maps) -> Maps:
            own = getattr(self, name)
            return own(maps) if self.deep else [own(x) for x in maps]

        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16 and self.training):
            found = self._through(
                [x.float() * PIXEL for x in maps],
                convolved,
                lambda name, maps: [self._noted(name, F.relu(x)) for x in maps],
            )
        return [x.float() for x in found]

    def _through(self, maps: Maps, convolved: Convolve, opened: Convolve) -> Maps:
        for name in self.names[:-1]:
            maps = convolved(name, maps)
            if name == "second" or (self.deep and name == "first"):
                maps = [F.max_pool2d(x, 2) for x in maps]
            maps = opened(name, maps)
        return convolved("third", maps)

    def _at_places(self, x: Tensor, number: int) -> Tensor:
        """The last map [b, c, m, m] of a scale -> [b, M, c]: the largest of what each place's glimpse has of it."""
        side = sides(self.how.grid, self.deep)[-1]
        step = self.how.pitch // self.how.scales[number] // (4 if self.deep else 2)
        return F.max_pool2d(x, side, step).flatten(2).transpose(1, 2)

    def _everywhere(self, b: int) -> Tensor:
        return self.where.expand(b, -1, -1)

    def _embedded(self, features: Tensor, where: Tensor) -> Tensor:
        return self._noted("embedding", self.embedding(torch.cat([features, where / self.how.size], dim=-1)))

    def _noted(self, name: str, x: Tensor) -> Tensor:
        if self.ranges is not None:
            self.ranges.note(name, x)
        return x

    # On the integer grid

    def rows(self) -> dict[str, Rows]:
        """Every map on the grid."""
        return {name: self.grid[name].rows(weight, bias) for name, (weight, bias) in self._maps().items()}

    def _maps(self) -> dict[str, tuple[Tensor, Tensor | None]]:
        found: dict[str, tuple[Tensor, Tensor | None]] = {}
        for name in self.names:
            own = getattr(self, name)
            weight, bias = own.fold() if self.deep else (own.weight, own.bias)
            found[name] = (weight.flatten(1), None if name == "third" else bias)
        return {**found, "embedding": (self.embedding.weight, self.embedding.bias)}

    def scales(self) -> Tensor:
        """[k, c3] the bias of each scale in units of the third's sums, whole numbers."""
        third = self.grid["third"]
        return round_through(self._biases().double() / (third.unit_out * 2.0 ** -third.shift.double()))

    def _biases(self) -> Tensor:
        return self.scale + self.third.fold()[1] if self.deep else self.scale

    @torch.no_grad()
    def fix_scales(self, seen: Ranges) -> None:
        """Units of the activations from the largest seen, shifts from the weights."""
        maps = self._maps()
        unit: float = PIXEL
        for name in self.names[:-1]:
            after = seen.unit(name, UNSIGNED_MAX)
            self.grid[name].fix(*maps[name], unit, after)
            unit = after
        features = seen.unit("features", UNSIGNED_MAX)
        self.grid["third"].fix(maps["third"][0], self._biases().abs().amax(dim=0), unit, features)
        units = torch.full((maps["embedding"][0].shape[1],), features, dtype=torch.float64)
        units[-2:] = 1.0 / self.how.size
        self.grid["embedding"].fix(*maps["embedding"], units, seen.unit("embedding", SIGNED_MAX))

    def on_grid(self, glimpses: Tensor, place: Tensor) -> Tensor:
        """As `forward`; embeddings are whole numbers of 8 bits."""
        m, k = glimpses.shape[:2]
        rows = self.rows()
        x = self._last_on_grid([glimpses.flatten(0, 1)], rows)[0].amax(dim=(2, 3)).view(m, k, -1)
        features = to_range(x + self._told(rows), 0.0, UNSIGNED_MAX).flatten(1)
        return self._embedded_on_grid(features, self.where[place], rows)

    def over_maps_on_grid(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        """As `over_maps`; embeddings are whole numbers of 8 bits, features of the whole image what they stand for."""
        rows = self.rows()
        told, found, whole = self._told(rows), [], []
        for number, last in enumerate(self._last_on_grid(maps, rows)):
            x = to_range(last + told[number].view(-1, 1, 1), 0.0, UNSIGNED_MAX)
            found.append(self._at_places(x, number))
            whole += [x.amax(dim=(2, 3)), x.mean(dim=(2, 3))]
        unit = float(self.grid["third"].unit_out[0])
        embedded = self._embedded_on_grid(torch.cat(found, dim=2), self._everywhere(len(maps[0])), rows)
        return embedded, torch.cat(whole, dim=1) * unit

    def _last_on_grid(self, maps: Maps, rows: dict[str, Rows]) -> Maps:
        scaled = {name: rows[name].scaled() for name in self.names}

        def convolved(name: str, maps: Maps) -> Maps:
            weight, bias = scaled[name]
            kernel = weight.view(len(weight), -1, KERNEL, KERNEL)
            return [F.conv2d(x, kernel, bias) for x in maps]

        return self._through(
            [x.float() for x in maps],
            convolved,
            lambda name, maps: [to_range(x, 0.0, UNSIGNED_MAX) for x in maps],
        )

    def _told(self, rows: dict[str, Rows]) -> Tensor:
        return (self.scales() * 2.0 ** -rows["third"].shift.double()).float()

    @staticmethod
    def _embedded_on_grid(features: Tensor, where: Tensor, rows: dict[str, Rows]) -> Tensor:
        out = F.linear(torch.cat([features, where], dim=-1), *rows["embedding"].scaled())
        return to_range(out, -SIGNED_MAX, SIGNED_MAX)

    def sections(self) -> dict[str, Affine | Matrix]:
        """The integers of every map."""
        return {name: one.matrix() if one.bias is None else one.affine() for name, one in self.rows().items()}


def check_at_once(how: Gaze, deep: bool) -> None:
    """Whole maps can be encoded at once if every glimpse begins where the maxima over 2 x 2 do."""
    stride = 4 if deep else 2
    for scale in how.scales:
        if how.pitch // scale % stride:
            raise ConfigError(
                f"model.at_once: at scale {scale} the points are {how.pitch // scale} cells apart, "
                f"which must be a multiple of {stride}"
            )


def glimpses_at(maps: list[Tensor], place: Tensor, how: Gaze) -> Tensor:
    """Maps of b images and a place of each [b] -> [b, k, c, grid, grid] uint8."""
    row = torch.arange(len(place))
    y, x = place // how.side, place % how.side
    found = []
    for one, scale in zip(maps, how.scales):
        step = how.pitch // scale
        windows = one.unfold(2, how.grid, step).unfold(3, how.grid, step)  # [b, c, side, side, grid, grid]
        found.append(windows[row, :, y, x])
    return torch.stack(found, dim=1)
