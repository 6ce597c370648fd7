"""Find the smallest part of a graph that still shows a problem, and write a Python file that shows
it, for a bug report or a test.

In: a GraphModule, inputs, and a predicate that is true if the problem shows. Out: a
:class:`Minimized`: a part of the graph for which it is still true, with recorded values in place of
the parts that were cut off. For instance, if C differs from NumPy::

    def differs(part, inputs):
        compiled = fx.compile(part, backend="c")
        return not compare(part(*inputs), compiled(*inputs)).agrees

    found = passes.minimize(gm, inputs, differs)
    print(found)
    found.write_repro("repro.py", promise=computed)

In: a graph, what it is compared with, and inputs. Out: a file with both graphs as text, which needs
only fxlite, prints the first difference and exits with status 1 while there is one
(:func:`write_repro`). Small arrays are written into the file, large ones into a safetensors file beside it.
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
from fxlite.base.errors import ArgumentError, GraphError, number_of
from fxlite.files.serialize import save_safetensors
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.nn.module import Parameter
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.cutting.subgraph import element_source, extract_subgraph
from fxlite.show.node_cost import longest_chain
from fxlite.types.agreement import USUAL, Chain, Exactness, compare, computed, exact, leaves
from fxlite.types.tensor_type import parse_type, type_of

#: Most numbers of an array that is written into the file itself.
MOST_NUMBERS = 64
#: What the graph is compared with unless told: what it is compiled to.
COMPILED = 'fx.compile(before, backend="c")'


@checked
def write_repro(
    path: str | os.PathLike[str],
    before: GraphModule,
    after: GraphModule | None,
    inputs: Sequence[Any] | Mapping[str, Any],
    message: str = "",
    *,
    promise: Exactness = exact,
    expression: str = COMPILED,
) -> Path:
    """Write a Python file that compares ``before``, interpreted, with ``after``; returns its path.

    Without ``after`` the file computes it: ``expression`` is Python text that may use ``before``, such
    as ``"passes.cse(before)"``. ``inputs`` are arrays in the order in which ``before`` takes them;
    ``promise`` says how far the results may differ.

    Raises GraphError for leaf modules, whose code is not known."""
    path = Path(path)
    arguments = inputs if isinstance(inputs, Mapping) else {}
    positional = () if isinstance(inputs, Mapping) else tuple(inputs)
    values = before.flatten_inputs(before.bind(positional, dict(arguments)).arguments)
    arrays = _Arrays()
    listed = [
        f"    {p.target!r}: {arrays.text(f'inputs.{p.target}', values[p.target])}," for p in before.graph.placeholders
    ]
    graphs, made = _graph_lines("before", before, arrays)
    if after is None:
        made.append(f"after = {expression}")
    else:
        more = _graph_lines("after", after, arrays)
        graphs += more[0]
        made += more[1]
    beside = path.with_suffix(".safetensors")
    head = [
        *f'"""{_plain(message) or "Two programs that should agree."}'.splitlines(),
        "",
        "The exit status is 1 while they differ.",
        '"""',
        "",
        *(["from pathlib import Path", ""] if arrays.stored else []),
        "import fxlite as fx",
        "from fxlite import nn, passes  # noqa: F401",
        f"from fxlite.types.agreement import {_promise_name(promise)}",
        "from fxlite.passes.checking.minimize import array, run_repro  # noqa: F401",
        "",
    ]
    if arrays.stored:
        save_safetensors(arrays.stored, beside)
        head.append(f"ARRAYS = fx.load_safetensors(Path(__file__).with_name({beside.name!r}))")
    call = f"run_repro(before, after, INPUTS, {_promise_text(promise)})"
    main = ["", 'if __name__ == "__main__":', f"    raise SystemExit({call})", ""]
    path.write_text("\n".join([*head, "INPUTS = {", *listed, "}", *graphs, *made, *main]), encoding="utf-8")
    return path


class _Arrays:
    """Texts that recreate arrays; large arrays are collected in ``stored``, each once."""

    def __init__(self) -> None:
        self.stored: dict[str, np.ndarray[Any, Any]] = {}

    def text(self, name: str, value: Any) -> str:
        """An expression for an array; other values as Python literals."""
        if not isinstance(value, (np.ndarray, np.generic)):
            return repr(value)
        flat = np.asarray(value)
        if flat.size <= MOST_NUMBERS:
            numbers = ", ".join(map(_number, flat.reshape(-1).tolist()))
            return f'array("{type_of(flat)}", [{numbers}])'
        for known, other in self.stored.items():
            if other is flat:
                return f"ARRAYS[{known!r}]"
        self.stored[name] = flat
        return f"ARRAYS[{name!r}]"


def _number(value: Any) -> str:
    special = isinstance(value, float) and not np.isfinite(value)
    return f'float("{value}")' if special else repr(value)


def _graph_lines(name: str, gm: GraphModule, arrays: _Arrays) -> tuple[list[str], list[str]]:
    """The graph as text, and the lines that build a module from it."""
    gm = flattened(gm)
    for node in gm.graph.find_nodes(op="call_module"):
        raise GraphError(f"{node.describe()} calls a leaf module, whose code cannot be written")
    lines = ["", f'{name.upper()} = """', *_plain(gm.graph.text(full=True)).splitlines(), '"""', ""]
    weights = []
    for path in dict.fromkeys(n.target for n in gm.graph.find_nodes(op="get_attr")):
        value = gm.get_attribute(path)
        text = arrays.text(f"{name}.{path}", value)
        is_parameter = isinstance(value, Parameter) and value.is_parameter
        weights.append(f"    {path!r}: {f'nn.Parameter({text})' if is_parameter else text},")
    listed = ["{", *weights, "}"] if weights else ["{}"]
    made = [f"{name}_weights = {listed[0]}", *listed[1:]]
    made.append(f"{name} = fx.GraphModule({name}_weights, fx.parse({name.upper()}), {gm.name!r})")
    if gm.training:
        made.append(f"{name}.train()")
    else:
        made.append(f"{name}.eval()")
    return lines, made


def _promise_name(promise: Exactness) -> str:
    return "computed" if promise == computed else promise.kind


def _promise_text(promise: Exactness) -> str:
    given = {"rtol": promise.rtol, "atol": promise.atol, "db": promise.db}
    arguments = ", ".join(f"{k}={v!r}" for k, v in given.items() if v is not None)
    name = _promise_name(promise)
    return name if name in ("exact", "computed") else f"{name}({arguments})"


def _plain(text: str) -> str:
    """Text that cannot end the string literal that holds it."""
    return text.replace("\\", "/").replace('"""', "'''")


# -- what the file calls ---------------------------------------------------------------------------
def array(type: str, numbers: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The array of this type with these numbers in C order: ``array("f32[2,2]", [1, 2, 3, 4])``."""
    wanted = parse_type(type)
    return np.array(numbers).astype(wanted.dtype.numpy).reshape(wanted.shape)


def run_repro(
    before: GraphModule, after: Callable[..., Any], inputs: Mapping[str, Any], promise: Exactness = exact
) -> int:
    """Run both programs (GraphModules are interpreted) and print the first difference; returns 1 if there is one."""

    def run(program: Callable[..., Any]) -> tuple[list[np.ndarray[Any, Any]], Chain]:
        if not isinstance(program, GraphModule):
            return leaves(program(*inputs.values())), USUAL
        runner = Interpreter(program)
        result = runner.run(*inputs.values())
        return leaves(result), longest_chain(program.graph.nodes, runner.dims)

    (expected, one), (actual, other) = run(before), run(after)
    found = compare(expected, actual, promise, one.at_least(other).at_least(USUAL))
    print("no difference" if found.agrees else found)
    return int(not found.agrees)


Inputs = tuple[Any, ...]
#: ``is_bad(module, inputs)``: whether the problem shows when ``module(*inputs)`` is tried.
Predicate = Callable[[GraphModule, Inputs], bool]


@dataclass(frozen=True)
class Step:
    """What one stage of the search did: how many calls it left, and how many trials it took."""

    name: str
    before: int
    after: int
    trials: int

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {number_of(self.after, 'call')}, {number_of(self.trials, 'trial')}"


# -- the smallest part -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Minimized:
    """A small graph that still shows the problem on ``inputs``, and how it was found."""

    module: GraphModule
    inputs: Inputs
    steps: tuple[Step, ...]

    def write_repro(
        self, path: str | os.PathLike[str], message: str = "", *, promise: Exactness = exact, expression: str = COMPILED
    ) -> Path:
        """Write a Python file that compares the graph with ``expression`` on the recorded inputs;
        see :func:`fxlite.passes.checking.minimize.write_repro`."""
        return write_repro(path, self.module, None, self.inputs, message, promise=promise, expression=expression)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.steps), self.module.graph.text(full=True)])

    __repr__ = __str__


@checked
def minimize(gm: GraphModule, inputs: Sequence[Any] | Mapping[str, Any], is_bad: Predicate) -> Minimized:
    """Find a part of ``gm`` for which ``is_bad`` is still true and, except after the last stage, of
    which no call can be left out. What is left out is replaced by inputs that hold the values it
    computed.

    First the end and the beginning of the graph are cut off by bisection, then calls and results are
    left out by delta debugging (A. Zeller and R. Hildebrandt, "Simplifying and isolating
    failure-inducing input", IEEE TSE 28, 2002: algorithm ddmin). That takes about log n trials for a
    problem of one call, and at most about k**2 for the k calls that bisection leaves.

    ``is_bad`` is called with a module and its inputs as a tuple. An exception that it raises ends the
    search, so a predicate for "this raises" must catch it. Raises ArgumentError if the problem does
    not show on ``gm`` itself."""
    arguments = dict(inputs) if isinstance(inputs, Mapping) else {}
    positional = () if isinstance(inputs, Mapping) else tuple(inputs)
    values = gm.flatten_inputs(gm.bind(positional, arguments).arguments)
    flat = extract_subgraph(gm, gm.graph.nodes, name=gm.name)
    flat.graph.interface, flat.graph.taps = None, ()  # parts take and return arrays one by one
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
    """The smallest bad module so far, which each stage replaces by a smaller one."""

    def __init__(self, is_bad: Predicate, module: GraphModule, inputs: Inputs) -> None:
        self.is_bad = is_bad
        self.module, self.inputs = module, inputs
        self.steps: list[Step] = []
        self.trials = 0
        self.values: dict[Node, Any] = {}

    def check(self, module: GraphModule, inputs: Inputs) -> bool:
        """Run one trial."""
        self.trials += 1
        return bool(self.is_bad(module, inputs))

    def stage(self, name: str, run: Callable[[_Search], GraphModule]) -> None:
        """Record the values of the current module, and make it smaller."""
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
        """A prefix that is bad, although the next shorter one is not."""
        calls = self._calls()
        bad = self._bisected(0, len(calls), lambda count: calls[:count])
        return self._of_calls(calls[:bad]) if bad < len(calls) else self.module

    def last_calls(self) -> GraphModule:
        """A suffix that is bad, although the next shorter one is not."""
        calls = self._calls()
        bad = self._bisected(len(calls), 0, lambda start: calls[start:])
        return self._of_calls(calls[bad:]) if bad else self.module

    def _bisected(self, good: int, bad: int, part: Callable[[int], list[Node]]) -> int:
        """A number whose part is bad, next to a number whose part is not."""
        while abs(bad - good) > 1:
            middle = (good + bad) // 2
            if self._bad_calls(part(middle)):
                bad = middle
            else:
                good = middle
        return bad

    def few_calls(self) -> GraphModule:
        """A set of calls of which none can be left out."""
        calls = self._calls()
        left = ddmin(calls, self._bad_calls)
        return self._of_calls(left) if len(left) < len(calls) else self.module

    def few_results(self) -> GraphModule:
        """A set of results of which none can be left out, with what they need."""
        results = self.module.graph.output_node().all_input_nodes

        def bad(chosen: list[Node]) -> bool:
            made = extract_subgraph(self.module, outputs=chosen)
            return self.check(made, self._inputs(made))

        left = ddmin(results, bad)
        return extract_subgraph(self.module, outputs=left) if left != results else self.module

    # -- parts -----------------------------------------------------------------------------------
    def _calls(self) -> list[Node]:
        """The calls that can be left out; elements of a call's result go with the call."""
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
    """A part of ``items``, in order, that is bad but not if any single item is left out.

    All ``items`` together are assumed to be bad, and no items to be good."""
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
