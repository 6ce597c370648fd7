"""What a program computes, and whether two results are the same.

A rewrite that is exact keeps every bit (NaNs are alike, zeros have signs). NumPy adds up in an
order that depends on how an array lies in memory, which a rewrite of views may change; so both
sides are run on values that lie contiguous.

A rewrite that is only ``allclose`` may be amplified by what follows: ``floor(softmax(x).sum())`` is
0 or 1. How far depends on the program: it is run again with each value disturbed by a few units in
the last place (stochastic arithmetic: Vignes 1978), and the result may differ as much as that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.graph.graph import Node
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import Op
from fxlite.passes.rules.decompose import decompose
from fxlite.scalar.functions import complex_of
from fxlite.types import dtypes
from fxlite.types.agreement import USUAL, Chain, bound, compare, computed, exact, leaves

Array = np.ndarray[Any, Any]

#: Disturbed runs at first, and before a failure is believed.
FEW, MANY = 3, 40
#: How much each value is disturbed in the runs, which take turns.
STRENGTHS = (1.0, 1.0, 1.0, 1.0, 10.0)
#: Kinds of ops that add up.
SUMS = ("contraction", "reduction", "composite")
#: Differences allowed, as a multiple of the largest that noise made.
FACTOR = 4.0


class Contiguous(fx.Interpreter):
    """Runs a graph on values that lie contiguous in memory."""

    def run_node(self, node: Node) -> Any:
        return _map(super().run_node(node), lambda a: np.asarray(a, order="C"))


class Disturbed(Contiguous):
    """Runs a graph with each float value, inputs and weights too, off by a little: with ``seed`` 0
    upwards, with 1 downwards, else by random amounts, each as those of a ``chain`` may be."""

    def __init__(self, module: fx.GraphModule, seed: int, strength: float, chain: Chain = USUAL) -> None:
        super().__init__(module)
        self.rng = np.random.default_rng(seed)
        self.seed, self.strength, self.chain = seed, strength, chain

    def run_node(self, node: Node) -> Any:
        result = super().run_node(node)
        if isinstance(node.target, Op) and node.target.name in COMPARISONS:
            return self._undecided(result, *self.fetch_args_kwargs_from_env(node)[0])
        if isinstance(node.target, Op) and node.target.name in ("mean", "var"):
            result = self._of_floats(node)
        if isinstance(node.target, Op) and node.target.kind in SUMS:
            result = self._overflown(result, node)
        return result if node.op == "output" else _map(result, self._disturb)

    def _of_floats(self, node: Node) -> Any:
        """A mean of integers, which become floats before they are added up and may cancel."""
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        whole = np.asarray(args[0])
        if dtypes.dtype(whole.dtype).is_inexact:
            return node.target(*args, **kwargs)
        return node.target(self._disturb(whole.astype(np.float64)), *args[1:], **kwargs)

    def _overflown(self, result: Any, node: Node) -> Any:
        """Where finite terms overflow, their order decides between infinity and NaN."""
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        finite = _map(args, lambda a: np.nan_to_num(a, posinf=0.0, neginf=0.0))
        anew = node.target(*finite, **kwargs)
        if not isinstance(result, np.ndarray) or not dtypes.dtype(result.dtype).is_inexact:
            return result
        is_open = ~np.isfinite(anew) & self.rng.choice([True, False], result.shape)
        return np.where(is_open, np.asarray(np.nan, result.dtype), result)

    def _disturb(self, array: Array) -> Array:
        if array.dtype.kind == "c":
            parts = self._disturb(np.stack([array.real, array.imag], -1))
            return np.asarray(complex_of(parts[..., 0], parts[..., 1]))
        if not dtypes.dtype(array.dtype).is_float or not array.size:
            return array
        wide = array.astype(np.float64)
        relative, absolute = (self.rng.uniform(-1, 1, array.shape) for _ in range(2))
        if self.seed < 2:
            relative = absolute = np.full(array.shape, 1.0 - 2 * self.seed)
        step, least = self._steps(array)
        made = wide * (1 + step * relative) + least * absolute
        if self.seed > 1:  # a number that small may be zero, and then is not true
            made = np.where((np.abs(made) <= least) & (relative > 0), 0.0, made)
        open_sign = np.copysign(np.nan, relative)  # which copysign would show
        kept = np.where(np.isnan(wide), open_sign, wide)
        return np.asarray(np.where(np.isfinite(wide), made, kept)).astype(array.dtype)

    def _steps(self, array: Array) -> tuple[float, float]:
        """How far a value may be off: as a part of it, and at least."""
        wide = _wide(array)
        largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
        step = bound(array.dtype, self.chain) * self.strength
        return step, 0.1 * step * largest

    def _undecided(self, answers: Array, a: Any, b: Any) -> Array:
        """A comparison of two numbers that are as near as they may be off is decided by chance: the
        least of many numbers that are nearly the same would be another one in each run, and equal
        to itself alone."""
        a, b = np.asarray(a), np.asarray(b)
        floats = [x for x in (a, b) if dtypes.dtype(x.dtype).is_inexact and x.size]
        if not floats:
            return answers
        steps = [self._steps(x) for x in floats]
        near = sum(s * np.abs(_wide(x)) + t for x, (s, t) in zip(floats, steps))
        is_near = np.abs(np.real(_wide(a) - _wide(b))) <= near
        other = is_near & (self.rng.choice([True, False], answers.shape) | (self.seed % 2 == 0))
        return np.where(other, ~answers, answers)


def _wide(array: Array) -> Array:
    """In float64 or complex128."""
    return np.asarray(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _map(value: Any, function: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_map(v, function) for v in value)
    if isinstance(value, dict):
        return {k: _map(v, function) for k, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return function(value)
    return value


def run(module: fx.GraphModule, arrays: Sequence[Array]) -> Any:
    """The result, on values that lie contiguous."""
    with np.errstate(all="ignore"):
        return Contiguous(module).run(*arrays)


# -- comparing -------------------------------------------------------------------------------------
def exact_difference(expected: Any, actual: Any) -> str | None:
    """Where two results differ in structure, type or a bit (NaNs are alike); None: nowhere."""
    found = compare(expected, actual, exact)
    return None if found.agrees else f"{found}\n{expected!r}\ngot\n{actual!r}"


class Reference:
    """What a program computes, and how much of that rounding decides, where each of its values may
    be off as those of a ``chain``."""

    def __init__(self, module: fx.GraphModule, arrays: Sequence[Array], chain: Chain = USUAL) -> None:
        self.module, self.arrays, self.chain = module, arrays, chain
        self.result = run(module, arrays)
        self._runs: list[list[Array]] = []

    def close_difference(self, actual: Any, flat: bool = False) -> str | None:
        """Where a result differs by more than rounding explains; None: nowhere. ``flat``: the
        arrays alone are given, in a list."""
        expected = leaves(self.result) if flat else self.result
        for count in (FEW, MANY):
            self._disturb(count)
            found = compare(expected, actual, computed, self.chain, self._spread(self._runs))
            if found.agrees:
                return None
        if found.wrong and found.wrong <= self._jumps(found.result or 0):
            return None
        return f"{found}\n{expected!r}\ngot\n{actual!r}"

    def _jumps(self, number: int) -> int:
        """How many elements of a result one disturbed run has farther off than all others say,
        at most: where rounding decides in one run of a hundred which of two numbers an element is,
        as in a recurrence that swings, some elements of each run are the first to jump."""
        e = leaves(self.result)[number]
        runs = [[run[number]] for run in self._runs]
        most = 0
        for held_out in range(len(runs)):
            if held_out % len(STRENGTHS) == STRENGTHS.index(max(STRENGTHS)):
                continue  # it was disturbed by more than a run may be
            spread = self._spread(runs[:held_out] + runs[held_out + 1 :], [e])
            most = max(most, compare([e], runs[held_out], computed, self.chain, spread).wrong)
        return most

    def _disturb(self, count: int) -> None:
        """Have ``count`` disturbed runs, the later ones disturbed more, and after the first few
        within composite ops too: ``x - tanh(x)`` cancels what its tanh is off by."""
        if len(self._runs) == FEW:
            self.module = decompose(self.module)
        with np.errstate(all="ignore"):
            for seed in range(len(self._runs), count):
                strength = STRENGTHS[seed % len(STRENGTHS)]
                made = Disturbed(self.module, seed, strength, self.chain).run(*self.arrays)
                self._runs.append(leaves(made))

    def _spread(self, runs: Sequence[list[Array]], results: Sequence[Array] | None = None) -> list[Array]:
        """How far each element may be off by these disturbed runs; infinite where rounding decides
        whether it is finite or NaN, or which integer it is."""
        spreads = []
        for number, e in enumerate(leaves(self.result) if results is None else results):
            disturbed = [r[number] for r in runs]
            if not dtypes.dtype(e.dtype).is_inexact:
                same = np.all([d == e for d in disturbed], axis=0)
                spreads.append(np.where(same, 0.0, np.inf))
                continue
            x, others = _wide(e), [_wide(d) for d in disturbed]
            decided = np.all(
                [(np.isfinite(o) & np.isfinite(x)) | np.isnan(o) & np.isnan(x) | (o == x) for o in others], axis=0
            )
            with np.errstate(all="ignore"):
                far = FACTOR * np.max([np.abs(o - x) for o in others], axis=0, initial=0.0)
            spreads.append(np.where(decided, np.where(np.isfinite(far), far, 0.0), np.inf))
        return spreads


def op_names(module: fx.GraphModule) -> list[str]:
    """Ops that are called."""
    return [n.target.name for n in module.graph.nodes if isinstance(n.target, Op)]
