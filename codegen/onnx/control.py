"""Conditions and loops as If and Loop, whose bodies read the values around them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxlite.codegen.onnx.builder import Builder, Value, exports
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


def _names(b: Builder, values: Sequence[Any], types: Sequence[TensorType]) -> list[str]:
    return [b.operand(value, type.dtype) for value, type in zip(values, types)]


def _run(b: Builder, body: Any, inputs: Sequence[str]) -> list[tuple[str, TensorType]]:
    """Write the calls of a body whose inputs have these names; returns (name, type) of its results."""
    b.values.update(zip(body.inputs, inputs))
    b.write(body.calls)
    return [(b.values[node], node.type) for node in body.results]


def _given(b: Builder, results: Sequence[tuple[str, TensorType]], taken: set[str]) -> list[Any]:
    """The declared results of a body: each must be computed by a node in it, and occur once."""
    inside = {name for node in b.nodes for name in node.output}
    found = []
    for name, type in results:
        if name not in inside or name in taken:
            name = b.op("Identity", name)
        taken.add(name)
        found.append(b.info(name, type))
    return found


def _graph(b: Builder, nodes: Any, title: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    known = {v.name for v in (*inputs, *outputs)}
    inner = [b.info(n, t) for n, t in b.types.items() if n not in known]
    return b.onnx.helper.make_graph(nodes, title, inputs, outputs, value_info=inner)


@exports("cond")
def cond(b: Builder, type: Any, pred: Any, operands: Sequence[Any], true_fn: Any, false_fn: Any) -> list[str]:
    base = b.result
    graphs = []
    for title, body in (("then", true_fn), ("else", false_fn)):
        names = _names(b, operands, body.input_types)
        with b.inside() as nodes:
            outputs = _given(b, _run(b, body, names), set())
            graphs.append(_graph(b, nodes, f"{base}_{title}", [], outputs))
        b.result = base
    chosen = b.operand(pred, dtypes.bool_)
    return b.results(len(type), "If", chosen, then_branch=graphs[0], else_branch=graphs[1])


def _loop(
    b: Builder, count: str | None, first: str | None, carried: Sequence[Any], types: Sequence[TensorType], body: Any
) -> list[str]:
    """Write a Loop. ``body`` writes an iteration: from its number and the values in to the condition and values out."""
    base = b.result
    start = _names(b, carried, types)
    with b.inside() as nodes:
        number, going = b.fresh(f"{base}_iteration"), b.fresh(f"{base}_going")
        names = [b.fresh(f"{base}_carried_{i}") for i in range(len(start))]
        inputs = [b.info(number, TensorType((), dtypes.int64)), b.info(going, TensorType((), dtypes.bool_))]
        inputs += [b.info(n, t) for n, t in zip(names, types)]
        goes, results = body(number, going, names)
        b.result = base
        taken: set[str] = set()
        outputs = _given(b, [(goes, TensorType((), dtypes.bool_)), *results], taken)
        graph = _graph(b, nodes, f"{base}_body", inputs, outputs)
    b.result = base
    return b.results(len(start), "Loop", count, first, *start, body=graph)


@exports("while_loop")
def while_loop(
    b: Builder, type: Any, carried: Sequence[Any], captured: Sequence[Any], cond_fn: Any, body_fn: Any
) -> list[str]:
    """Compute the condition before the loop, and at the end of each iteration."""
    count = len(carried)
    types, base = body_fn.input_types, b.result
    others = _names(b, captured, types[count:])
    begin = _names(b, carried, types)
    ((first, _),) = _run(b, cond_fn, [*begin, *others])
    b.result = base

    def body(number: str, going: str, names: Sequence[str]) -> Any:
        results = _run(b, body_fn, [*names, *others])
        ((goes, _),) = _run(b, cond_fn, [*(n for n, _ in results), *others])
        return goes, results

    return _loop(b, None, first, [Value(n, t) for n, t in zip(begin, types)], types[:count], body)


@exports("fori_loop")
def fori_loop(
    b: Builder, type: Any, lower: Any, upper: Any, carried: Sequence[Any], captured: Sequence[Any], body_fn: Any
) -> list[str]:
    count = len(carried)
    types = body_fn.input_types[1:]
    others = _names(b, captured, types[count:])
    wide: DType = dtypes.int64
    start, end = b.operand(lower, wide), b.operand(upper, wide)
    rounds = b.op("Max", b.op("Sub", end, start), b.number(0, wide))

    def body(number: str, going: str, names: Sequence[str]) -> Any:
        index = number if lower == 0 else b.op("Add", number, start)
        return going, _run(b, body_fn, [index, *names, *others])

    return _loop(b, rounds, None, carried, types[:count], body)
