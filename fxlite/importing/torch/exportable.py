"""Definitions of functions that torch.export cannot follow, because they read values or have results of sizes that
depend on values. In most programs nothing of this is needed: only the solution of a least-squares problem, for example.

In: the arguments of torch's functions. Out: the same results, for matrices of full rank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from fxlite.importing.torch import packed_sequences


def _lstsq(a: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """torch.linalg.lstsq by singular values. Which of the results are empty depends on the driver."""
    driver = driver or "gelsy"
    height, width = a.shape[-2:]
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    b = b.unsqueeze(-1) if is_vector else b
    left, values, right = torch.linalg.svd(a, full_matrices=False)
    part = torch.finfo(a.dtype).eps * max(height, width) if rcond is None else rcond
    kept = values > part * values.amax(-1, keepdim=True)
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1), 0)
    x = right.mH @ ((left.mH @ b) * inverse.unsqueeze(-1).to(a.dtype))
    rest = torch.square((b - a @ x).abs()).sum(-2) if height > width and driver != "gelsy" else values.new_empty(0)
    rank = torch.empty(0, dtype=torch.int64) if driver == "gels" else kept.sum(-1)
    values = values if driver in ("gelsd", "gelss") else values.new_empty(0)
    kind: Any = vars(torch.return_types)["linalg_lstsq"]
    return kind((x.squeeze(-1) if is_vector else x, rest, rank, values))


def _cov(x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """torch.cov."""
    x = x.reshape(1, -1) if x.ndim < 2 else x
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    count = x.shape[1] if weights is None else weights.sum()
    centered = x - ((x if weights is None else x * weights).sum(1) / count).unsqueeze(1)
    rest = count - (correction if aweights is None else correction * (weights * aweights).sum() / count)
    rest = rest.clamp(min=0) if isinstance(rest, torch.Tensor) else torch.sym_max(rest, 0)  # type: ignore[no-untyped-call]
    return (centered @ (centered if weights is None else centered * weights).mH / rest).squeeze()


def _corrcoef(x: Any) -> Any:
    """torch.corrcoef."""
    found = _cov(x)
    if not found.ndim:
        return found / found
    deviation = found.diagonal().sqrt()
    found = found / deviation.unsqueeze(1) / deviation
    if found.is_complex():
        return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
    return found.clamp(-1, 1)


def _narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    """torch.narrow, from a start that may be a tensor."""
    if not isinstance(start, torch.Tensor):
        return torch.narrow(x, dim, start, length)
    start = torch.where(start < 0, start + x.shape[dim], start)
    return x.index_select(dim, start + torch.arange(length))


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """torch.bincount of numbers below ``minlength``, which is the number of counts; a larger one is an error."""
    if not minlength:
        return torch.ops.aten.bincount(x, weights)
    values = torch.ones_like(x) if weights is None else weights if weights.is_floating_point() else weights.double()
    return torch.zeros(minlength, dtype=values.dtype).index_add(0, x.long(), values)


def _combinations(x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """torch.combinations."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(x.shape[0]), r))
    return x[torch.tensor(chosen, dtype=torch.int64).reshape(len(chosen), r)]


def _gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """torch.nn.functional.gaussian_nll_loss, without the check for negative variances."""
    var = var * torch.ones_like(input) if isinstance(var, float) else var
    if var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    elif var.ndim != input.ndim or [n for own, n in zip(input.shape, var.shape) if own != n] not in ([], [1]):
        raise ValueError("var is of incorrect size")
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


#: Functions of torch and their definitions here.
DEFINITIONS: dict[Any, Callable[..., Any]] = {
    torch.linalg.lstsq: _lstsq,
    torch.combinations: _combinations,
    **dict.fromkeys((torch.bincount, torch.Tensor.bincount), _bincount),
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    **dict.fromkeys((torch.cov, torch.Tensor.cov), _cov),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), _corrcoef),
    **dict.fromkeys((torch.narrow, torch.Tensor.narrow), _narrow),
    **packed_sequences.DEFINITIONS,
}
