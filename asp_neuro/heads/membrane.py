"""What every form of neuron has in common on the integer grid: the leak, the firing, and how far rounding can lead.

A membrane is an integer of 24 bits that leaks by lambda_int / 4096 at each leak, truncated toward zero, and fires
strictly above its threshold. Against the same network in exact arithmetic, with the same spikes and from rest, the
truncation of k leaks moves a membrane by at most

    E_k = (1 - q) sum_{i < k} lambda^i,        q = gcd(lambda_int, 4096) / 4096

because the lost fraction of each leak is a multiple of q below 1 and then leaks itself (Theorem S17 on our grid). For
0 < lambda < 1 and k > 0, E_k is an odd number over a power of two, never whole. The comparison with the
threshold stands here and nowhere else.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, inf, nextafter
from typing import Any

import numpy as np

WEIGHT_BITS = 6  # weights: integers at scale 2^6
WEIGHT_MIN, WEIGHT_MAX = -256, 254  # even
LEAK_BITS = 12  # leaks: of 4096
LEAK_MAX = 2**LEAK_BITS - 1
ONE = 1 << LEAK_BITS


def fires(membrane: Any, threshold: Any) -> Any:
    """Whether each neuron fires: strictly above its firing threshold."""
    return membrane > threshold


def leak_int(membrane: np.ndarray, lambda_int: np.ndarray | int) -> np.ndarray:
    """lambda_int / 4096 of an int64 membrane, rounded toward zero (a bare shift would round down)."""
    product = membrane * lambda_int
    return np.sign(product) * (np.abs(product) >> LEAK_BITS)


@lru_cache(maxsize=65536)
def drift(leak: int, n_leaks: int) -> tuple[int, int]:
    """E_k after k leaks as numerator and denominator: (4096 - gcd) sum_i leak^i 4096^(k-1-i) over 4096^k."""
    if leak == 0 or n_leaks < 1:
        return 0, 1
    total = sum(leak**i * ONE ** (n_leaks - 1 - i) for i in range(n_leaks))
    return (ONE - gcd(leak, ONE)) * total, ONE**n_leaks


def whole_drift(leak: int, n_leaks: int) -> int:
    """E_k rounded up to a whole number."""
    numerator, denominator = drift(leak, n_leaks)
    return -(-numerator // denominator)


def float_drift(leak: int, n_leaks: int) -> float:
    """E_k rounded up to a float64."""
    numerator, denominator = drift(leak, n_leaks)
    return nextafter(numerator / denominator, inf) if numerator else 0.0
