"""Ranges from a histogram: percentile, least squared error, least divergence.

In: counts of the values in equal bins from -limit to limit. Out: the range (low, high) that a
:class:`~fxlite.passes.quantize.schemes.scheme.Scheme` is to cover, zero included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.passes.quantize.schemes.parameters import parameters
from fxlite.passes.quantize.schemes.scheme import Scheme

BINS = 4096  # half of them on each side of zero
_STEPS = 64  # ranges tried, from all of it down to 1/64


def percentile_range(
    counts: Any, limit: float, low: float, high: float, percentile: float
) -> tuple[float, float]:
    """The range that leaves (100 - ``percentile``) % of the values outside, half on each side where
    there are both signs; low and high are the exact extremes (Wu et al., "Integer quantization for
    deep learning inference", 2020)."""
    outside = counts.sum() * (1 - percentile / 100)
    two_sided = low < 0 < high
    share = outside / 2 if two_sided else outside
    edges = np.linspace(-limit, limit, BINS + 1)
    below = np.cumsum(counts)
    if low < 0:
        low = max(low, float(edges[np.searchsorted(below, share, side="right")]))
    if high > 0:
        above = np.cumsum(counts[::-1])
        position = int(np.searchsorted(above, share, side="right"))
        high = min(high, float(edges[BINS - position]))
    return min(low, 0.0), max(high, 0.0)


def mse_range(
    counts: Any, limit: float, low: float, high: float, scheme: Scheme
) -> tuple[float, float]:
    """The range of least squared error of what is rounded and what is cut off together, the bins'
    centres standing for their values (Nagel et al., "A white paper on neural network
    quantization", 2021, section 3.1).

    Of affine ranges first both ends shrink together, then each by itself."""
    used = np.flatnonzero(counts)
    weights = counts[used].astype(np.float64)
    centres = (used + 0.5) * (2 * limit / BINS) - limit

    def error(ends: tuple[float, float]) -> float:
        scale, zero_point = parameters(ends[0], ends[1], scheme)
        qmin, qmax = scheme.range
        integers = np.clip(np.rint(centres / float(scale)) + int(zero_point), qmin, qmax)
        back = (integers - int(zero_point)) * float(scale)
        return float(np.dot(weights, (centres - back) ** 2))

    parts = np.arange(1, _STEPS + 1) / _STEPS
    best = min(((low * t, high * t) for t in parts[::-1]), key=error)
    if not scheme.symmetric and low < 0 < high:
        best = min(((low * t, best[1]) for t in parts[::-1]), key=error)
        best = min(((best[0], high * t) for t in parts[::-1]), key=error)
    return best


def entropy_range(
    counts: Any, limit: float, low: float, high: float, scheme: Scheme
) -> tuple[float, float]:
    """The range whose quantized distribution tells least apart from the true one, by the
    Kullback-Leibler divergence of magnitudes (Migacz, "8-bit inference with TensorRT", 2017).

    The bin at zero counts as much as the next one: zeros are exact in any range, and after a relu
    they would outweigh all others."""
    half = BINS // 2
    magnitudes = (counts[half:] + counts[:half][::-1]).astype(np.float64)
    magnitudes[0] = magnitudes[1]
    qmin, qmax = scheme.range
    one_sided = not scheme.symmetric and not low < 0 < high
    levels = qmax - qmin + 1 if one_sided else (qmax - qmin + 1) // 2
    last = int(np.flatnonzero(magnitudes)[-1]) + 1 if magnitudes.any() else 0
    if last <= levels:  # as fine as the integers: nothing to choose
        return low, high
    chosen, least = last, _divergence(magnitudes, last, levels)
    for stop in reversed(range(levels, last, 16)):
        divergence = _divergence(magnitudes, stop, levels)
        # of equal ones the widest: a few distinct values look the same, cut off at one of them
        if divergence < least - 1e-12:
            chosen, least = stop, divergence
    cut = chosen * limit / half
    return max(low, -cut), min(high, cut)


def _divergence(magnitudes: Any, stop: int, levels: int) -> float:
    """KL of the magnitudes, those from ``stop`` on counted in the last bin, against the first
    ``stop`` bins told apart in ``levels`` steps only."""
    inside = magnitudes[:stop]
    true = inside.copy()
    true[-1] += magnitudes[stop:].sum()
    step = np.arange(stop) * levels // stop
    nonzero = inside > 0
    sums = np.bincount(step, inside, levels)
    kinds = np.bincount(step, nonzero, levels)
    spread = np.where(nonzero, (sums / np.maximum(kinds, 1))[step], 0)
    if spread.sum() == 0:
        return np.inf
    p, q = true / true.sum(), spread / spread.sum()
    if np.any((p > 0) & (q == 0)):  # values beyond the range where there were none inside
        q = np.maximum(q, 1e-12)
    shown = p > 0
    return float(np.sum(p[shown] * np.log(p[shown] / q[shown])))
