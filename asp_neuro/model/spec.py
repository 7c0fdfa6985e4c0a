"""ModelSpec: the deployed model as plain sections, and `Model`, the same ready to run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import Norm, check, n_parameters
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.belief import Belief
from asp_neuro.model.mixer import Mixer, MixerSpec
from asp_neuro.model.policy import Policy, PolicySpec
from asp_neuro.scenes.base import SceneSpec
from asp_neuro.tasks.base import TaskSpec


@dataclass(frozen=True)
class ModelSpec:
    """scene -> mixer -> head -> belief -> policy / task; `budget` is how many places may be looked at."""

    scene: SceneSpec
    mixer: MixerSpec
    head: HeadSpec
    belief: Norm
    policy: PolicySpec
    task: TaskSpec
    budget: int

    def __post_init__(self) -> None:
        check(self.belief, "belief")
        last = ("neurons in the head's last layer", self.head.n_neurons)
        pairs = (
            ("embeddings of the mixer", self.mixer.n_inputs, "of the scene", self.scene.width),
            ("the mixer's drive", self.mixer.width, "inputs of the head", self.head.n_inputs),
            ("the belief", len(self.belief.gain), *last),
            ("beliefs of the policy", self.policy.n_inputs, *last),
            ("beliefs of the task", self.task.n_inputs, *last),
            ("descriptors of the policy", self.policy.n_descriptors, "of the scene", len(self.scene.descriptor_bound)),
        )
        for what, width, other, expected in pairs:
            if width != expected:
                raise ConfigError(f"model: width {width} of {what}, but there are {expected} {other}")
        if isinstance(self.budget, bool) or not self.budget >= 1:
            raise ConfigError(f"model: budget {self.budget}, at least 1 is needed")
        if self.policy.mask and self.budget > self.scene.n_places:
            raise ConfigError(f"model: budget {self.budget}, but there are {self.scene.n_places} places to look at")

    @property
    def classes(self) -> tuple[str, ...]:
        return self.task.classes

    @property
    def n_host_parameters(self) -> int:
        """All but the head's."""
        return sum(n_parameters(part) for part in (self.scene, self.mixer, self.belief, self.policy, self.task))

    def drive_bound(self) -> np.ndarray:
        """[D] proven largest |drive_int|."""
        return self.mixer.drive_bound(self.head.neurons.drive_bits)


class Model:
    """The arithmetic of a model, ready to run; building it proves that no sum can round."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.budget = spec.budget
        self.encoder = spec.scene.encoder()
        self.mixer = Mixer(spec.mixer, spec.head.neurons.drive_bits)
        self.belief = Belief(spec.belief, spec.head.units, spec.head.largest)
        self.policy = Policy(spec.policy, self.belief.bound, spec.scene.descriptor_bound)
        self.task = spec.task.task(self.belief.bound)
