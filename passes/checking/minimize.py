"""Delta minimizer: the smallest part of a graph that still shows a problem.

In: a GraphModule, inputs, and a predicate that is true where the problem shows. Out: a
:class:`Minimized`: a part of the graph for which it is still true, with recorded values in place of
what was cut off. For instance, where C differs from NumPy::

    def differs(part, inputs):
        compiled = fx.compile(part, backend="c")
        return not compare(part(*inputs), compiled(*inputs)).agrees

    found = passes.minimize(gm, inputs, differs)
    print(found)
    found.write_repro("repro.py", promise=computed)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.passes.checking.repro import COMPILED, write_repro
from fxlite.passes.cutting.subgraph import element_source, extract_subgraph
from fxlite.types.agreement import Exactness, exact

Inputs = tuple[Any, ...]
#: ``is_bad(module, inputs)``: whether the problem shows when ``module(*inputs)`` is tried.
Predicate = Callable[[GraphModule, Inputs], bool]


@dataclass(frozen=True)
class Step:
    """What one stage of the search did: how many calls were left, in how many trials."""

    name: str
    before: int
    after: int
    trials: int

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after} calls, {self.trials} trials"


@dataclass(frozen=True)
class Minimized:
    """A small graph that still shows the problem on ``inputs``, and how it was found."""

    module: GraphModule
    inputs: Inputs
    steps: tuple[Step, ...]

    def write_repro(
        self,
        path: str | os.PathLike[str],
        message: str = "",
        *,
        promise: Exactness = exact,
        expression: str = COMPILED,
    ) -> Path:
        """Write a Python file that compares the graph with ``expression`` on the recorded inputs;
        see :func:`fxlite.passes.checking.repro.write_repro`."""
        return write_repro(
            path, self.module, None, self.inputs, message,
            promise=promise, expression=expression,
        )  # fmt: skip

    def __str__(self) -> str:
        return "\n".join([*map(str, self.steps), str(self.module.graph)])

    __repr__ = __str__


@checked
def minimize(
    gm: GraphModule, inputs: Sequence[Any] | Mapping[str, Any], is_bad: Predicate
) -> Minimized:
    """A part of ``gm`` that is still bad and, but for the last stage, no call of which can be left
    out: what is left out is replaced by inputs that hold the values it computed.

    First the end and the beginning of the graph are bisected away, then calls and results are left
    out by delta debugging (A. Zeller and R. Hildebrandt, "Simplifying and isolating
    failure-inducing input", IEEE TSE 28, 2002: algorithm ddmin). That takes about log n trials for
    a problem of one call, at most about k**2 for the k calls that bisection leaves.

    ``is_bad`` gets a module and its inputs as a tuple; what it raises ends the search, so a
    predicate for "this raises" catches that itself. Raises ArgumentError where ``gm`` itself is not
    bad."""
    arguments = dict(inputs) if isinstance(inputs, Mapping) else {}
    positional = () if isinstance(inputs, Mapping) else tuple(inputs)
    values = gm.flatten_inputs(gm.bind(positional, arguments).arguments)
    flat = extract_subgraph(gm, gm.graph.nodes, name=gm.name)
    flat.graph.interface = None  # parts take and give arrays one by one
    flat.recompile()
    search = _Search(is_bad, flat, tuple(values[p.target] for p in flat.graph.placeholders))
    if not search.check(search.module, search.inputs):
        raise ArgumentError("the problem does not show on the whole graph with these inputs")
    search.stage("bisect the end", _Search.first_calls)
    search.stage("leave out results", _Search.few_results)
    search.stage("bisect the beginning", _Search.last_calls)
    search.stage("leave out calls", _Search.few_calls)
    search.stage("leave out results", _Search.few_results)
    return Minimized(search.module, search.inputs, tuple(search.steps))


class _Search:
    """The smallest bad module so far; the stages replace it by smaller ones."""

    def __init__(self, is_bad: Predicate, module: GraphModule, inputs: Inputs) -> None:
        self.is_bad = is_bad
        self.module, self.inputs = module, inputs
        self.steps: list[Step] = []
        self.trials = 0
        self.values: dict[Node, Any] = {}

    def check(self, module: GraphModule, inputs: Inputs) -> bool:
        """One trial."""
        self.trials += 1
        return bool(self.is_bad(module, inputs))

    def stage(self, name: str, run: Callable[[_Search], GraphModule]) -> None:
        """Record the values of the module so far, and make it smaller."""
        before = len(self._calls())
        self.trials = 0
        interpreter = Interpreter(self.module, garbage_collect_values=False)
        interpreter.run(*self.inputs)
        self.values = interpreter.env
        made = run(self)
        self.module, self.inputs = made, self._inputs(made)
        self.steps.append(Step(name, before, len(self._calls()), self.trials))

    # -- stages ----------------------------------------------------------------------------------
    def first_calls(self) -> GraphModule:
        """A prefix that is bad; the one before it is not."""
        calls = self._calls()
        good, bad = 0, len(calls)
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._bad_calls(calls[:middle]):
                bad = middle
            else:
                good = middle
        return self._of_calls(calls[:bad]) if bad < len(calls) else self.module

    def last_calls(self) -> GraphModule:
        """A suffix that is bad; the one after it is not."""
        calls = self._calls()
        bad, good = 0, len(calls)
        while good - bad > 1:
            middle = (good + bad) // 2
            if self._bad_calls(calls[middle:]):
                bad = middle
            else:
                good = middle
        return self._of_calls(calls[bad:]) if bad else self.module

    def few_calls(self) -> GraphModule:
        """Calls of which none can be left out."""
        calls = self._calls()
        left = ddmin(calls, self._bad_calls)
        return self._of_calls(left) if len(left) < len(calls) else self.module

    def few_results(self) -> GraphModule:
        """Results of which none can be left out, with what they need."""
        results = self.module.graph.output_node().all_input_nodes

        def bad(chosen: list[Node]) -> bool:
            made = extract_subgraph(self.module, outputs=chosen)
            return self.check(made, self._inputs(made))

        left = ddmin(results, bad)
        return extract_subgraph(self.module, outputs=left) if left != results else self.module

    # -- parts -----------------------------------------------------------------------------------
    def _calls(self) -> list[Node]:
        """What can be left out; elements of a call's result go with the call."""
        nodes = self.module.graph.nodes
        return [n for n in nodes if n.op.startswith("call_") and element_source(n) is None]

    def _of_calls(self, calls: Sequence[Node]) -> GraphModule:
        return extract_subgraph(self.module, calls)

    def _bad_calls(self, calls: Sequence[Node]) -> bool:
        made = self._of_calls(calls)
        return self.check(made, self._inputs(made))

    def _inputs(self, part: GraphModule) -> Inputs:
        """The recorded values of a part's inputs."""
        if part is self.module:
            return self.inputs
        recorded = {n.name: v for n, v in self.values.items()}
        values = [recorded[n.name] for n in part.graph.placeholders]
        return tuple(np.asarray(v) if isinstance(v, np.generic) else v for v in values)


def ddmin(items: Sequence[Any], is_bad: Callable[[list[Any]], bool]) -> list[Any]:
    """A part of ``items``, in order, that is bad while it is not with any one item less.

    ``items`` themselves are taken to be bad, and no items to be good."""
    items, pieces = list(items), 2
    while len(items) > 1:
        bounds = [len(items) * i // pieces for i in range(pieces + 1)]
        for low, high in pairwise(bounds):
            if is_bad(items[low:high]):
                items, pieces = items[low:high], 2
                break
        else:
            for low, high in pairwise(bounds) if pieces > 2 else ():
                rest = items[:low] + items[high:]
                if is_bad(rest):
                    items, pieces = rest, pieces - 1
                    break
            else:
                if pieces == len(items):
                    break
                pieces = min(len(items), 2 * pieces)
    return items
