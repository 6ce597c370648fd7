"""Lookup layers: Embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn import init
from fxlite.nn.linear import empty_parameter
from fxlite.nn.module import Module, Parameter


class Embedding(Module):
    """Rows of weight [num_embeddings, embedding_dim] at integers x [...]: [..., embedding_dim].

    Row ``padding_idx`` starts as zeros. ``max_norm`` would change the weight in every call and is
    refused; ``norm_type``, ``scale_grad_by_freq`` and ``sparse`` concern gradients and have no
    effect."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if max_norm is not None:
            raise ArgumentError("Embedding does not support max_norm; normalize the weight once")
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ArgumentError(
                    f"padding_idx {padding_idx} is out of range of {num_embeddings}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = empty_parameter(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """An Embedding with the given weight [N, D], not trainable unless ``freeze`` is False."""
        weight = np.asarray(embeddings)
        rows, width = weight.shape
        made = cls(rows, width, padding_idx, dtype=weight.dtype)
        made.weight = Parameter(weight, requires_grad=not freeze)
        return made

    def reset_parameters(self) -> None:
        """Draw new weights from a standard normal; zeros at ``padding_idx``."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0

    def forward(self, x: Any) -> Any:
        return F.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
