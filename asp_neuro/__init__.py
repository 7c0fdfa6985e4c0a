"""asp-neuro: Active Spiking Perception, from training to neuromorphic hardware."""

__version__ = "0.1.0.dev0"
