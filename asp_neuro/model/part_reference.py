"""Parts in whole numbers, one cloud at a time: the lines of docs/integers.md, "Parts", as `reference` has the rest.

What a group says (its token through A and N) is computed once; a context is made only for groups that a point hears.
"""

from __future__ import annotations

import math

from asp_neuro.model.reference import Ints, Rows, Told, clamp, dot, largest, mapped, real, rows, shifted, softmax
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.tasks.parts import PartsSpec

NEVER = -1e6  # logit of what is out of the question


def behind(these: Rows, x: Ints) -> list[float]:
    """A map behind the head of whole numbers: biases are in steps of 2^-12."""
    return [math.ldexp((dot(weight, x) << 12) + bias, -12 - shift) for weight, bias, shift in these]


def square(a: Ints, b: Ints) -> int:
    return sum((x - y) ** 2 for x, y in zip(a, b))


class PartScene:
    """A cloud whose points are asked for, look by look."""

    def __init__(self, spec: PartsSpec, cloud: Chunks, tokens: dict[int, Ints]) -> None:
        self.spec, self.tokens = spec, tokens
        self.mix, self.context = rows(spec.groups.mix), rows(spec.groups.context)
        self.position, self.hidden = rows(spec.points.position), rows(spec.points.hidden)
        self.offset, self.belief, self.category = rows(spec.points.offset), rows(spec.belief), rows(spec.category)
        points, members = cloud.points[0].tolist(), cloud.members[0].tolist()
        self.centres: list[Ints] = [points[member[0]] for member in members]
        self.homes = list(zip(cloud.first[0].tolist(), cloud.second[0].tolist()))
        self.given = int(cloud.categories[0])
        every = range(len(self.centres))
        self.near = [
            sorted(every, key=lambda j: (j != g, square(self.centres[g], self.centres[j]), j))[: spec.n_near]
            for g in every
        ]
        self.chunks: dict[int, Ints] = {}  # embeddings of those looked at
        self.said: dict[int, tuple[Ints, Ints]] = {}  # A t and N t of a group
        self.contexts: dict[int, Ints] = {}  # of this look

    def look(self, place: int, embedding: Ints, believed: Ints) -> Told:
        """After one more look: the points that the exit is decided on, then the category."""
        self.chunks[place], self.contexts = embedding, {}
        n_classes, told = len(self.spec.classes), real(self.belief, believed, 24)
        logits = [
            self.answered(centre, told, self.given) + [NEVER] * n_classes for centre in self.centres[: self.spec.asked]
        ]
        own = real(self.category, believed, 24)
        if self.given >= 0:
            own = [0.0 if c == self.given else NEVER for c in range(n_classes)]
        logits.append([NEVER] * self.spec.n_parts + own)
        margins = [softmax(row)[0] for row in logits]
        rank = int(self.spec.quantile * self.spec.asked)
        margin = min(sorted(margins[:-1])[rank], margins[-1])
        return logits, margin, softmax(own)[1] if n_classes > 1 else [2**30], own.index(max(own))

    def answered(self, query: Ints, told: list[float], category: int) -> list[float]:
        """Logits of one point in grid steps; `told` is what the belief says, a negative category is not known."""
        y = mapped(self.hidden, self.heard(query, category), 0, 255)
        logits = [a + b for a, b in zip(behind(self.offset, y), told)]
        first = sum(self.spec.count[: max(category, 0)])
        last = self.spec.n_parts if category < 0 else first + self.spec.count[category]
        return [z if first <= part < last else NEVER for part, z in enumerate(logits)]

    def heard(self, query: Ints, category: int) -> Ints:
        """The three nearest seen contexts, weighted, and where the point lies: 0 .. 255 each."""
        far = [square(query, centre) for centre in self.centres]
        seen = sorted((far[g], g) for g, home in enumerate(self.homes) if any(m in self.chunks for m in home))[:3]
        pull = [1.0 / (d + 26843.5456) for d, _ in seen] + [0.0] * (3 - len(seen))
        total = pull[0] + pull[1] + pull[2]
        rest = [round(p / total * 4096.0) for p in pull[1:]]
        weights = [4096 - sum(rest), *rest]
        nearest, root = seen[0][1], math.sqrt(seen[0][0])
        apart = [clamp(a - b, -6552, 6552) for a, b in zip(query, self.centres[nearest])]
        known = any(m in self.chunks for m in self.homes[far.index(min(far))])
        features = [shifted(v, 2) for v in [*query, *apart]]
        features += [round(root / (root + 3276.8) * 2048.0), 2048 if known else 0]
        table = self.spec.points.category[category].tolist()
        contexts = [self.of_group(g, category) for _, g in seen]
        x = []
        for i, (weight, _, shift) in enumerate(self.position):
            said = shifted(sum(w * c[i] for w, c in zip(weights, contexts)), 12)
            x.append(clamp(shifted(said + shifted(dot(weight, features) + table[i], shift), 3), 0, 255))
        return x

    def of_group(self, group: int, category: int) -> Ints:
        """The context of a seen group."""
        if group not in self.contexts:
            first, second = self.homes[group]
            own = self.chunks[first if first in self.chunks else second]
            whole = largest([*self.chunks.values(), [0] * len(own)])
            heard = [self.speaks(j)[1] for j in self.near[group] if j in self.tokens]
            parts, token = zip(self.speaks(group)[0], largest(heard)), len(self.tokens[group])
            table = self.spec.groups.category[category].tolist()
            h = []
            for (itself, around), (weight, _, shift), more in zip(parts, self.mix, table):
                total = itself + around + dot(weight[2 * token :], own + whole) + more
                h.append(clamp(shifted(total, shift), 0, 255))
            self.contexts[group] = mapped(self.context, h, -2047, 2047)
        return self.contexts[group]

    def speaks(self, group: int) -> tuple[Ints, Ints]:
        """What a group says of itself, and to its neighbours."""
        if group not in self.said:
            token = self.tokens[group]
            n = len(token)
            both = [(dot(weight[:n], token), dot(weight[n : 2 * n], token)) for weight, _, _ in self.mix]
            self.said[group] = [a for a, _ in both], [b for _, b in both]
        return self.said[group]
