"""Probes with made-up numbers."""

import numpy as np


class Loihi2Power:
    total_power = np.array([0.5, 0.75])

    def __init__(self, num_steps) -> None:
        self.num_steps = num_steps

    @property
    def vdd_power(self):
        raise RuntimeError("no sensor")


class Loihi2ExecutionTime:
    avg_time_per_step = 12.5
