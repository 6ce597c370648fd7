"""Transformer layers: TransformerEncoderLayer and TransformerEncoder (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn.attention import MultiheadAttention
from fxlite.nn.container import ModuleList
from fxlite.nn.dropout import Dropout
from fxlite.nn.linear import Linear
from fxlite.nn.module import Module
from fxlite.nn.normalization import LayerNorm

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": F.relu, "gelu": F.gelu}


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with residual and layer norm: x [T, B, E]
    (``batch_first``: [B, T, E]; unbatched: [T, E]) to the same shape.

    ``src_mask`` [T, T] or [B*nhead, T, T] and ``src_key_padding_mask`` [B, T] as in
    MultiheadAttention. ``norm_first``: the norms stand before instead of after."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu", layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ArgumentError(
                f'activation must be "relu", "gelu" or callable, not {activation!r}'
            )
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, dtype=dtype
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, dtype=dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(
        self, x: Any, src_mask: Any = None, src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Any:  # fmt: skip
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._attend(self.norm1(x), *masks)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self._attend(x, *masks))
        return self.norm2(x + self._feed_forward(x))

    def _attend(self, x: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
        result, _ = self.self_attn(
            x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask,
            is_causal=is_causal,
        )  # fmt: skip
        return self.dropout1(result)

    def _feed_forward(self, x: Any) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer one after the other, then ``norm`` if given.

    ``mask`` [T, T] and ``src_key_padding_mask`` [B, T] go to every layer. The torch arguments
    ``enable_nested_tensor`` and ``mask_check`` have no effect."""

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, x: Any, mask: Any = None, src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Any:  # fmt: skip
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, bool(is_causal))
        return x if self.norm is None else self.norm(x)
