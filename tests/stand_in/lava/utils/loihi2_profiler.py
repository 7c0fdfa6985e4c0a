"""Probes with made-up numbers, and one that tells the board."""

import os

import numpy as np


class Loihi2Power:
    total_power = np.array([0.5, 0.75])

    def __init__(self, num_steps) -> None:
        self.num_steps = num_steps

    @property
    def vdd_power(self):
        board = [os.environ.get(name) for name in ("SLURM", "BOARD", "PARTITION", "LOIHI_GEN")]
        raise RuntimeError(f"no sensor on {board}")


class Loihi2ExecutionTime:
    avg_time_per_step = 12.5
