"""Reproductions: a Python file that shows that two programs differ, for a bug report or a test.

In: a graph, what it is compared with, and inputs. Out: a file with both graphs as text, which needs
fxlite alone, prints the first difference and exits with status 1 while there is one. Small arrays
stand in the file, large ones in a safetensors file beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import GraphError
from fxlite.files.serialize import save_safetensors
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.nn.module import Parameter
from fxlite.passes.cutting.inline_modules import flattened
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

    Without ``after`` the file makes it: ``expression`` is Python text that may use ``before``, such
    as ``"passes.cse(before)"``. ``inputs`` are arrays as ``before`` takes them; ``promise`` says
    how far the results may differ.

    Raises GraphError for leaf modules, whose code is not known."""
    path = Path(path)
    arguments = inputs if isinstance(inputs, Mapping) else {}
    positional = () if isinstance(inputs, Mapping) else tuple(inputs)
    values = before.flatten_inputs(before.bind(positional, dict(arguments)).arguments)
    arrays = _Arrays()
    listed = [
        f"    {p.target!r}: {arrays.text(f'inputs.{p.target}', values[p.target])},"
        for p in before.graph.placeholders
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
        *f'"""{_plain(message) or "Two programs that should agree."}'.splitlines(), "",
        "The exit status is 1 while they differ.", '"""', "",
        *(["from pathlib import Path", ""] if arrays.stored else []),
        "import fxlite as fx", "from fxlite import nn, passes  # noqa: F401",
        f"from fxlite.types.agreement import {_promise_name(promise)}",
        "from fxlite.passes.checking.repro import array, run_repro  # noqa: F401", "",
    ]  # fmt: skip
    if arrays.stored:
        save_safetensors(arrays.stored, beside)
        head.append(f"ARRAYS = fx.load_safetensors(Path(__file__).with_name({beside.name!r}))")
    call = f"run_repro(before, after, INPUTS, {_promise_text(promise)})"
    main = ["", 'if __name__ == "__main__":', f"    raise SystemExit({call})", ""]
    path.write_text(
        "\n".join([*head, "INPUTS = {", *listed, "}", *graphs, *made, *main]), encoding="utf-8"
    )
    return path


class _Arrays:
    """Texts that make arrays again; large arrays are collected in ``stored``, each once."""

    def __init__(self) -> None:
        self.stored: dict[str, np.ndarray[Any, Any]] = {}

    def text(self, name: str, value: Any) -> str:
        """An expression for an array; other values as they are written."""
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
    """The graph as text, and the lines that make a module of it."""
    gm = flattened(gm)
    for node in gm.graph.find_nodes(op="call_module"):
        raise GraphError(f"{node.describe()} calls a leaf module, whose code cannot be written")
    lines = ["", f'{name.upper()} = """', *_plain(str(gm.graph)).splitlines(), '"""', ""]
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
    """Text that stays inside its string."""
    return text.replace("\\", "/").replace('"""', "'''")


# -- what the file calls ---------------------------------------------------------------------------
def array(type: str, numbers: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The array of that type with these numbers in C order: ``array("f32[2,2]", [1, 2, 3, 4])``."""
    wanted = parse_type(type)
    return np.array(numbers).astype(wanted.dtype.numpy).reshape(wanted.shape)


def run_repro(
    before: GraphModule,
    after: Callable[..., Any],
    inputs: Mapping[str, Any],
    promise: Exactness = exact,
) -> int:
    """Run both (GraphModules are interpreted), print the first difference; 1 where there is one."""

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
