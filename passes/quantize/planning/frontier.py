"""The order in which layers become integers: most gain for the least loss first.

In: for each layer its options, each with a loss of quality and a cost (bytes, seconds). Out: moves,
from float everywhere to the cheapest; each prefix of them is a plan.

To choose one option for each layer, of least loss within a budget, is the multiple-choice knapsack
problem. Its greedy solution (P. Sinha and A. Zoltners, "The multiple-choice knapsack problem",
Operations Research 27, 1979) keeps of each layer's options those on the lower convex hull of loss
over cost and takes the steps along all hulls by loss per gain; it is optimal but for the last step.
HAWQ-V2 (Z. Dong et al., NeurIPS 2020) plans bits like that, with the Hessian's trace as loss, and
N. P. Pandey et al., "A practical mixed precision algorithm for post-training quantization" (2023),
with the signal-to-noise ratio, as here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """A way to compute a layer: its loss (0 or more, adding up over layers) and its cost."""

    scheme: str
    loss: float
    cost: float


@dataclass(frozen=True)
class Move:
    """A layer goes over to a scheme; ``slope`` is the loss for each unit of cost that it saves."""

    layer: str
    scheme: str
    slope: float


def moves(options: Mapping[str, Sequence[Option]]) -> list[Move]:
    """The moves in order. The first option of a layer is where it begins; it has no loss. Options
    that cost as much as one of less loss, or more, and those of infinite loss appear in none."""
    found = [move for layer, choices in options.items() for move in _along_hull(layer, choices)]
    # stable: of equal slopes, the moves of a layer stay in order
    return sorted(found, key=lambda move: move.slope)


def _along_hull(layer: str, choices: Sequence[Option]) -> list[Move]:
    """The steps of one layer, of increasing slope."""
    hull = [choices[0]]
    made: list[Move] = []
    useful = [o for o in choices[:0:-1] if o.cost < choices[0].cost and math.isfinite(o.loss)]
    # from the dearest to the cheapest; of equal cost, the last one stays: the least loss, and of
    # equal loss the one that was given first
    for option in sorted(useful, key=lambda o: (-o.cost, -o.loss)):
        while made and (option.loss <= hull[-1].loss or _slope(hull[-1], option) <= made[-1].slope):
            hull.pop()
            made.pop()
        made.append(Move(layer, option.scheme, _slope(hull[-1], option)))
        hull.append(option)
    return made


def _slope(start: Option, end: Option) -> float:
    return (end.loss - start.loss) / (start.cost - end.cost)
