"""Torch's higher-order ops: conditions, loops and scans of graphs, which become fxlite's; and graphs
that run under another setting of torch, which run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import fxlite as fx
from fxlite.importing.torch.table import Call, op


def _runner(c: Call, module: Any) -> Callable[..., list[Any]]:
    """A graph of torch as a function of its inputs."""

    def run(*given: Any) -> list[Any]:
        remaining = iter(given)
        return c.run.run_graph(module, lambda _: next(remaining))  # type: ignore[no-any-return]

    return run


def cond(c: Call, pred: Any, true_graph: Any, false_graph: Any, operands: Any = ()) -> Any:
    """torch.cond."""
    one, other = _runner(c, true_graph), _runner(c, false_graph)
    return list(fx.cond(pred, lambda *v: tuple(one(*v)), lambda *v: tuple(other(*v)), tuple(operands)))


def while_loop(c: Call, test: Any, body: Any, carried: Any, more: Any = ()) -> Any:
    """torch.while_loop; ``more`` are values that it reads and does not change."""
    condition, step = _runner(c, test), _runner(c, body)
    found = fx.while_loop(lambda *v: condition(*v, *more)[0], lambda *v: tuple(step(*v, *more)), tuple(carried))
    return list(found)


def scan(c: Call, combine: Any, init: Any, xs: Any, more: Any = ()) -> Any:
    """torch's scan along the first axis: the last states, then the stacked results."""
    step, count = _runner(c, combine), len(init)

    def body(carry: Any, x: Any) -> Any:
        found = step(*carry, *x, *more)
        return tuple(found[:count]), tuple(found[count:])

    last, stacked = fx.scan(body, tuple(init), tuple(xs))
    return [*last, *stacked]


def inline(skipped: int) -> Callable[..., Any]:
    """A graph that runs where it stands, behind ``skipped`` settings."""

    def call(c: Call, *args: Any, **_: Any) -> Any:
        return _runner(c, args[skipped])(*args[skipped + 1 :])

    return call


def map_rows(c: Call, body: Any, xs: Any, more: Any = ()) -> Any:
    """torch's map: a function of each row."""
    rows = len(c.value[0]) if isinstance(c.value, (list, tuple)) else len(c.value)
    run = _runner(c, body)
    found = [run(*(x[i] for x in xs), *more) for i in range(rows)]
    return [op("stack")(list(parts), 0) for parts in zip(*found)]


#: Higher-order ops and their entries.
_NAMES: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    "map_impl": map_rows,
    "wrap_with_set_grad_enabled": inline(1),
    "wrap_with_autocast": inline(4),
    "wrap": inline(0),
}
#: By the ops, of those that this torch has.
HIGHER: dict[Any, Callable[..., Any]] = {
    getattr(torch.ops.higher_order, name): entry
    for name, entry in _NAMES.items()
    if hasattr(torch.ops.higher_order, name)
}
