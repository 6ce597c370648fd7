"""What NumPy computes in a time that grows with its operands, or a little faster, a graph computes in no more: no
operation of it grows with the square of a named size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c import templates
from fxlite.codegen.program.program import optimize
from fxlite.show.node_cost import node_cost
from fxlite.types import shapes

X, Y, K = "f64[N]", "f64[N]", "i64[N]"


def _with(write: Callable[..., Any]) -> Callable[..., Any]:
    """A program that writes into a copy of its first argument."""

    def program(x: Any, *others: Any) -> Any:
        z = x.copy()
        write(z, *others)
        return z

    return program


PROGRAMS: dict[str, tuple[Callable[..., Any], ...]] = {
    "x[i] = 1": (_with(lambda z, i: z.__setitem__(i, 1.0)), X, K),
    "x[i] = y": (_with(lambda z, i, y: z.__setitem__(i, y)), X, K, Y),
    "x[i] += 1": (_with(lambda z, i: z.__setitem__(i, z[i] + 1)), X, K),
    "x[i, :] = row": (_with(lambda z, i, y: z.__setitem__(i, y)), "f64[N,3]", K, "f64[3]"),
    "x[mask] = 0": (_with(lambda z: z.__setitem__(z > 0.5, 0.0)), X),
    "np.put": (_with(lambda z, i: np.put(z, i, 1.0)), X, K),
    "np.place": (_with(lambda z: np.place(z, z > 0.5, [1.0, 2.0])), X),
    "np.add.at": (_with(lambda z, i: np.add.at(z, i, 1.0)), X, K),
    "np.put_along_axis": (_with(lambda z, i: np.put_along_axis(z, i, 1.0, 0)), X, K),
    "isin": (lambda a, b: np.isin(a, b), K, K),
    "isin few": (lambda a: np.isin(a, [1, 3]), K),
    "union1d": (lambda a, b: np.union1d(a, b), K, K),
    "intersect1d": (lambda a, b: np.intersect1d(a, b), K, K),
    "setdiff1d": (lambda a, b: np.setdiff1d(a, b), K, K),
    "setxor1d": (lambda a, b: np.setxor1d(a, b), K, K),
    "unique": (lambda a: np.unique(a, return_inverse=True, return_counts=True), K),
    "cumsum": (np.cumsum, X),
    "maximum.accumulate": (np.maximum.accumulate, X),
    "unwrap": (np.unwrap, X),
    "sort": (np.sort, X),
    "argsort": (lambda x: np.argsort(np.argsort(x)), X),
    "lexsort": (lambda a, b: np.lexsort((a, b)), X, X),
    "median": (np.median, X),
    "percentile": (lambda x: np.percentile(x, 30), X),
    "searchsorted": (np.searchsorted, X, X),
    "interp": (lambda x, y: np.interp(x, x, y), X, Y),
    "histogram": (lambda x: np.histogram(x, 10)[0], X),
    "bincount": (lambda i: np.bincount(i % 10, minlength=10), K),
    "convolve": (lambda x: np.convolve(x, [1.0, 2.0, 3.0]), X),
    "repeat": (lambda x, i: np.repeat(x, i % 3), X, K),
    "take": (lambda x, i: x[i], X, K),
    "x[mask]": (lambda x: np.cumsum(np.sort(x[x > 0.5])), X),
    "nonzero": (lambda x: np.nonzero(x > 0.5)[0], X),
    "corrcoef": (lambda x, y: np.corrcoef(x, y), X, Y),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_operation_grows_with_the_square(name: str) -> None:
    program, *types = PROGRAMS[name]
    module, _ = optimize(fx.symbolic_trace(program, *types), keep=templates.claims)
    for node in module.graph.find_nodes(op="call_function"):
        cost = node_cost(node)
        for amount in (cost.flops, cost.written):
            small, large = (shapes.substitute(amount or 1, {"N": size}) for size in (10**5, 10**6))
            assert large <= 15 * small, f"{node.describe()}: {amount}"
