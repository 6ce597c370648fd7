"""Attention layers: MultiheadAttention, and the layers built from it, TransformerEncoderLayer and
TransformerEncoder (Vaswani et al. 2017).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.nn import functional as F
from fxlite.nn import init
from fxlite.nn.container import ModuleList
from fxlite.nn.linear import Linear, empty_parameter
from fxlite.nn.module import Module
from fxlite.nn.normalization import Dropout, LayerNorm


class MultiheadAttention(Module):
    """Attention with ``num_heads`` heads: ``query`` [L, N, E], ``key`` [S, N, kdim] and ``value``
    [S, N, vdim] to (output [L, N, E], weights or None). With ``batch_first`` N comes first; unbatched
    inputs have no N.

    Boolean masks are True where attention is *not* allowed; float masks are added. ``attn_mask`` is
    [L, S] or [N*num_heads, L, S], ``key_padding_mask`` is [N, S]. With ``need_weights`` the weights are
    returned, too: averaged over the heads, [N, L, S], or [N, num_heads, L, S] if
    ``average_attn_weights`` is False.

    The op ``scaled_dot_product_attention`` always computes the output. So a query to which everything is
    masked gives zeros, as in torch without weights (torch with weights gives NaN)."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ArgumentError(f"embed_dim {embed_dim} does not divide into {num_heads} heads")
        if add_bias_kv or add_zero_attn:
            raise ArgumentError("MultiheadAttention does not support add_bias_kv and add_zero_attn")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.head_dim, self.batch_first = embed_dim // num_heads, batch_first
        self.packed = self.kdim == embed_dim and self.vdim == embed_dim
        shapes = {"in_proj_weight": (3 * embed_dim, embed_dim)}
        if not self.packed:
            widths = (embed_dim, self.kdim, self.vdim)
            shapes = {f"{n}_proj_weight": (embed_dim, w) for n, w in zip("qkv", widths)}
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            made = empty_parameter(*shapes[name], dtype=dtype) if name in shapes else None
            self.register_parameter(name, made)
        self.register_parameter("in_proj_bias", empty_parameter(3 * embed_dim, dtype=dtype) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights (Xavier uniform); biases become 0."""
        for name, parameter in self._parameters.items():
            if parameter is not None:
                (init.xavier_uniform_ if name.endswith("weight") else init.zeros_)(parameter)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        batched = query.ndim == 3
        if query.ndim not in (2, 3):
            raise ShapeError(f"MultiheadAttention takes a query of rank 2 or 3, not {query.ndim}")
        q, k, v = self._project(query, key, value)
        if not batched:
            q, k, v = (ops.unsqueeze(p, 0) for p in (q, k, v))
            if key_padding_mask is not None:
                key_padding_mask = ops.unsqueeze(key_padding_mask, 0)
        elif not self.batch_first:
            q, k, v = (ops.permute(p, (1, 0, 2)) for p in (q, k, v))
        q, k, v = (self._split_heads(p) for p in (q, k, v))
        mask = self._mask(attn_mask, key_padding_mask, q)
        causal = is_causal and mask is None
        p = self.dropout if self.training else 0.0
        result = F.scaled_dot_product_attention(q, k, v, mask, p, causal)
        merged = ops.permute(result, (0, 2, 1, 3))
        merged = ops.reshape(merged, (*merged.shape[:2], self.embed_dim))
        if batched and not self.batch_first:
            merged = ops.permute(merged, (1, 0, 2))
        output = self.out_proj(merged if batched else ops.squeeze(merged, 0))
        if not need_weights:
            return output, None
        if causal:
            mask = F.causal_mask(q, k)
        weights = F.attention_weights(q, k, mask)
        weights = ops.mean(weights, axis=1) if average_attn_weights else weights
        return output, weights if batched else ops.squeeze(weights, 0)

    def _project(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        size, bias = self.embed_dim, self.in_proj_bias
        if self.packed and query is key and key is value:
            projected = F.linear(query, self.in_proj_weight, bias)
            q, k, v = (ops.slice(projected, axis=-1, start=n * size, stop=(n + 1) * size) for n in range(3))
            return q, k, v
        parts = []
        for n, (name, x) in enumerate(zip("qkv", (query, key, value))):
            rows = {"axis": 0, "start": n * size, "stop": (n + 1) * size}
            weight = ops.slice(self.in_proj_weight, **rows) if self.packed else getattr(self, f"{name}_proj_weight")
            parts.append(F.linear(x, weight, None if bias is None else ops.slice(bias, **rows)))
        return parts[0], parts[1], parts[2]

    def _split_heads(self, x: Any) -> Any:
        """[N, T, E] -> [N, heads, T, E/heads]."""
        split = ops.reshape(x, (x.shape[0], x.shape[1], self.num_heads, self.head_dim))
        return ops.permute(split, (0, 2, 1, 3))

    def _mask(self, attn_mask: Any, key_padding_mask: Any, q: Any) -> Any:
        """Both masks combined for scaled_dot_product_attention: booleans that are True where attention is
        allowed, or floats to add."""
        masks = []
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                batch, heads = q.shape[0], self.num_heads
                attn_mask = ops.reshape(attn_mask, (batch, heads, *attn_mask.shape[1:]))
            masks.append(attn_mask)
        if key_padding_mask is not None:
            masks.append(ops.unsqueeze(ops.unsqueeze(key_padding_mask, 1), 1))
        if not masks:
            return None
        if all(np.dtype(m.dtype) == np.bool_ for m in masks):
            blocked = masks[0] if len(masks) == 1 else ops.logical_or(*masks)
            return ops.logical_not(blocked)
        added = [self._added(m, q.dtype) for m in masks]
        return added[0] if len(added) == 1 else added[0] + added[1]

    @staticmethod
    def _added(mask: Any, dtype: Any) -> Any:
        if np.dtype(mask.dtype) != np.bool_:
            return mask
        return ops.cast(ops.where(mask, -math.inf, 0.0), dtype)


# -- transformer layers ----------------------------------------------------------------------------
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": F.relu, "gelu": F.gelu}


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual connection and a layer norm:
    x [T, B, E] (``batch_first``: [B, T, E]; unbatched: [T, E]) to the same shape.

    ``src_mask`` [T, T] or [B*nhead, T, T] and ``src_key_padding_mask`` [B, T] are as in
    MultiheadAttention. With ``norm_first`` the norms come before attention and network instead of after
    them."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ArgumentError(f'activation must be "relu", "gelu" or callable, not {activation!r}')
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, dtype=dtype
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, dtype=dtype)
        self.d_model, self.nhead, self.dim_feedforward = d_model, nhead, dim_feedforward
        self.batch_first, self.norm_first, self.layer_norm_eps = (batch_first, norm_first, layer_norm_eps)
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(self, x: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._attend(self.norm1(x), *masks)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self._attend(x, *masks))
        return self.norm2(x + self._feed_forward(x))

    def _attend(self, x: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
        result, _ = self.self_attn(
            x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout1(result)

    def _feed_forward(self, x: Any) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer in sequence, followed by ``norm`` if it is given.

    ``mask`` [T, T] and ``src_key_padding_mask`` [B, T] are passed to every layer. The torch arguments
    ``enable_nested_tensor`` and ``mask_check`` have no effect."""

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, x: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None) -> Any:
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, bool(is_causal))
        return x if self.norm is None else self.norm(x)
