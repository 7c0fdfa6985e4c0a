"""Glimpses to embeddings: three small convolutions and a maximum over positions, trained.

The twin of `scenes/image_encoder.py`. `on_grid` is the deployed arithmetic, with gradients that pass through its
roundings: sums of whole numbers so few that float32 adds them without rounding, in whatever order a library likes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.grid.arithmetic import SIGNED_MAX, UNSIGNED_MAX
from asp_neuro.grid.sections import Affine, Matrix
from asp_neuro.learn.grid import GridRows, Ranges, Rows, round_through, to_range
from asp_neuro.scenes.image import PIXEL_MAX, Gaze
from asp_neuro.scenes.image_encoder import KERNEL

PIXEL = 4.0 / PIXEL_MAX  # what a step of brightness is to the first convolution: most of an image is dark


class ImageEncoder(nn.Module):
    """Glimpses [m, k, c, grid, grid] and the places that they are of -> embeddings [m, w]."""

    def __init__(self, how: Gaze, widths: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.how, self.n_scales = how, len(how.scales)
        one, two, three = widths
        self.first = nn.Conv2d(how.channels, one, KERNEL)
        self.second = nn.Conv2d(one, two, KERNEL)
        self.third = nn.Conv2d(two, three, KERNEL, bias=False)
        self.scale = nn.Parameter(torch.zeros(self.n_scales, three))  # the third's bias: the embedding of the scale
        n_inputs = self.n_scales * three + 2
        self.embedding = nn.Linear(n_inputs, width)
        where = torch.from_numpy(2 * how.centres - how.size).float()
        self.register_buffer("where", where, persistent=False)  # [M, 2] half pixels from the middle
        inner = KERNEL * KERNEL
        self.grid = nn.ModuleDict(
            {
                "first": GridRows(one, inner * how.channels),
                "second": GridRows(two, inner * one),
                "third": GridRows(three, inner * two),
                "embedding": GridRows(width, n_inputs),
            }
        )
        self.ranges: Ranges | None = None  # where activations are noted

    def forward(self, glimpses: Tensor, place: Tensor) -> Tensor:
        m, k = glimpses.shape[:2]
        x = glimpses.flatten(0, 1).float() * PIXEL
        x = self._noted("first", F.relu(self.first(x)))
        x = self._noted("second", F.relu(F.max_pool2d(self.second(x), 2)))
        x = self.third(x).amax(dim=(2, 3)).view(m, k, -1)
        features = self._noted("features", F.relu(x + self.scale)).flatten(1)
        where = self.where[place] / self.how.size
        return self._noted("embedding", self.embedding(torch.cat([features, where], dim=1)))

    def _noted(self, name: str, x: Tensor) -> Tensor:
        if self.ranges is not None:
            self.ranges.note(name, x)
        return x

    # On the integer grid

    def rows(self) -> dict[str, Rows]:
        """Every map on the grid."""
        return {name: self.grid[name].rows(weight, bias) for name, (weight, bias) in self._maps().items()}

    def _maps(self) -> dict[str, tuple[Tensor, Tensor | None]]:
        return {
            "first": (self.first.weight.flatten(1), self.first.bias),
            "second": (self.second.weight.flatten(1), self.second.bias),
            "third": (self.third.weight.flatten(1), None),
            "embedding": (self.embedding.weight, self.embedding.bias),
        }

    def scales(self) -> Tensor:
        """[k, c3] the bias of each scale in units of the third's sums, whole numbers."""
        third = self.grid["third"]
        return round_through(self.scale.double() / (third.unit_out * 2.0 ** -third.shift.double()))

    @torch.no_grad()
    def fix_scales(self, seen: Ranges) -> None:
        """Units of the activations from the largest seen, shifts from the weights."""
        maps = self._maps()
        first, second, features = (seen.unit(name, UNSIGNED_MAX) for name in ("first", "second", "features"))
        self.grid["first"].fix(*maps["first"], PIXEL, first)
        self.grid["second"].fix(*maps["second"], first, second)
        self.grid["third"].fix(maps["third"][0], self.scale.abs().amax(dim=0), second, features)
        units = torch.full((maps["embedding"][0].shape[1],), features, dtype=torch.float64)
        units[-2:] = 1.0 / self.how.size
        self.grid["embedding"].fix(*maps["embedding"], units, seen.unit("embedding", SIGNED_MAX))

    def on_grid(self, glimpses: Tensor, place: Tensor) -> Tensor:
        """As `forward`; embeddings are whole numbers of 8 bits."""
        m, k = glimpses.shape[:2]
        rows = self.rows()
        maps = {name: one.scaled() for name, one in rows.items()}
        x = glimpses.flatten(0, 1).float()
        x = to_range(self._convolved(x, *maps["first"]), 0.0, UNSIGNED_MAX)
        x = to_range(F.max_pool2d(self._convolved(x, *maps["second"]), 2), 0.0, UNSIGNED_MAX)
        x = self._convolved(x, *maps["third"]).amax(dim=(2, 3)).view(m, k, -1)
        told = (self.scales() * 2.0 ** -rows["third"].shift.double()).float()
        features = to_range(x + told, 0.0, UNSIGNED_MAX).flatten(1)
        out = F.linear(torch.cat([features, self.where[place]], dim=1), *maps["embedding"])
        return to_range(out, -SIGNED_MAX, SIGNED_MAX)

    @staticmethod
    def _convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(x, weight.view(len(weight), x.shape[1], KERNEL, KERNEL), bias)

    def sections(self) -> dict[str, Affine | Matrix]:
        """The integers of every map."""
        return {name: one.matrix() if one.bias is None else one.affine() for name, one in self.rows().items()}


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
