"""The paper's analog foveated transformer and its dense control (appendix F), for a study; never in a bundle.

    image -> stem -> cells [g x g, D]  ->  17 tokens about the gaze: 3 x 3 cells, and 8 regions of 3 x 3 cells around
    them, each averaged  ->  class token + tokens through the blocks  ->  h_t
    belief      mean of h_1 .. h_t, or a GRU over them                answer = head(belief), after every fixation
    next gaze   the middle of the region that the class token attends to most in the last block; where it has been, and
                beside it, it does not look again (inhibition of return). The first gaze is the middle of the image.

The control puts all cells through the same stem and blocks once. Its parameters are fewer by the scale embedding alone
(which of the two rings a token is of). Each fixation is a pass of its own, so that cost is exactly linear in them.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro import files
from asp_neuro.errors import InputError

RINGS = (1, 3)  # cells a side of a region, from the gaze outwards
AROUND = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)]
REGIONS = [
    (ring, y * RINGS[ring], x * RINGS[ring])
    for ring in range(len(RINGS))
    for y, x in AROUND
    if ring == 0 or (y, x) != (0, 0)
]  # ring, and where the middle of the region lies from the gaze, in cells
ACCUMULATORS = ("mean", "gru")
DENSE = "dense"
NEVER = -1e9  # a score of what must not be chosen
AT_ONCE = 250  # images


@dataclass(frozen=True)
class Shape:
    """How large the model is."""

    size: int = 60  # pixels a side
    channels: int = 1
    stem: tuple[int, ...] = (16, 32, 64)  # widths; each convolution halves the map
    width: int = 64  # D
    blocks: int = 2
    heads: int = 4
    ratio: int = 2  # of a block's inner width
    budget: int = 5

    @property
    def grid(self) -> int:
        """Cells a side."""
        side = self.size
        for _ in self.stem:
            side = (side + 1) // 2
        return side


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, masked: Tensor | None) -> tuple[Tensor, Tensor]:
        """[b, L, D] and which tokens are none [b, L] -> [b, L, D] and what the class token attends to [b, L]."""
        b, n, width = x.shape
        q, k, v = self.into(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        if masked is not None:
            scores = scores.masked_fill(masked[:, None, None], NEVER)
        shares = scores.softmax(dim=3)
        return self.out((shares @ v).transpose(1, 2).reshape(b, n, width)), shares[:, :, 0].mean(dim=1)


class Block(nn.Module):
    def __init__(self, how: Shape) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(how.width), nn.LayerNorm(how.width)
        self.attention = Attention(how.width, how.heads)
        self.inner = nn.Linear(how.width, how.ratio * how.width)
        self.outer = nn.Linear(how.ratio * how.width, how.width)

    def forward(self, x: Tensor, masked: Tensor | None) -> tuple[Tensor, Tensor]:
        mixed, seen = self.attention(self.first(x), masked)
        x = x + mixed
        return x + self.outer(F.gelu(self.inner(self.second(x)))), seen


class Trunk(nn.Module):
    """What both models share: stem, places, class token, blocks, head."""

    def __init__(self, how: Shape, n_classes: int) -> None:
        super().__init__()
        self.how = how
        widths = (how.channels, *how.stem)
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(widths):
            layers += [nn.Conv2d(n_in, n_out, 3, 2, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()]
        self.stem = nn.Sequential(*layers)
        self.to_cells = nn.Linear(how.stem[-1], how.width)
        self.place = nn.Parameter(0.02 * torch.randn(how.grid**2, how.width))
        self.token = nn.Parameter(0.02 * torch.randn(how.width))
        self.blocks = nn.ModuleList(Block(how) for _ in range(how.blocks))
        self.norm = nn.LayerNorm(how.width)
        self.head = nn.Linear(how.width, n_classes)

    def cells(self, pixels: Tensor) -> Tensor:
        """[b, c, y, x] uint8 -> [b, g^2, D]."""
        return self.to_cells(self.stem(pixels.float() / 64.0 - 2.0).flatten(2).transpose(1, 2)) + self.place

    def through(self, tokens: Tensor, masked: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Tokens [b, L, D] -> the class token's state [b, D] and what it attends to in the last block [b, L]."""
        x = torch.cat([self.token.expand(len(tokens), 1, -1), tokens], dim=1)
        if masked is not None:
            masked = F.pad(masked, (1, 0))
        seen = tokens[:, :, 0]
        for block in self.blocks:
            x, seen = block(x, masked)
        return self.norm(x[:, 0]), seen[:, 1:]


class DenseControl(Trunk):
    """All cells at once."""

    def forward(self, pixels: Tensor, steer: object = None) -> Tensor:
        """[b, c, y, x] -> logits [1, b, C]."""
        return self.head(self.through(self.cells(pixels))[0])[None]


@dataclass
class Gazing:
    """Episodes of a batch under way."""

    cells: Tensor  # [b, g^2, D]
    states: Tensor  # [b, D] sum of the h_t, or the GRU's state
    gaze: Tensor  # [b] the present cell
    shunned: Tensor  # [b, g^2] bool: where it has looked, and beside it
    attention: Tensor  # [b, regions] of the last look
    step: int = 0


Steer = Callable[[Gazing], Tensor]  # where to look next [b]


class Foveated(Trunk):
    """One gaze after the other."""

    def __init__(self, how: Shape, n_classes: int, accumulator: str = "mean") -> None:
        super().__init__(how, n_classes)
        self.scale = nn.Parameter(0.02 * torch.randn(len(RINGS), how.width))
        self.gru = nn.GRUCell(how.width, how.width) if accumulator == "gru" else None
        pool, middle, beside = lattice(how.grid)
        self.register_buffer("pool", pool, persistent=False)  # [g^2, regions, g^2]
        self.register_buffer("middle", middle, persistent=False)  # [g^2, regions]
        self.register_buffer("beside", beside, persistent=False)  # [g^2, g^2]
        self.register_buffer("ring", torch.tensor([region[0] for region in REGIONS]), persistent=False)

    def begin(self, pixels: Tensor) -> Gazing:
        b, n_cells, side = len(pixels), self.how.grid**2, self.how.grid
        cells = self.cells(pixels)
        gaze = torch.full((b,), side // 2 * side + side // 2)
        shunned = torch.zeros(b, n_cells, dtype=torch.bool)
        return Gazing(cells, cells.new_zeros(b, self.how.width), gaze, shunned, cells.new_zeros(b, len(REGIONS)))

    def look(self, now: Gazing, gaze: Tensor) -> Tensor:
        """Look there: `now` advances, logits [b, C] come back."""
        pool = self.pool[gaze]  # [b, regions, g^2]
        absent = pool.sum(dim=2) == 0.0
        h, now.attention = self.through(pool @ now.cells + self.scale[self.ring], absent)
        now.attention = now.attention.masked_fill(absent, 0.0)
        now.gaze, now.step = gaze, now.step + 1
        now.shunned = now.shunned | self.beside[gaze]
        if self.gru is not None:
            now.states = self.gru(h, now.states)
            return self.head(now.states)
        now.states = now.states + h
        return self.head(now.states / now.step)

    def attended(self, now: Gazing) -> Tensor:
        """The middle of the region that it attends to most, of those not shunned."""
        if now.step == 0:
            return now.gaze
        middle = self.middle[now.gaze]  # [b, regions]
        scores = now.attention.detach() + NEVER * now.shunned.gather(1, middle)
        return middle.gather(1, scores.argmax(dim=1, keepdim=True)).squeeze(1)

    def forward(self, pixels: Tensor, steer: Steer | None = None) -> Tensor:
        """[b, c, y, x] -> logits [T, b, C] after every fixation."""
        now, choose = self.begin(pixels), steer or self.attended
        return torch.stack([self.look(now, choose(now)) for _ in range(self.how.budget)])


def lattice(side: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each gaze: the share that every cell has in every region [g^2, regions, g^2], 0 where it has none; the cell
    in the middle of each region, moved into the grid [g^2, regions]; the cells at and beside the gaze [g^2, g^2]."""
    at = torch.arange(side)
    row, column = at.repeat_interleave(side), at.repeat(side)  # of each cell
    pools, middles = [], []
    for ring, y, x in REGIONS:
        half = RINGS[ring] // 2
        near_y = (row[None] - (row[:, None] + y)).abs() <= half
        near_x = (column[None] - (column[:, None] + x)).abs() <= half
        inside = (near_y & near_x).float()
        pools.append(inside / inside.sum(dim=1, keepdim=True).clamp_min(1.0))
        middles.append((row + y).clamp(0, side - 1) * side + (column + x).clamp(0, side - 1))
    beside = ((row[None] - row[:, None]).abs() <= 1) & ((column[None] - column[:, None]).abs() <= 1)
    return torch.stack(pools, dim=1), torch.stack(middles, dim=1), beside


def build(kind: str, how: Shape, n_classes: int, seed: int) -> Trunk:
    """A fresh model: "mean", "gru" or "dense"; what they share begins with the same weights."""
    torch.manual_seed(seed)
    return DenseControl(how, n_classes) if kind == DENSE else Foveated(how, n_classes, kind)


# Ways to look


def at_random(how: Shape, seed: int) -> Steer:
    source = torch.Generator().manual_seed(seed)

    def choose(now: Gazing) -> Tensor:
        return (torch.rand(now.shunned.shape, generator=source) + NEVER * now.shunned).argmax(dim=1)

    return choose


def centre_out(how: Shape) -> Steer:
    """The middle, then what is nearest to it of what was not looked at or beside it."""
    at = torch.arange(how.grid) - how.grid // 2
    near = -(at[:, None].square() + at[None].square()).flatten().float()
    return lambda now: (near + NEVER * now.shunned).argmax(dim=1)


def oracle(model: Foveated, labels: Tensor, every: int) -> Steer:
    """Of every `every`-th cell the one whose look makes the true class most likely, one step ahead."""
    side = model.how.grid
    candidates = [y * side + x for y in range(0, side, every) for x in range(0, side, every)]

    def choose(now: Gazing) -> Tensor:
        gains = []
        for cell in candidates:
            trial = Gazing(now.cells, now.states, now.gaze, now.shunned, now.attention, now.step)
            logits = model.look(trial, torch.full_like(now.gaze, cell))
            gains.append(F.log_softmax(logits, dim=1).gather(1, labels[:, None]).squeeze(1))
        gain = torch.stack(gains, dim=1) + NEVER * now.shunned[:, candidates]
        return torch.tensor(candidates)[gain.argmax(dim=1)]

    return choose


# What it costs


def macs_by_hand(how: Shape, n_classes: int, kind: str) -> tuple[int, int]:
    """Multiply-accumulates of what is done once for an image, and of each fixation (of the control: 0)."""
    once, side, n_in = 0, how.size, how.channels
    for n_out in how.stem:
        side = (side + 1) // 2
        once += side * side * 9 * n_in * n_out
        n_in = n_out
    width, cells = how.width, how.grid**2
    once += cells * n_in * width
    n_tokens = 1 + (cells if kind == DENSE else len(REGIONS))
    block = n_tokens * width * width * (4 + 2 * how.ratio) + 2 * n_tokens * n_tokens * width
    fixation = how.blocks * block + width * n_classes + (6 * width * width if kind == "gru" else 0)
    return (once + fixation, 0) if kind == DENSE else (once, fixation)


@contextmanager
def counted(model: Trunk) -> Iterator[list[int]]:
    """Multiply-accumulates of one image as hooks see them, in the list's only entry; attention's products from the
    shapes that its module is given. Pooling is accumulates, and left out."""
    total = [0]

    def note(module: nn.Module, given: tuple[Tensor, ...], out: object) -> None:
        first = given[0]
        if isinstance(module, nn.Conv2d):
            assert isinstance(out, Tensor)
            total[0] += out[0, 0].numel() * module.weight.numel()
        elif isinstance(module, nn.Linear):
            total[0] += first[0].numel() // module.in_features * module.weight.numel()
        elif isinstance(module, nn.GRUCell):
            total[0] += module.weight_ih.numel() + module.weight_hh.numel()
        elif isinstance(module, Attention):
            total[0] += 2 * first.shape[1] ** 2 * first.shape[2]

    kinds = (nn.Conv2d, nn.Linear, nn.GRUCell, Attention)
    hooks = [module.register_forward_hook(note) for module in model.modules() if isinstance(module, kinds)]
    try:
        yield total
    finally:
        for hook in hooks:
            hook.remove()


# Learning


@dataclass(frozen=True)
class Lessons:
    """How it is trained; all three alike."""

    steps: int = 600
    batch_size: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    warmup: float = 0.1
    label_smoothing: float = 0.1
    random_share: float = 0.2  # of the batches, in which the gaze after the first is drawn


def train(
    model: Trunk,
    draw: Callable[[int], tuple[Tensor, Tensor]],
    how: Lessons,
    seed: int,
    show: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """`draw` gives the images and labels of a step; every prefix of an episode is supervised."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": how.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=how.learning_rate)
    drawn = torch.Generator().manual_seed(seed)
    blind = at_random(model.how, seed)
    model.train()
    for step in range(how.steps):
        pixels, labels = draw(step)
        steer = None
        if isinstance(model, Foveated):
            anywhere = float(torch.rand((), generator=drawn)) < how.random_share
            steer = (lambda now: now.gaze if now.step == 0 else blind(now)) if anywhere else model.attended
        logits = model(pixels, steer)
        told = labels.repeat(len(logits))
        loss = F.cross_entropy(logits.flatten(0, 1), told, label_smoothing=how.label_smoothing)
        share = step / how.steps
        rate = min(1.0, share / how.warmup + 0.02) * 0.5 * (1.0 + math.cos(math.pi * share))
        for group in optimiser.param_groups:
            group["lr"] = how.learning_rate * rate
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        show(step + 1, float(loss.detach()))
    model.eval()


Draw = Callable[[int], tuple[np.ndarray, np.ndarray]]  # step -> pixels [b, y, x] or [b, y, x, 3] uint8, labels [b]


def trained(
    kind: str,
    how: Shape,
    n_classes: int,
    seed: int,
    lessons: Lessons,
    draw: Draw,
    path: Path,
    show: Callable[[int, float], None],
) -> Trunk:
    """The model that lies at `path`, if it was trained so; else it is trained, and put there."""
    torch.set_num_threads(1)
    model = build(kind, how, n_classes, seed)
    told = {"kind": kind, "shape": asdict(how), "lessons": asdict(lessons), "seed": seed, "classes": n_classes}
    told = json.loads(json.dumps(told))
    if path.exists():
        stored = torch.load(path, map_location="cpu", weights_only=True)
        if stored["told"] == told:
            model.load_state_dict(stored["model"])
            return model.eval()
        raise InputError(f"'{path}' was trained in another way; name another --out")

    def tensors(step: int) -> tuple[Tensor, Tensor]:
        pixels, labels = draw(step)
        return planes(pixels), torch.from_numpy(labels)

    train(model, tensors, lessons, seed, show)
    with files.writing(path) as file:
        torch.save({"told": told, "model": model.state_dict()}, file)
    return model


def planes(pixels: np.ndarray) -> Tensor:
    """[b, y, x] or [b, y, x, 3] -> [b, c, y, x]."""
    given = torch.from_numpy(np.ascontiguousarray(pixels))
    return given[:, None] if given.ndim == 3 else given.permute(0, 3, 1, 2)


RULES = ("learned", "random", "centre_out", "oracle")


@torch.no_grad()
def read(model: Trunk, pixels: np.ndarray, labels: np.ndarray, rule: str = "learned", seed: int = 0) -> np.ndarray:
    """Logits [T, n, C] float64 of all images, each at full budget, looked at by a rule of `RULES`."""
    model.eval()
    found, blind = [], at_random(model.how, seed)
    for start in range(0, len(pixels), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        steer: Steer | None = None
        if isinstance(model, Foveated) and rule != "learned":
            told = torch.from_numpy(labels[part])
            steer = {"random": blind, "centre_out": centre_out(model.how), "oracle": oracle(model, told, 2)}[rule]
        found.append(model(planes(pixels[part]), steer).double().numpy())
    return np.concatenate(found, axis=1)


def hooked(model: Trunk) -> int:
    """Multiply-accumulates of one image at full budget, as hooks count them."""
    with torch.no_grad(), counted(model) as total:
        model.eval()(torch.zeros(1, model.how.channels, model.how.size, model.how.size, dtype=torch.uint8))
    return total[0]


def n_parameters(model: Trunk) -> int:
    return sum(p.numel() for p in model.parameters())
