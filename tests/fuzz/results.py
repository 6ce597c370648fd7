"""What a program computes, and whether two results are the same.

A rewrite that is exact keeps every bit (NaNs are alike, zeros have signs). NumPy adds up in an
order that depends on how an array lies in memory, which a rewrite of views may change; so both
sides are run on values that lie contiguous.

A rewrite that is only ``allclose`` may be amplified by what follows: ``floor(softmax(x).sum())`` is
0 or 1. How far depends on the program: it is run again with each value disturbed by a few units in
the last place (stochastic arithmetic: Vignes 1978), and the result may differ as much as that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import dtypes
from fxlite.graph import Node
from fxlite.op import Op

Array = np.ndarray[Any, Any]

#: Relative disturbance of each value, by dtype: what a promise of ``allclose`` allows.
NOISE = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 2e-12}
#: Disturbed runs at first, and before a failure is believed.
FEW, MANY = 3, 40
#: Differences allowed, as a multiple of the largest that noise made.
FACTOR = 4.0


def leaves(value: Any) -> list[Array]:
    """Arrays of a nested result, in order."""
    if isinstance(value, dict):
        return [a for v in value.values() for a in leaves(v)]
    if isinstance(value, (tuple, list)):
        return [a for v in value for a in leaves(v)]
    return [np.asarray(value)]


def structure(value: Any) -> Any:
    """A nested result without its arrays."""
    if isinstance(value, dict):
        return {k: structure(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(structure(v) for v in value)
    return None


class Contiguous(fx.Interpreter):
    """Runs a graph on values that lie contiguous in memory."""

    def run_node(self, node: Node) -> Any:
        return _map(super().run_node(node), lambda a: np.asarray(a, order="C"))


class Disturbed(Contiguous):
    """Runs a graph with each float value, inputs and weights too, off by a little: with ``seed`` 0
    upwards, with 1 downwards, else by random amounts."""

    def __init__(
        self, module: fx.GraphModule, seed: int, strength: float,
        noise: Mapping[str, float] = NOISE,
    ) -> None:  # fmt: skip
        super().__init__(module)
        self.rng = np.random.default_rng(seed)
        self.seed, self.strength, self.noise = seed, strength, noise

    def run_node(self, node: Node) -> Any:
        result = super().run_node(node)
        return result if node.op == "output" else _map(result, self._disturb)

    def _disturb(self, array: Array) -> Array:
        kind = dtypes.dtype(array.dtype)
        if not kind.is_float or not array.size:
            return array
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        largest = float(np.abs(finite).max(initial=0.0))
        relative, absolute = (self.rng.uniform(-1, 1, array.shape) for _ in range(2))
        if self.seed < 2:
            relative = absolute = np.full(array.shape, 1.0 - 2 * self.seed)
        step = self.noise[kind.name] * self.strength
        made = wide * (1 + step * relative) + 0.1 * step * largest * absolute
        return np.asarray(np.where(np.isfinite(wide), made, wide)).astype(array.dtype)


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
    found = _outer_difference(expected, actual)
    for number, (e, a) in enumerate(zip(leaves(expected), leaves(actual))):
        if found is not None:
            return found
        if e.tobytes() != a.tobytes():
            same = e == a
            if dtypes.dtype(e.dtype).is_float:
                same = same & (np.signbit(e) == np.signbit(a)) | np.isnan(e) & np.isnan(a)
            if not np.all(same):
                found = f"result {number}: expected\n{e!r}\ngot\n{a!r}"
    return found


def _outer_difference(expected: Any, actual: Any) -> str | None:
    if structure(expected) != structure(actual):
        return f"expected {structure(expected)}, got {structure(actual)}"
    for number, (e, a) in enumerate(zip(leaves(expected), leaves(actual))):
        if e.dtype != a.dtype or e.shape != a.shape:
            return (
                f"result {number}: expected {e.dtype}{list(e.shape)}, got {a.dtype}{list(a.shape)}"
            )
    return None


class Reference:
    """What a program computes, and how much of that rounding decides: ``noise`` by dtype."""

    def __init__(
        self, module: fx.GraphModule, arrays: Sequence[Array], noise: Mapping[str, float] = NOISE
    ) -> None:
        self.module, self.arrays, self.noise = module, arrays, noise
        self.result = run(module, arrays)
        self._runs: list[list[Array]] = []

    def close_difference(self, actual: Any, flat: bool = False) -> str | None:
        """Where a result differs by more than rounding explains; None: nowhere. ``flat``: the
        arrays alone are given, in a list."""
        found = _outer_difference(leaves(self.result) if flat else self.result, actual)
        if found is not None:
            return found
        for count in (FEW, MANY):
            self._disturb(count)
            found = self._too_far(actual)
            if found is None:
                return None
        return found

    def _disturb(self, count: int) -> None:
        """Have ``count`` disturbed runs, the later ones disturbed more."""
        with np.errstate(all="ignore"):
            for seed in range(len(self._runs), count):
                strength = (1.0, 1.0, 1.0, 1.0, 10.0)[seed % 5]
                made = Disturbed(self.module, seed, strength, self.noise).run(*self.arrays)
                self._runs.append(leaves(made))

    def _too_far(self, actual: Any) -> str | None:
        for number, (e, a) in enumerate(zip(leaves(self.result), leaves(actual))):
            disturbed = [r[number] for r in self._runs]
            kind = dtypes.dtype(e.dtype)
            if not kind.is_float:
                decided = np.all([d == e for d in disturbed], axis=0)
                if np.any((a != e) & decided):
                    return f"result {number}: expected\n{e!r}\ngot\n{a!r}"
                continue
            x, y = e.astype(np.float64), a.astype(np.float64)
            others = [d.astype(np.float64) for d in disturbed]
            finite = np.isfinite(x)
            decided = np.all([np.isfinite(o) == finite for o in others], axis=0)
            largest = float(np.abs(x, where=finite, out=np.zeros_like(x)).max(initial=0.0))
            with np.errstate(all="ignore"):
                spread = np.max([np.abs(o - x) for o in others], axis=0, initial=0.0)
                allowed = FACTOR * np.where(np.isfinite(spread), spread, 0.0)
                far = np.abs(x - y) > allowed + self.noise[kind.name] * largest
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            bad = np.where(finite, far | ~np.isfinite(y), ~same) & decided
            if np.any(bad):
                return f"result {number}: expected\n{e!r}\ngot\n{a!r}\nallowed\n{allowed!r}"
        return None


def sizes_of(module: fx.GraphModule, arrays: Sequence[Array]) -> Mapping[str, int]:
    """Named dims of the inputs."""
    runner = Contiguous(module)
    with np.errstate(all="ignore"):
        runner.run(*arrays)
    return runner.dims


def op_names(module: fx.GraphModule) -> list[str]:
    """Ops that are called."""
    return [n.target.name for n in module.graph.nodes if isinstance(n.target, Op)]
