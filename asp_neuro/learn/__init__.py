"""Training (torch): recipes, the trained twins of the deployed parts, losses, export."""

from asp_neuro.libraries import demand

demand("torch", "asp_neuro.learn (training, export, checkpoints)")
