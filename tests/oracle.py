"""The one oracle (docs/design.md): every way to run a program must give the same answer.

``agree(program, *inputs)`` runs eager NumPy, the traced graph interpreted, the regenerated Python,
the kernels in NumPy, the compiled C and CUDA (on a GPU where there is one, else on the CPU shim),
and names the first rung that differs. fxlite/types/agreement.py says what a difference is: with
numbers as long as the longest chain of operations in the graph explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.codegen.c import templates
from fxlite.codegen.program.program import optimize, plan
from fxlite.codegen.program.run import run_program
from fxlite.show.node_cost import longest_chain
from fxlite.types import agreement
from fxlite.types.agreement import USUAL, Agreement, Chain
from tests.cuda_launchers import device_option


class Disagreement(AssertionError):
    """Two rungs of the oracle give different answers."""


def flatten(result: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays of a nested result, in order."""
    return agreement.leaves(result)


def compare(rung: str, actual: Any, expected: Any, chain: Chain = USUAL) -> Agreement:
    """Raise Disagreement where the arrays of ``actual`` are not those of ``expected``, as far as
    rounding in a chain of operations may go; nesting does not count, since kernels know none."""
    found = agreement.compare(flatten(expected), flatten(actual), chain=chain)
    if not found.agrees:
        raise Disagreement(f"{rung}: {found}")
    return found


def agree(
    program: Any,
    *inputs: np.ndarray[Any, Any],
    types: Sequence[Any] | None = None,
    rungs: Sequence[str] = ("graph", "python", "kernel", "c"),
    loops: str = "auto",
) -> fx.GraphModule:
    """Run all rungs on ``inputs``; ``types`` are the input types to trace with (default: the
    inputs'), and ``loops`` which loops stay such. Returns the traced GraphModule."""
    module = fx.symbolic_trace(program, *(types if types is not None else inputs), loops=loops)
    module.graph.lint()
    expected = written(module, program, inputs)
    predicted = flatten_types(module.graph.output_node().type)
    env = _dims(module, inputs)
    for number, (declared, value) in enumerate(zip(predicted, flatten(expected))):
        concrete = declared.substitute(env)
        if concrete.shape != value.shape or concrete.dtype.numpy != value.dtype:
            raise Disagreement(
                f"type rule, result {number}: {declared} is {concrete}, eager gives {value.dtype}{value.shape}"
            )
    chain = longest_chain(module.graph.nodes, env)
    for rung in rungs:
        actual = RUNGS[rung](module, inputs)
        compare(rung, actual, expected, chain)
    return module


def written(module: fx.GraphModule, call: Any, inputs: Sequence[Any]) -> Any:
    """What ``call`` gives on the inputs; where the program writes into some, on copies, and with
    what stands in these afterwards."""
    targets = module.written_inputs()
    if not targets:
        return call(*inputs)
    names = [n.target for n in module.graph.placeholders]
    given = [x.copy() if name in targets else x for name, x in zip(names, inputs)]
    result = call(*given)
    return (result, *(given[names.index(target)] for target in targets))


def flatten_types(value: Any) -> list[fx.TensorType]:
    """Types of a nested result, in order."""
    if value is None:
        return []
    if isinstance(value, fx.TensorType):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [t for v in items for t in flatten_types(v)]


def _dims(module: fx.GraphModule, inputs: Sequence[Any]) -> Mapping[str, int]:
    from fxlite.graph.graph_module import check_inputs

    names = [n.target for n in module.graph.placeholders]
    return check_inputs("oracle", module.graph.placeholders, dict(zip(names, inputs)))


def _graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return written(module, fx.Interpreter(module).run, inputs)


def _python(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return written(module, module, inputs)


def _kernel(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    optimized, _ = optimize(module)
    return run_program(plan(optimized, templates.claims, control=True), inputs)


def _c(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return written(module, fx.compile(module, backend="c"), inputs)


def _cuda(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return written(module, fx.compile(module, backend="cuda", device=device_option()), inputs)


#: The ways to run a traced module; each is compared with eager NumPy.
RUNGS: dict[str, Any] = {"graph": _graph, "python": _python, "kernel": _kernel, "c": _c, "cuda": _cuda}
