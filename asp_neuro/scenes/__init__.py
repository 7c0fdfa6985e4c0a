"""What is looked at: scenes, their places, and how a place is encoded. `KINDS`: those that a model can have."""

from asp_neuro.scenes.base import SceneSpec
from asp_neuro.scenes.cloud_encoder import CloudSpec
from asp_neuro.scenes.image_encoder import ImageSpec

KINDS: dict[str, type[SceneSpec]] = {CloudSpec.kind: CloudSpec, ImageSpec.kind: ImageSpec}
