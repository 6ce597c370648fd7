"""The same program in torch.fx and in fxlite, to compare what both make of it.

A program is ``program(m, *values)``, where ``m`` is :data:`TORCH` or :data:`OURS`: elementwise
functions under the same names. :func:`structure` describes a graph in words that both share."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F

torch: Any = pytest.importorskip("torch", reason="compared with torch.fx (extra 'torch')")
import torch.fx as tfx  # noqa: E402

NAMES = ("sin", "cos", "tanh", "exp")
BOUNDED = NAMES[:3]
TORCH = types.SimpleNamespace(**{n: getattr(torch, n) for n in NAMES}, relu=torch.relu, fx=tfx)
OURS = types.SimpleNamespace(**{n: getattr(np, n) for n in NAMES}, relu=F.relu, fx=fx)
Program = Callable[..., Any]
X = np.float32([[0.5, -0.75, 0.125], [1, 0.25, -0.5]])


def traced(program: Program, n_inputs: int = 1, typed: bool = True) -> tuple[Any, fx.GraphModule]:
    """The program as both trace it."""
    names = [f"x{i}" for i in range(n_inputs)]
    space: dict[str, Any] = {}
    for name, m in (("theirs", TORCH), ("ours", OURS)):
        space[f"p_{name}"], space[f"m_{name}"] = program, m
        listed = ", ".join(names)
        exec(f"def {name}({listed}): return p_{name}(m_{name}, {listed})", space)
    kinds = dict.fromkeys(names, "f32[2,3]") if typed else {}
    return tfx.symbolic_trace(space["theirs"]), fx.symbolic_trace(space["ours"], inputs=kinds)


def random_program(seed: int, length: int) -> Program:
    """A program of two inputs in which each call reads one or two values before it, and which
    returns all that is not read."""

    def program(m: Any, x: Any, y: Any) -> Any:
        generator, values, unread = random.Random(seed), [x, y], {}
        for place in range(2, 2 + length):
            a, b = (generator.randrange(max(0, place - 4), place) for _ in range(2))
            name = generator.choice((*BOUNDED, "add", "mul"))
            if name in BOUNDED:
                b = a
                values.append(getattr(m, name)(values[a]))
            else:
                p, q = values[a], values[b]
                values.append(p + q if name == "add" else p * q)
            unread[place] = values[-1]
            for used in (a, b):
                unread.pop(used, None)
        return tuple(unread.values())

    return program


def structure(graph: Any, names: bool = True) -> list[tuple[Any, ...]]:
    """For each node, inputs first, what it is and which nodes, by their places, and values it
    reads. Without ``names`` inputs are called alike: torch.fx renames those of submodules."""
    nodes = sorted(graph.nodes, key=lambda n: n.op != "placeholder")
    place = {node: f"%{i}" for i, node in enumerate(nodes)}

    def value(v: Any) -> Any:
        if isinstance(v, (tuple, list)):
            return tuple(map(value, v))
        return place.get(v, v) if isinstance(v, (fx.Node, tfx.Node)) else v

    found = []
    for node in nodes:
        target = getattr(node.target, "__name__", None) or getattr(node.target, "name", node.target)
        title = "" if node.op == "placeholder" and not names else target
        found.append((node.op, title, *map(value, node.args), *map(value, node.kwargs.values())))
    return found


def assert_alike(theirs: Any, mine: fx.GraphModule, *inputs: Any, names: bool = True) -> None:
    """Both modules, and those that they call, have the same structure and results."""
    mine.graph.lint(full=True)
    expected, found = structure(theirs.graph, names), structure(mine.graph, names)
    differ = [f"{a} != {b}" for a, b in zip(found, expected, strict=True) if a != b]
    assert not differ, "\n".join(differ)
    for node in mine.graph.find_nodes(op="call_module"):
        child = mine.get_submodule(node.target)
        if isinstance(child, fx.GraphModule):
            assert_alike(theirs.get_submodule(node.target), child, names=False)
    if inputs:
        assert_same_results(theirs(*map(torch.tensor, inputs)), mine(*inputs))


def assert_same_results(theirs: Any, mine: Any) -> None:
    """Equal arrays, but for rounding."""
    pairs = zip(theirs, mine, strict=True) if isinstance(theirs, tuple) else [(theirs, mine)]
    for a, b in pairs:
        np.testing.assert_allclose(b, a.numpy(), rtol=1e-5, atol=1e-6)
