"""Evaluate scalar expressions with NumPy, for whole grids of indices at once.

This is the meaning of :mod:`fxlite.scalar.expr` that kernels are run by without a compiler. It
never calls an op's reference: the two are checked against each other.

In: an expression, arrays for its buffers, values (or open grids) for its loop variables. Out: an
array of the values the expression takes on the grid. Half types are held as float32, as compiled
code does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.scalar import expr
from fxlite.scalar.expr import (
    Apply,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    IndexValue,
    Load,
    Local,
    Reduction,
)
from fxlite.scalar.functions import COMBINATIONS, FUNCTIONS
from fxlite.scalar.index import Index
from fxlite.types import dtypes


class IndexOutOfRange(FxliteError, IndexError):
    """A run-time index lies outside its axis."""


class Evaluator:
    """Evaluates expressions in one environment: ``env`` maps variable and dim names to numbers or
    mutually broadcastable arrays, ``buffers`` names to arrays, ``locals`` names to values."""

    def __init__(
        self, env: Mapping[str, Any], buffers: Mapping[str, Any],
        locals: Mapping[str, Any] | None = None, mask: Any = None,
    ) -> None:  # fmt: skip
        self.env = dict(env)
        self.buffers = buffers
        self.locals = locals if locals is not None else {}
        self.mask = mask  # where the values are wanted: nothing is loaded elsewhere
        self._memo: dict[int, Any] = {}

    def __call__(self, node: Expr) -> Any:
        with np.errstate(all="ignore"):
            # what is inside of a reduction or a guarded load is computed by it
            for inner in expr.walk(node, (Reduction, Load)):
                if id(inner) not in self._memo:
                    self._memo[id(inner)] = self._compute(inner)
        return self._memo[id(node)]

    def index(self, index: Index) -> Any:
        """Value of an index expression."""
        return index.evaluate(self.env, self)

    def _compute(self, node: Expr) -> Any:
        numpy = node.dtype.compute.numpy
        if isinstance(node, Const):
            return numpy.type(node.value)
        if isinstance(node, _Known):
            return node.value
        if isinstance(node, IndexValue):
            return np.asarray(self.index(node.index), dtype=np.int64)
        if isinstance(node, Load):
            return self._load(node)
        if isinstance(node, Apply):
            args = [self._memo[id(a)] for a in node.args]
            function = FUNCTIONS[node.function]
            if function.halves:
                args = [np.asarray(a).astype(node.dtype.numpy, copy=False) for a in args]
            return np.asarray(function.compute(*args)).astype(numpy, copy=False)
        if isinstance(node, Cast):
            value = np.asarray(self._memo[id(node.operand)])
            return value.astype(node.dtype.numpy).astype(numpy, copy=False)
        if isinstance(node, CheckedIndex):
            value = np.asarray(self._memo[id(node.operand)])
            extent = self.index(node.extent)
            wanted = True if node.guard is None else np.asarray(self._memo[id(node.guard)])
            wrong = wanted & ((value < -extent) | (value >= extent))
            if wrong.any():
                bad = np.broadcast_to(value, wrong.shape)[wrong].flat[0]
                raise IndexOutOfRange(
                    f"{node.where}: index {bad} is out of range for an axis of size {extent}"
                )
            return np.where(wanted, np.where(value < 0, value + extent, value), -1)
        if isinstance(node, Reduction):
            return self._reduce(node)
        if isinstance(node, Local):
            value = self.locals[node.name]
            return value[int(self.index(node.index[0]))] if node.index else value
        raise TypeError(f"cannot evaluate {type(node).__name__}")

    def _load(self, node: Load) -> Any:
        array = np.asarray(self.buffers[node.buffer])
        numpy = node.dtype.compute.numpy
        index = [np.asarray(self.index(i)) for i in node.index]
        guard = self.mask if node.guard is None else np.asarray(self(node.guard))
        if node.guard is not None and self.mask is not None:
            guard = guard & self.mask
        if guard is not None:
            if array.size == 0:
                return np.zeros(np.broadcast_shapes(guard.shape, *(i.shape for i in index)), numpy)
            index = [np.where(guard, i, 0) for i in index]
        for axis, i in enumerate(index):
            if i.size and (i.min() < 0 or i.max() >= array.shape[axis]):
                raise IndexOutOfRange(
                    f"kernel reads {node.buffer}{list(node.index)} outside {array.shape}, axis "
                    f"{axis}: "
                    f"{i.min()}..{i.max()}"
                )
        value = array[tuple(index)] if index else array[()]
        value = np.asarray(value).astype(numpy, copy=False)
        return value if guard is None else np.where(guard, value, numpy.type(0))

    def _reduce(self, node: Reduction) -> Any:
        """Run the reduction's variables one by one; an extent may itself depend on the grid."""
        extents = [np.asarray(self.index(v.extent)) for v in node.variables]
        longest = [int(e.max()) if e.size else 0 for e in extents]
        how = COMBINATIONS[node.kind]
        function = FUNCTIONS[how.function].compute
        total: Any = node.body.dtype.compute.numpy.type(how.start(node.body.dtype))
        if node.kind == "sum" and node.body.dtype.is_float:
            total = np.float64(total)  # however many there are
        best: Any = np.int64(-1)
        for number, point in enumerate(itertools.product(*(range(n) for n in longest))):
            env = self.env | {v.name: p for v, p in zip(node.variables, point)}
            inside = np.asarray(True)
            for p, extent in zip(point, extents):
                inside = inside & (p < extent)
            if not inside.any():
                continue
            body = (
                expr.add_guard(node.body, _Known(dtypes.bool_, inside))
                if not inside.all()
                else node.body
            )
            value = Evaluator(env, self.buffers, self.locals)(body)
            if how.positions:
                better = function(value, total)
                better = better | (np.isnan(value) & ~np.isnan(total)) | (best < 0)
                if not np.issubdtype(np.asarray(value).dtype, np.bool_):
                    better = better & ~(np.isnan(total) & (best >= 0))
                total, best = np.where(better, value, total), np.where(better, number, best)
            else:
                combined = function(total, value)
                total = np.where(inside, combined, total)
        if how.positions:
            return np.asarray(best, np.int64)
        return np.asarray(total).astype(node.dtype.compute.numpy, copy=False)


@dataclass(frozen=True, eq=False)
class _Known(Expr):
    """A condition that was evaluated before."""

    value: Any
