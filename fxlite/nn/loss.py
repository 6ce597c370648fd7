"""Loss layers: they are called with (x, target), and their ``reduction`` is "mean", "sum" or "none"."""

from __future__ import annotations

from typing import Any

from fxlite.nn import functional as F
from fxlite.nn.module import Module


class _Loss(Module):
    """Holds the reduction; torch's deprecated size_average and reduce do not exist."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class MSELoss(_Loss):
    """``(x - target)**2``, reduced."""

    def forward(self, x: Any, target: Any) -> Any:
        return F.mse_loss(x, target, reduction=self.reduction)


class L1Loss(_Loss):
    """``|x - target|``, reduced."""

    def forward(self, x: Any, target: Any) -> Any:
        return F.l1_loss(x, target, reduction=self.reduction)


class CrossEntropyLoss(_Loss):
    """The cross entropy of softmax(x), for x [N, C, ...], and a target of class numbers [N, ...] or
    probabilities [N, C, ...]."""

    def __init__(
        self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, x: Any, target: Any) -> Any:
        return F.cross_entropy(
            x,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_Loss):
    """``-x[target]`` for log-probabilities x [N, C, ...] and class numbers [N, ...]."""

    def __init__(self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, x: Any, target: Any) -> Any:
        return F.nll_loss(x, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """The cross entropy of sigmoid(x) and ``target``."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, x: Any, target: Any) -> Any:
        return F.binary_cross_entropy_with_logits(
            x, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class CosineSimilarity(Module):
    """The cosine of the angle between x and y along ``dim``."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x: Any, y: Any) -> Any:
        return F.cosine_similarity(x, y, self.dim, self.eps)
