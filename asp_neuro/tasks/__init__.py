"""What is asked: tasks. `KINDS` names those that a model can have."""

from asp_neuro.tasks.base import TaskSpec
from asp_neuro.tasks.classify import ClassifySpec
from asp_neuro.tasks.parts import PartsSpec

KINDS: dict[str, type[TaskSpec]] = {ClassifySpec.kind: ClassifySpec, PartsSpec.kind: PartsSpec}
