"""Words of tests for programs: trace one, and say which ops it calls, which templates wrote it, all its facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fxlite as fx
from fxlite.ops.op import REGISTRY, Op
from fxlite.ops.samples import Sample
from fxlite.show.node_cost import longest_chain
from fxlite.types.agreement import Chain


def trace(program: Any, *types: str) -> fx.GraphModule:
    """A traced program; without types one f32[3,4] input."""
    return fx.symbolic_trace(program, *(types or ("f32[3,4]",)))


def of_arrays(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function of so many named arrays, of which a program can be traced, in place of one of ``*arrays``."""
    names = ", ".join(f"x{i}" for i in range(count))
    space: dict[str, Any] = {"function": function}
    exec(f"def program({names}): return function({names})", space)
    return space["program"]  # type: ignore[no-any-return]


def sample_program(op: Op, sample: Sample) -> Callable[..., Any]:
    """A function of the arrays of a sample that calls the op."""
    return of_arrays(lambda *values: sample.call(op, values), len(sample.types()))


def traced_sample(name: str, number: int) -> tuple[Any, list[Any], fx.GraphModule, Chain]:
    """A sample of an op: the program, its inputs, the module, and how long its chains are."""
    sample = REGISTRY[name].samples[number]
    program = sample_program(REGISTRY[name], sample)
    module = fx.symbolic_trace(program, *sample.types())
    return program, sample.arrays(seed=number), module, longest_chain(module.graph.nodes, sample.dims)


def ops_of(program: Any) -> list[str]:
    """The names of the ops that a module calls, in order."""
    return [node.target.name for node in program.graph.find_nodes(op="call_function")]


def anchors_of(function: Any) -> list[str]:
    """The names of the ops whose templates wrote kernels of a compiled function, in order."""
    return [kernel.anchor.target.name for kernel in function.kernels if kernel.anchor is not None]


def facts(gm: fx.GraphModule) -> list[Any]:
    """All there is to know about a graph's nodes, which a file must keep."""
    return [
        (n.name, n.op, n.target, str(n.args), str(n.kwargs), n.type, n.scope, n.loc, str(n.meta))
        for n in gm.graph.nodes
    ]
