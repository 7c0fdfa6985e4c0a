"""The deployed host: encoder, mixer, belief, policy and read-out in numpy float64, frozen at export.

Answers must not depend on the batch, the threads or the BLAS library, so everything up to the drive is exact:

- coordinates are whole steps of 2^-14, activations of 2^-12 (|a| < 2^6), weights of 2^-20. A product sums fewer than
  2^53 of the smallest unit (checked when a host is built), so float64 adds it without any rounding, in any order;
- what the mixer reads from its carry has no bound: the carry grows with every observation, in trained models to
  hundreds. A row that does not fit takes steps of its own, coarser by a power of two (`row_steps`);
- LayerNorm takes D sum(x^2) - (sum x)^2, again exact; what remains (divide, square root, the gates) is done element by
  element and rounded the same everywhere by IEEE 754;
- the drive is rounded to 2^-6 for the chip.

Behind the head, belief, scores and logits are ordinary float64: their last bits may differ between batch sizes. Scores
are rounded to 2^-30 before the argmax, and exit thresholds lie between recorded margins: no decision hangs on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.heads.soft.membrane import DRIVE_BITS
from asp_neuro.heads.spec import DRIVE_MAX
from asp_neuro.scenes.cloud import GRID, MOMENT_PAIRS, MOMENT_PARTS, N_DESCRIPTOR, N_MOMENTS, N_OUTLINE

STEP_BITS, LIMIT_BITS = 12, 18
STEP = 2.0**STEP_BITS  # activation steps per unit
LIMIT = 2.0**LIMIT_BITS - 1  # largest activation, in steps
WEIGHT_STEP = 2.0**20  # weight steps per unit
SCORE_STEP = 2.0**30
EPSILON = 1e-5  # of every LayerNorm
SCORERS = ("bilinear", "geometry", "belief", "additive")
PARTS = {  # what a host has whole or not at all
    "a chunk layer": ("embedding_in_weight", "embedding_in_bias"),
    "a first look": ("policy_first_weight", "policy_first_bias", "policy_first_score"),
}


@dataclass(frozen=True)
class HostSpec:
    """The trained host as plain float32 arrays, normalisation folded.

    D width, w token width, H neurons, d policy width, C classes.
    """

    edge_in_weight: np.ndarray  # [e1, 6] on (x_j - x_i, x_i)
    edge_in_bias: np.ndarray
    edge_out_weight: np.ndarray  # [e2, e1]
    edge_out_bias: np.ndarray
    token_in_weight: np.ndarray  # [w, e2 + 3], or [w, e2 + 3 + N_MOMENTS]
    token_in_bias: np.ndarray
    token_out_weight: np.ndarray  # [w, w]
    token_out_bias: np.ndarray
    embedding_gain: np.ndarray  # [w], or [D] with a chunk layer
    embedding_bias: np.ndarray
    gates_weight: np.ndarray  # [5 D, w or D]: A, B, V, C, skip
    gates_bias: np.ndarray
    drive_gain: np.ndarray  # [D]
    drive_bias: np.ndarray
    belief_gain: np.ndarray  # [H]
    belief_bias: np.ndarray
    readout_weight: np.ndarray  # [C, H]
    readout_bias: np.ndarray
    policy_belief: np.ndarray  # [d, H]
    policy_descriptor: np.ndarray  # [d, 8]
    policy_bias: np.ndarray  # [d], from the standardised descriptors
    policy_score: np.ndarray  # [d]
    embedding_in_weight: np.ndarray | None = None  # [D, w], on a chunk's pooled tokens; None: no such layer
    embedding_in_bias: np.ndarray | None = None
    policy_first_weight: np.ndarray | None = None  # [f, 24]: own, lowest, highest; None: no scorer for the first look
    policy_first_bias: np.ndarray | None = None  # [f]
    policy_first_score: np.ndarray | None = None  # [f]
    scorer: str = "bilinear"
    mask: bool = True

    def __post_init__(self) -> None:
        for part, names in PARTS.items():
            if 0 < sum(getattr(self, name) is None for name in names) < len(names):
                raise ConfigError(f"host: {part} needs all of {', '.join(names)}")
        for name, expected in self._shapes().items():
            array = getattr(self, name)
            if array.dtype != np.float32 or array.shape != expected:
                raise ConfigError(
                    f"host: {name} is {array.dtype} {list(array.shape)}, expected float32 {list(expected)}"
                )
            if not np.isfinite(array).all():
                raise ConfigError(f"host: {name} holds values that are not finite")
        if self.scorer not in SCORERS:
            raise ConfigError(f"host: unknown scorer '{self.scorer}'")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        first, second, token = len(self.edge_in_bias), len(self.edge_out_bias), len(self.token_out_bias)
        width, neurons = len(self.drive_gain), len(self.belief_gain)
        layered = self.embedding_in_weight is not None
        embedding = width if layered else token
        policy, classes = len(self.policy_score), len(self.readout_bias)
        return {
            "edge_in_weight": (first, 6),
            "edge_in_bias": (first,),
            "edge_out_weight": (second, first),
            "edge_out_bias": (second,),
            "token_in_weight": (token, second + 3 + (N_MOMENTS if self.moments else 0)),
            "token_in_bias": (token,),
            "token_out_weight": (token, token),
            "token_out_bias": (token,),
            "embedding_gain": (embedding,),
            "embedding_bias": (embedding,),
            "gates_weight": (5 * width, embedding),
            "gates_bias": (5 * width,),
            "drive_gain": (width,),
            "drive_bias": (width,),
            "belief_gain": (neurons,),
            "belief_bias": (neurons,),
            "readout_weight": (classes, neurons),
            "readout_bias": (classes,),
            "policy_belief": (policy, neurons),
            "policy_descriptor": (policy, N_DESCRIPTOR),
            "policy_bias": (policy,),
            "policy_score": (policy,),
            **({"embedding_in_weight": (width, token), "embedding_in_bias": (width,)} if layered else {}),
            **self._first_shapes(),
        }

    def _first_shapes(self) -> dict[str, tuple[int, ...]]:
        if self.policy_first_score is None:
            return {}
        units = len(self.policy_first_score)
        return {
            "policy_first_weight": (units, N_OUTLINE),
            "policy_first_bias": (units,),
            "policy_first_score": (units,),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self._shapes()}

    @property
    def width(self) -> int:
        return len(self.drive_gain)

    @property
    def moments(self) -> bool:
        """Whether tokens see mean and covariance of their group's points."""
        return self.token_in_weight.ndim == 2 and self.token_in_weight.shape[1] > len(self.edge_out_bias) + 3

    @property
    def n_classes(self) -> int:
        return len(self.readout_bias)

    def drive_bound(self) -> np.ndarray:
        """[D] proven largest |drive_int|: LayerNorm bounds |x_j| by |gain_j| sqrt(D - 1) + |bias_j|."""
        bound = np.abs(self.drive_gain.astype(np.float64)) * np.sqrt(self.width - 1.0) + np.abs(self.drive_bias)
        return np.minimum(np.ceil(bound * 2.0**DRIVE_BITS), DRIVE_MAX)


class Linear:
    """An exact affine map: inputs are integers (in `units` of 1 each), outputs in activation steps, not yet rounded."""

    def __init__(
        self, name: str, weight: np.ndarray, bias: np.ndarray, units: np.ndarray | float, largest: float
    ) -> None:
        scaled = weight.astype(np.float64) * (np.asarray(units) * STEP)
        self.weight = np.ascontiguousarray((np.rint(scaled * WEIGHT_STEP) / WEIGHT_STEP).T)  # [n, out]
        self.bias = np.rint(bias.astype(np.float64) * STEP * WEIGHT_STEP) / WEIGHT_STEP
        reach = (np.abs(self.weight).sum(axis=0) * largest + np.abs(self.bias)).max() * WEIGHT_STEP
        if reach >= 2.0**53:
            raise ConfigError(f"host: {name}: sums can reach 2^{np.log2(reach):.1f} steps, exact float64 ends at 2^53")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight


def to_steps(x: np.ndarray, low: float = -LIMIT) -> np.ndarray:
    """Round to whole activation steps and saturate, in place."""
    np.rint(x, out=x)
    return np.clip(x, low, LIMIT, out=x)


def row_steps(x: np.ndarray) -> np.ndarray:
    """Values [n, D] -> [n, 1] steps per unit with which each row fits: STEP, or a smaller power of two."""
    _, exponent = np.frexp(np.abs(x).max(axis=1, keepdims=True))  # largest < 2^exponent
    return np.ldexp(1.0, np.minimum(LIMIT_BITS - exponent, STEP_BITS))


def normalise_steps(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, steps: np.ndarray | float = STEP) -> np.ndarray:
    """LayerNorm of whole steps [..., D], exact up to the final division; returns units, not steps."""
    width = x.shape[-1]
    total = x.sum(axis=-1, keepdims=True)
    spread = width * (x * x).sum(axis=-1, keepdims=True) - total * total  # D^2 times the variance, in steps^2
    return (width * x - total) / np.sqrt(spread + EPSILON * (width * steps) ** 2) * gain + bias


def rounded(scores: np.ndarray) -> np.ndarray:
    """To 2^-30: the same argmax for every batch."""
    return np.rint(scores * SCORE_STEP) / SCORE_STEP


def gate(z: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * (z / np.sqrt(1.0 + z * z))


def moments(offset: np.ndarray) -> np.ndarray:
    """Offsets [n, k, 3] of a group's points from its centre, whole grid steps -> [n, 30] in steps; `encoder.moments`.

    The sums are whole numbers below 2^53; what remains are single divisions and a square root.
    """
    near = [max(1, offset.shape[1] // share) for share in MOMENT_PARTS]
    terms = np.concatenate([offset, offset[..., MOMENT_PAIRS[0]] * offset[..., MOMENT_PAIRS[1]]], axis=2)
    sums = np.stack([terms[:, :n].sum(axis=1) for n in near], axis=1)  # [n, 3, 9]
    count = np.array(near, dtype=np.float64)[:, None]
    total = sums[..., :3]
    second = count * sums[..., 3:] - total[..., MOMENT_PAIRS[0]] * total[..., MOMENT_PAIRS[1]]
    trace = np.maximum(second[..., :3].sum(axis=2, keepdims=True), 1.0)
    root = np.sqrt(trace)
    found = np.concatenate([total / root, second / trace, root / (count * GRID)], axis=2)
    return to_steps(found.reshape(len(offset), N_MOMENTS) * STEP)


class Host:
    """The host's arithmetic, ready to run."""

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        coordinate = np.full(6, 1.0 / GRID)
        self.edge_in = Linear("edge_in", spec.edge_in_weight, spec.edge_in_bias, coordinate, 2.0 * GRID)
        self.edge_out = Linear("edge_out", spec.edge_out_weight, spec.edge_out_bias, 1.0 / STEP, LIMIT)
        units = np.full(spec.token_in_weight.shape[1], 1.0 / STEP)
        centre = len(spec.edge_out_bias)
        units[centre : centre + 3] = 1.0 / GRID
        self.token_in = Linear("token_in", spec.token_in_weight, spec.token_in_bias, units, LIMIT)
        self.token_out = Linear("token_out", spec.token_out_weight, spec.token_out_bias, 1.0 / STEP, LIMIT)
        self.embedding_in = None
        weight, bias = spec.embedding_in_weight, spec.embedding_in_bias
        if weight is not None and bias is not None:
            self.embedding_in = Linear("embedding_in", weight, bias, 1.0 / STEP, LIMIT)
        self.project = Linear("gates", spec.gates_weight, spec.gates_bias, 1.0 / STEP, LIMIT)
        self.wide = {name: array.astype(np.float64) for name, array in spec.arrays().items()}

    def tokens(self, groups: np.ndarray) -> np.ndarray:
        """Points of n groups [n, K, 3], whole grid steps, centre first -> tokens [n, w] in steps (not yet pooled)."""
        n, k = groups.shape[:2]
        edges = np.empty((n, k, 6))
        edges[..., 3:] = groups[:, :1]
        np.subtract(groups, groups[:, :1], out=edges[..., :3])
        hidden = self.edge_in(edges.reshape(n * k, 6))
        hidden += self.edge_in.bias
        grouped = self.edge_out(to_steps(hidden, low=0.0)).reshape(n, k, -1).max(axis=1)
        grouped += self.edge_out.bias
        parts = [to_steps(grouped, low=0.0), groups[:, 0]]
        if self.spec.moments:
            parts.append(moments(edges[..., :3]))
        token = np.concatenate(parts, axis=1)
        hidden = self.token_in(token)
        hidden += self.token_in.bias
        return self.token_out(to_steps(hidden, low=0.0))

    def gates(self, pooled: np.ndarray) -> np.ndarray:
        """Largest tokens of n chunks [n, w] -> gates [n, 4 D]: keep, write, read, skip."""
        embedding = to_steps(pooled + self.token_out.bias, low=-LIMIT if self.embedding_in is None else 0.0)
        if self.embedding_in is not None:
            embedding = to_steps(self.embedding_in(embedding) + self.embedding_in.bias, low=0.0)
        normed = normalise_steps(embedding, self.wide["embedding_gain"], self.wide["embedding_bias"]) * STEP
        out = (self.project(to_steps(normed)) + self.project.bias) / STEP
        keep, write, value, read, skip = np.split(out, 5, axis=1)
        return np.concatenate([gate(keep), gate(write) * value, read, skip], axis=1)

    def mix(self, carry: np.ndarray, gates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One step from the carried state [n, D]: drive_int [n, D] (whole numbers) and the carry after."""
        keep, write, read, skip = np.split(gates, 4, axis=1)
        carry = keep * carry + write
        return self.drive(read * carry + skip), carry

    def drive(self, mixed: np.ndarray) -> np.ndarray:
        """What the mixer reads [n, D] in units -> drive_int [n, D], whole numbers."""
        steps = row_steps(mixed)
        normed = normalise_steps(to_steps(mixed * steps), self.wide["drive_gain"], self.wide["drive_bias"], steps)
        return np.clip(np.rint(normed * 2.0**DRIVE_BITS), -DRIVE_MAX, DRIVE_MAX)

    def belief(self, membrane: np.ndarray) -> np.ndarray:
        """Last layer's membranes [n, H] in float units -> beliefs [n, H]."""
        centred = membrane - membrane.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + EPSILON)
        return centred / deviation * self.wide["belief_gain"] + self.wide["belief_bias"]

    def geometry(self, descriptors: np.ndarray) -> np.ndarray:
        """Descriptors [n, M, 8] -> W_g g [n, M, d], once per cloud."""
        if self.spec.scorer == "belief":
            return np.zeros((*descriptors.shape[:2], len(self.spec.policy_score)))
        return descriptors @ self.wide["policy_descriptor"].T + self.wide["policy_bias"]

    def first_scores(self, descriptors: np.ndarray) -> np.ndarray | None:
        """Descriptors [n, M, 8] -> scores [n, M] of the first look, rounded, if it has a scorer of its own."""
        if self.spec.policy_first_score is None:
            return None
        weight = self.wide["policy_first_weight"].T
        ends = np.concatenate([descriptors.min(axis=1), descriptors.max(axis=1)], axis=1)
        outline = ends @ weight[N_DESCRIPTOR:] + self.wide["policy_first_bias"]
        return rounded(
            np.tanh(descriptors @ weight[:N_DESCRIPTOR] + outline[:, None]) @ self.wide["policy_first_score"]
        )

    def scores(self, belief: np.ndarray, geometry: np.ndarray) -> np.ndarray:
        """Belief [n, H] and geometry [n, M, d] -> scores [n, M], rounded to 2^-30."""
        score = self.wide["policy_score"]
        if self.spec.scorer in ("geometry", "additive"):  # additive: the belief's part is the same for every chunk
            raw = np.tanh(geometry) @ score
        else:
            raw = np.tanh((belief @ self.wide["policy_belief"].T)[:, None, :] + geometry) @ score
        return rounded(raw)

    def logits(self, belief: np.ndarray) -> np.ndarray:
        """Beliefs [n, H] -> logits [n, C]."""
        return belief @ self.wide["readout_weight"].T + self.wide["readout_bias"]
