"""Dropout layers: random in training mode, nothing at all (not even a node) in eval mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn.module import Module


class _Dropout(Module):
    """Holds the probability of a zero."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not isinstance(p, (int, float, np.number)) or not 0 <= p <= 1:
            raise ArgumentError(f"the dropout probability must be between 0 and 1, not {p!r}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Each element of x 0 with probability ``p``, else scaled by 1 / (1 - p); x itself in eval
    mode."""

    def forward(self, x: Any) -> Any:
        return F.dropout(x, self.p, self.training)


class Dropout1d(_Dropout):
    """Whole channels of x [N, C, L] 0 with probability ``p``; x itself in eval mode."""

    def forward(self, x: Any) -> Any:
        return F.dropout1d(x, self.p, self.training)


class Dropout2d(_Dropout):
    """Whole channels of x [N, C, H, W] 0 with probability ``p``; x itself in eval mode."""

    def forward(self, x: Any) -> Any:
        return F.dropout2d(x, self.p, self.training)
