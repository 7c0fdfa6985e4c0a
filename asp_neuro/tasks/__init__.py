"""What is asked: tasks. `KINDS` names those that a model can have."""

from asp_neuro.tasks.base import TaskSpec
from asp_neuro.tasks.classify import ClassifySpec

KINDS: dict[str, type[TaskSpec]] = {ClassifySpec.kind: ClassifySpec}
