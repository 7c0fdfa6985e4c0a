"""Embedding to drive through a carried state: a token-local selective scan (paper Thm. S16).

    h <- A(e) . h + B(e) . V(e)          x = LayerNorm(C(e) . h + skip(e))

A, B, C, V and skip depend on the current embedding alone, so one step from the carried h equals running the whole
prefix again. The gates A and B are (1 + z / sqrt(1 + z^2)) / 2 instead of a logistic curve: made of operations that
IEEE 754 rounds exactly, so the deployed host gives the same bits on every machine. LayerNorm bounds the drive:
|x_j| <= |gain_j| sqrt(D - 1) + |bias_j|.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def gate(z: Tensor) -> Tensor:
    """A sigmoid between 0 and 1 without an exponential."""
    return 0.5 + 0.5 * z * torch.rsqrt(1.0 + z * z)


class Mixer(nn.Module):
    """`gates` is everything that depends on the embedding only; `step` advances the carry."""

    def __init__(self, n_inputs: int, width: int) -> None:
        super().__init__()
        self.embedding_norm = nn.LayerNorm(n_inputs)
        self.project = nn.Linear(n_inputs, 5 * width)
        self.drive_norm = nn.LayerNorm(width)
        self.width = width
        with torch.no_grad():
            self.project.bias[:width].fill_(1.2)  # A starts near 0.88: remember

    def gates(self, embedding: Tensor) -> Tensor:
        """[..., D] -> [..., 4 D]: keep A, input B.V, output C, skip."""
        a, b, v, c, skip = self.project(self.embedding_norm(embedding)).split(self.width, dim=-1)
        return torch.cat([gate(a), gate(b) * v, c, skip], dim=-1)

    def step(self, carry: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
        """Carry [..., D] and gates [..., 4 D] -> drive [..., D] and the carry after."""
        keep, write, read, skip = gates.split(self.width, dim=-1)
        carry = torch.addcmul(write, keep, carry)
        return self.drive_norm(torch.addcmul(skip, read, carry)), carry
