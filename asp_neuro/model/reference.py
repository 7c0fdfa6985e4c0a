"""The whole deployed network in whole numbers, one scene at a time: to hold the host against, and to port.

It follows docs/integers.md line by line and shares no arithmetic with the host: lists, loops and Python's integers, the
constants written out. From the cut cloud to the exit, floating point (IEEE 754 doubles, one operation at a time)
stands in the first part, in `descriptor` and `moments`, and where a result behind the head becomes a double.
`>>` rounds down, `round` to the nearest, halves to even. It is slow: 0.4 s for a cloud of `compact`, 1.5 s of
`modelnet10`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from operator import mul
from typing import NamedTuple, cast

from asp_neuro.grid.sections import Affine, Matrix, Norm
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.spec import ModelSpec
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.scenes.cloud_encoder import CloudSpec
from asp_neuro.scenes.image import Images
from asp_neuro.scenes.image_encoder import ImageSpec
from asp_neuro.tasks.classify import ClassifySpec

Ints = list[int]
Rows = list[tuple[Ints, int, int]]  # weights, bias and shift of each row
Told = tuple[list[list[float]], int, Ints, int]  # logits of each target, margin, probabilities, label
Places = tuple[list[Ints], Callable[[int], Ints]]  # the descriptors of a scene's places, and what embeds one

PAIRS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # xx, yy, zz, xy, xz, yz


# Real numbers: the only ones


def layer_norm(x: Ints, norm: Norm, bits: int) -> list[float]:
    """Of multiples of 2^-bits: whole sums, then one square root and one division."""
    n, total = len(x), sum(x)
    root = math.sqrt(float(n * dot(x, x) - total * total) + 1e-5 * (n * 2.0**bits) ** 2)
    parts = zip(x, norm.gain.tolist(), norm.bias.tolist())
    return [float(n * v - total) / root * (gain / 65536.0) + bias / 65536.0 for v, gain, bias in parts]


def exp(x: float) -> float:
    """e^x for x <= 0: e^r 2^k with |r| <= ln 2 / 2."""
    x = max(x, -60.0)
    k = round(x * 1.4426950408889634)
    r = x - k * 6.93147180369123816490e-01
    r = r - k * 1.90821492927058770002e-10
    total = 1.0 / math.factorial(10)
    for i in range(9, -1, -1):
        total = total * r + 1.0 / math.factorial(i)  # a product, rounded, and a sum, rounded: not fused
    return math.ldexp(total, k)


def tanh(z: float) -> int:
    """In steps of 2^-30."""
    decay = exp(-2.0 * abs(z))
    steps = round((1.0 - decay) / (1.0 + decay) * 2.0**30)
    return -steps if z < 0.0 else steps


def gate(step: int) -> int:
    """A sigmoid of step / 16, of 4096: a table of 256 numbers on a small machine."""
    z = step / 16.0
    return round((0.5 + 0.5 * (z / math.sqrt(1.0 + z * z))) * 4096.0)


def softmax(logits: list[float]) -> tuple[int, Ints]:
    """The margin and the probabilities, in steps of 2^-30."""
    best = max(logits)
    weights = [round(exp(z - best) * 2.0**40) for z in logits]  # the best one's is 2^40
    total = sum(weights)
    return round((2**40 - sorted(weights)[-2]) / total * 2.0**30), [round(w / total * 2.0**30) for w in weights]


# Whole numbers


def dot(a: Ints, b: Ints) -> int:
    return sum(map(mul, a, b))


def shifted(total: int, shift: int) -> int:
    """total / 2^shift, rounded, halves up."""
    return (total + ((1 << shift) >> 1)) >> shift


def clamp(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


def rows(section: Affine | Matrix) -> Rows:
    bias = section.bias.tolist() if isinstance(section, Affine) else [0] * section.n_outputs
    return list(zip(section.weight.tolist(), bias, section.shift.tolist()))


def mapped(these: Rows, x: Ints, low: int, high: int) -> Ints:
    """The rounded map within limits; both keep order, so that a maximum may come before or after them."""
    return [clamp(shifted(dot(weight, x) + bias, shift), low, high) for weight, bias, shift in these]


def real(these: Rows, x: Ints, bits: int) -> list[float]:
    """A map behind the head, of multiples of 2^-bits: whole sums, exact as doubles; biases are in steps of 2^-12."""
    return [math.ldexp(dot(weight, x) + (bias << (bits - 12)), -bits - shift) for weight, bias, shift in these]


def largest(lists: list[Ints]) -> Ints:
    return [max(column) for column in zip(*lists)]


def descriptor(points: list[Ints]) -> Ints:
    """Mean, variance, radius and norm of a chunk's distinct points (steps of 2^-14), in steps of 2^-16."""
    n, axes = len(points), range(3)
    mean = [round(sum(p[i] for p in points) / n * 4.0) for i in axes]
    variance = [sum(p[i] * p[i] for p in points) / n * 2.0**-28 - mean[i] * mean[i] * 2.0**-32 for i in axes]
    radius = max(sum((4 * p[i] - mean[i]) ** 2 for i in axes) for p in points)
    ends = [round(math.sqrt(radius)), round(math.sqrt(dot(mean, mean)))]
    return mean + [round(max(v, 0.0) * 65536.0) for v in variance] + ends


def moments(offsets: list[Ints]) -> Ints:
    """Of the nearest quarter, half and all points of a group: mean / r, covariance / r^2, r, in 12 bits."""
    found: Ints = []
    for share in (4, 2, 1):
        part = offsets[: max(1, len(offsets) // share)]
        n, total = len(part), [sum(o[i] for o in part) for i in range(3)]
        second = [n * sum(o[i] * o[j] for o in part) - total[i] * total[j] for i, j in PAIRS]
        trace = max(second[0] + second[1] + second[2], 1)
        root = math.sqrt(trace)
        found += [round(t / root * 512.0) for t in total]
        found += [round(s / trace * 2048.0) for s in second] + [round(root / (n * 16384.0) * 2048.0)]
    return [clamp(v, -2047, 2047) for v in found]


# Images


def image_places(spec: ImageSpec, pixels: list[list[Ints]]) -> Places:
    """An image [channel][y][x]: the descriptors of its fixation points, and what encodes one."""
    how = spec.gaze
    first, second, third, last = rows(spec.first), rows(spec.second), rows(spec.third), rows(spec.embedding)
    between = None if spec.between is None else rows(spec.between)
    at = [how.first + how.pitch * i for i in range(how.side)]
    centres = [(x, y) for y in at for x in at]

    def cell(channel: list[Ints], top: int, left: int, side: int) -> int:
        """The sum of side x side pixels; beyond the border they are 0."""
        seen = range(max(top, 0), min(top + side, how.size)), range(max(left, 0), min(left + side, how.size))
        return sum(channel[y][x] for y in seen[0] for x in seen[1])

    def described(x: int, y: int) -> Ints:
        place = [(2 * v - how.size) / how.size for v in (x, y)]
        found = [*place, math.sqrt(place[0] * place[0] + place[1] * place[1])]
        brightest = len(pixels) * 16 * 255
        for width in (how.near, how.wide):
            low = [v - width // 2 for v in (y, x)]
            corners = [(low[0] + i, low[1] + j) for i in range(0, width, 4) for j in range(0, width, 4)]
            cells = [sum(cell(channel, *corner, 4) for channel in pixels) for corner in corners]
            n, total = len(cells), sum(cells)
            found += [
                total / (n * brightest),
                math.sqrt(float(n * dot(cells, cells) - total * total)) / (n * brightest),
            ]
        return [round(v * 65536.0) for v in [*found, max(cells) / brightest]]

    def convolved(planes: list[list[Ints]], these: Rows) -> list[list[list[int]]]:
        """Sums of 3 x 3 cells of every plane, at every position: [y][x][output], not yet rounded."""
        side = len(planes[0]) - 2
        inner = [(i, j) for i in range(3) for j in range(3)]
        seen = [[[p[y + i][x + j] for p in planes for i, j in inner] for x in range(side)] for y in range(side)]
        return [[[dot(weight, part) for weight, _, _ in these] for part in line] for line in seen]

    def opened(planes: list[list[Ints]], these: Rows, side: int) -> list[list[Ints]]:
        """Convolved, the largest of side x side positions, rounded and limited: [output][y][x]."""
        sums = convolved(planes, these)
        kept, near = range(0, len(sums), side), [(i, j) for i in range(side) for j in range(side)]
        return [
            [[_within(max(sums[y + i][x + j][c] for i, j in near), one) for x in kept] for y in kept]
            for c, one in enumerate(these)
        ]

    def features(planes: list[list[Ints]], biases: Ints) -> Ints:
        planes = opened(planes, first, 1 if between is None else 2)
        planes = opened(planes, second, 2)
        if between is not None:
            planes = opened(planes, between, 1)
        best = largest([part for line in convolved(planes, third) for part in line])
        return [_within(value, (weight, bias, shift)) for value, bias, (weight, _, shift) in zip(best, biases, third)]

    def embed(place: int) -> Ints:
        x, y = centres[place]
        told: Ints = []
        for scale, biases in zip(how.scales, spec.scale.tolist()):
            steps = [scale * i - how.grid * scale // 2 for i in range(how.grid)]
            area = scale * scale
            planes = [
                [[(cell(channel, y + i, x + j, scale) + area // 2) // area for j in steps] for i in steps]
                for channel in pixels
            ]
            told += features(planes, biases)
        return mapped(last, [*told, 2 * x - how.size, 2 * y - how.size], -127, 127)

    return [described(*centre) for centre in centres], embed


def _within(total: int, row: tuple[Ints, int, int]) -> int:
    """A sum with its row's bias, rounded, from 0 to 255."""
    return clamp(shifted(total + row[1], row[2]), 0, 255)


class Seen(NamedTuple):
    """What one observation leaves."""

    place: int
    scores: list[float]  # that it was chosen by
    drive: Ints
    membrane: Ints  # of the last layer
    belief: Ints  # steps of 2^-24
    logits: list[list[float]]  # of each target
    margin: int  # steps of 2^-30
    probabilities: Ints
    label: int
    crossed: bool


class Network:
    """A model of clouds or images, with a head of either form; `episode` runs one."""

    def __init__(self, spec: ModelSpec) -> None:
        self.tokens: dict[int, Ints] = {}  # of the groups of the cloud under way, as they are seen
        self.spec = spec
        if isinstance(spec.scene, CloudSpec):
            self._cloud_maps(spec.scene)
        self.gates = rows(spec.mixer.gates)
        self.table = [gate(step) for step in range(-128, 128)]
        self.readout = rows(spec.task.readout) if isinstance(spec.task, ClassifySpec) else []

    def _cloud_maps(self, scene: CloudSpec) -> None:
        self.edge_in, self.edge_out = rows(scene.edge_in), rows(scene.edge_out)
        self.token_in, self.geometry, self.token_out = rows(scene.token_in), rows(scene.geometry), rows(scene.token_out)
        self.chunk = None if scene.chunk is None else rows(scene.chunk)

    def cloud_places(self, cloud: Chunks) -> Places:
        points, members = cloud.points[0].tolist(), cloud.members[0].tolist()
        homes = list(zip(cloud.first[0].tolist(), cloud.second[0].tolist()))
        groups = [[g for g, home in enumerate(homes) if m in home] for m in range(cloud.n_chunks)]
        distinct = [{p for g in chunk for p in members[g]} for chunk in groups]
        tokens = self.tokens = {}

        def embed(place: int) -> Ints:
            for g in groups[place]:
                if g not in tokens:
                    tokens[g] = self.token([points[p] for p in members[g]])
            return self.embedding([tokens[g] for g in groups[place]])

        return [descriptor([points[p] for p in chosen]) for chosen in distinct], embed

    def episode(self, scene: Chunks | Images, tau: float | None = None, most: int | None = None) -> Iterator[Seen]:
        """One scene (a batch of length 1); stops where the margin exceeds tau, or after the looks that are allowed."""
        if isinstance(self.spec.scene, ImageSpec) and isinstance(scene, Images):
            described, embed = image_places(self.spec.scene, scene.pixels[0].tolist())
        else:
            described, embed = self.cloud_places(cast(Chunks, scene))
        carry = [0] * self.spec.mixer.width
        head = self.spec.head
        observe = OBSERVE[head.form]
        held, fired = ([[0] * layer.n_neurons for layer in head.layers] for _ in range(2))
        believed = self.belief(held[-1])
        visited: set[int] = set()
        told = self.told(scene)
        for t in range(1, (most or self.spec.budget) + 1):
            scores = self.scores(t, believed, described)
            rivals = [m for m in range(len(scores)) if m not in visited or not self.spec.policy.mask]
            place = max(rivals, key=lambda m: scores[m])  # the first of equals
            visited.add(place)
            embedding = embed(place)
            drive, carry = self.mix(carry, embedding)
            held, fired, read = observe(head, held, fired, drive)
            believed = self.belief(read)
            logits, margin, probabilities, label = told(place, embedding, believed)
            crossed = tau is not None and margin / 2.0**30 > tau
            yield Seen(place, scores, drive, read, believed, logits, margin, probabilities, label, crossed)
            if crossed:
                return

    def told(self, scene: Chunks | Images) -> Callable[[int, Ints, Ints], Told]:
        """What is answered about a scene, after a look at a place, from its embedding and the belief."""
        if self.spec.task.kind == "parts":
            from asp_neuro.model.part_reference import PartScene  # which is made of what stands here

            return PartScene(self.spec.task, scene, self.tokens).look  # type: ignore[arg-type]

        def classify(place: int, embedding: Ints, believed: Ints) -> Told:
            logits = real(self.readout, believed, 24)
            return [logits], *softmax(logits), logits.index(max(logits))

        return classify

    def token(self, near: list[Ints]) -> Ints:
        """The points of a group, centre first -> its token."""
        centre = [shifted(v, 2) for v in near[0]]
        offsets = [[a - b for a, b in zip(point, near[0])] for point in near]
        hidden = [mapped(self.edge_in, offset + centre, 0, 255) for offset in offsets]
        grouped = largest([mapped(self.edge_out, h, 0, 255) for h in hidden])
        where = centre + moments(offsets) if len(self.geometry[0][0]) > 3 else centre
        token = []
        for (weight, bias, shift), (told, _, told_shift) in zip(self.token_in, self.geometry):
            total = dot(weight, grouped) + bias + shifted(dot(told, where), told_shift)
            token.append(clamp(shifted(total, shift), 0, 255))
        return mapped(self.token_out, token, *((-127, 127) if self.chunk is None else (0, 255)))

    def embedding(self, tokens: list[Ints]) -> Ints:
        pooled = largest(tokens)
        return pooled if self.chunk is None else mapped(self.chunk, pooled, 0, 255)

    def mix(self, carry: Ints, embedding: Ints) -> tuple[Ints, Ints]:
        """The drive, and the carry after."""
        spec, d = self.spec.mixer, len(carry)
        normed = [clamp(round(v), -127, 127) for v in layer_norm(embedding, spec.embedding, 0)]
        out = mapped(self.gates[: 2 * d], normed, -127, 127) + mapped(self.gates[2 * d :], normed, -2047, 2047)
        a, b, v, c, skip = (out[i * d : (i + 1) * d] for i in range(5))
        carry = [
            shifted(self.table[a[i] + 128] * carry[i], 12) + shifted(self.table[b[i] + 128] * v[i], 8) for i in range(d)
        ]
        mixed = [c[i] * carry[i] + (skip[i] << spec.skip_shift) for i in range(d)]
        excess = max(max(abs(m) for m in mixed).bit_length() - (26 - d.bit_length()), 0)
        normed_drive = layer_norm([shifted(m, excess) for m in mixed], spec.drive, 0)
        return [clamp(round(v), -32767, 32767) for v in normed_drive], carry

    def belief(self, membrane: Ints) -> Ints:
        """In steps of 2^-24; a membrane is brought to float units, and to a grid, by one division."""
        units = self.spec.head.units.tolist()
        bits = min(20, 31 - len(units).bit_length() - math.frexp(2.0**23 / min(units))[1])
        steps = [round(u * 2.0**bits / unit) for u, unit in zip(membrane, units)]
        return [round(v * 2.0**24) for v in layer_norm(steps, self.spec.belief, bits)]

    def scores(self, t: int, belief: Ints, described: list[Ints]) -> list[float]:
        """Of every place; the sum of the belief's and the descriptor's part is rounded once."""
        policy = self.spec.policy
        up = [exponent + 12 for exponent in policy.exponents.tolist()]
        scaled = [[g << e for g, e in zip(one, up)] for one in described]  # steps of 2^-28
        if t == 1 and policy.first is not None:
            ends = [min(column) for column in zip(*scaled)] + largest(scaled)
            parts = [real(rows(policy.first.outline), own + ends, 28) for own in scaled]
            score = policy.first.score
        else:
            parts = [real(rows(policy.from_descriptor), own, 28) for own in scaled]
            if policy.scorer == "belief":
                parts = [[0.0] * len(part) for part in parts]
            if policy.scorer in ("bilinear", "belief"):
                told = real(rows(policy.from_belief), belief, 24)
                parts = [[a + b for a, b in zip(told, part)] for part in parts]
            score = policy.score
        return [real(rows(score), [tanh(z) for z in part], 30)[0] for part in parts]


Spoken = tuple[list[Ints], list[Ints], Ints]  # membranes and spikes of every layer, and what is read


def leaked(membrane: int, leak: int) -> int:
    """leak / 4096 of it, toward zero."""
    product = membrane * leak
    return product >> 12 if product >= 0 else -(-product >> 12)


def observe_soft(head: HeadSpec, held: list[Ints], fired: list[Ints], drive: Ints) -> Spoken:
    """One observation of a ticked head."""
    membranes: list[Ints] = []
    spikes: list[Ints] = []
    for index, layer in enumerate(head.layers):
        z = drive if index == 0 else [sum(column) for column in zip(*spikes)]
        up = layer.state_bits - (12 if index == 0 else 6)
        membrane = []
        for k, weight in enumerate(layer.weight_int.tolist()):
            arriving = max((dot(weight, z) << up) + int(layer.bias_int[k]), 0)
            kept = leaked(held[index][k], int(layer.lambda_int[k])) - int(layer.theta_int[k]) * fired[index][k]
            membrane.append(clamp(kept + arriving, -(2**23), 2**23 - 1))
        membranes.append(membrane)
        spikes.append([int(u > theta) for u, theta in zip(membrane, layer.theta_fire_int.tolist())])
    return membranes, spikes, membranes[-1]


def observe_stock(head: HeadSpec, held: list[Ints], fired: list[Ints], drive: Ints) -> Spoken:
    """One observation of a free-running head: a pulse and its time steps. No membrane wraps: export has proven it."""
    weights = [layer.weight_int.tolist() for layer in head.layers]
    read: Ints = []
    for step in range(head.steps):
        before, spoke, held, fired = held, fired, [], []
        for index, layer in enumerate(head.layers):
            z = spoke[index - 1] if index else [*drive, 32] if step == 0 else []
            events = [(i, message) for i, message in enumerate(z) if message]
            arriving = [sum(weight[i] * message for i, message in events) for weight in weights[index]]
            own = zip(arriving, layer.rho_int.tolist(), before[index], spoke[index])
            up, leak = 6 + layer.weight_exp, int(layer.lambda_int)
            held.append([leaked(u, leak) + ((total - rho * s) << up) for total, rho, u, s in own])
            fired.append([int(u > threshold) for u, threshold in zip(held[-1], layer.threshold_int.tolist())])
        read = held[-1] if step == head.read_after else read
    return held, fired, read


OBSERVE = {"soft": observe_soft, "stock": observe_stock}
