"""The one oracle (docs/design.md): every way to run a program must give the same answer.

``agree(program, *inputs)`` runs eager NumPy, the traced graph interpreted, the regenerated Python,
the kernels in NumPy, the compiled C and CUDA (on a GPU where there is one, else on the CPU shim),
and names the first rung that differs; ``agree_on_all`` does so for several sets of inputs, for which
the program is traced and built once. fxlite/types/agreement.py says what a difference is: with
numbers as long as the longest chain of operations in the graph explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
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
    return Ladder(program, types if types is not None else inputs, rungs, loops).check(inputs)


def agree_on_all(
    program: Any,
    sets: Iterable[Sequence[np.ndarray[Any, Any]]],
    *,
    types: Sequence[Any] | Callable[[Any], Sequence[Any]] | None = None,
    rungs: Sequence[str] = ("graph", "python", "kernel", "c"),
    loops: str = "auto",
) -> None:
    """:func:`agree` on several sets of inputs. Those of the same types share a trace and a build of each
    rung, which are therefore also called repeatedly; ``types`` may be a function of the inputs."""
    ladders: dict[str, Ladder] = {}
    for inputs in sets:
        wanted = types(inputs) if callable(types) else types
        declared = wanted if wanted is not None else [fx.types.type_of(value) for value in inputs]
        key = ", ".join(map(str, declared))
        if key not in ladders:
            ladders[key] = Ladder(program, declared, rungs, loops)
        ladders[key].check(inputs)


class Ladder:
    """A program that was traced once, with the rungs that are to be compared with it, each built once."""

    def __init__(self, program: Any, types: Sequence[Any], rungs: Sequence[str], loops: str = "auto") -> None:
        self.program, self.rungs = program, rungs
        self.module = fx.symbolic_trace(program, *types, loops=loops)
        self.module.graph.lint()
        self._built: dict[str, Run] = {}

    def check(self, inputs: Sequence[np.ndarray[Any, Any]]) -> fx.GraphModule:
        """Compare all rungs on these inputs; returns the traced GraphModule."""
        module = self.module
        assert not (self._built and module.states), "a program with a state is traced anew for each set of inputs"
        expected = written(module, self.program, inputs)
        predicted = flatten_types(module.graph.output_node().type)
        env = _dims(module, inputs)
        for number, (declared, value) in enumerate(zip(predicted, flatten(expected))):
            concrete = declared.substitute(env)
            if concrete.shape != value.shape or concrete.dtype.numpy != value.dtype:
                raise Disagreement(
                    f"type rule, result {number}: {declared} is {concrete}, eager gives {value.dtype}{value.shape}"
                )
        chain = longest_chain(module.graph.nodes, env)
        for rung in self.rungs:
            if rung not in self._built:
                self._built[rung] = RUNGS[rung](module)
            compare(rung, self._built[rung](inputs), expected, chain)
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


#: What a rung makes of a module: it computes the results of inputs.
Run = Callable[[Sequence[Any]], Any]


def _graph(module: fx.GraphModule) -> Run:
    return partial(written, module, fx.Interpreter(module).run)


def _python(module: fx.GraphModule) -> Run:
    return partial(written, module, module)


def _kernel(module: fx.GraphModule) -> Run:
    optimized, _ = optimize(module)
    return partial(run_program, plan(optimized, templates.claims, control=True))


def _c(module: fx.GraphModule) -> Run:
    return partial(written, module, fx.compile(module, backend="c"))


def _cuda(module: fx.GraphModule) -> Run:
    return partial(written, module, fx.compile(module, backend="cuda", device=device_option()))


#: The ways to run a traced module, ``RUNGS[name](module)(inputs)``; each is compared with eager NumPy.
RUNGS: dict[str, Callable[[fx.GraphModule], Run]] = {
    "graph": _graph,
    "python": _python,
    "kernel": _kernel,
    "c": _c,
    "cuda": _cuda,
}
