"""Checking the examples that passes and rules bring along.

In: a pass with ``example(...)`` and ``counterexample(...)``. Out: nothing, or an error that says
which of them does not do what it should. For the tests of a pass::

    def test_examples():
        check_examples(my_pass)
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import FxliteError
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import Example, Pass
from fxlite.passes.checking.verify import verify


class ExampleError(FxliteError, AssertionError):
    """A pass does not do on one of its examples what the example is there to show."""


@checked
def check_examples(item: Pass) -> None:
    """Check that the pass has an example and a counterexample, that it changes the graph of every
    example, that the result is valid and computes the same on drawn inputs (as closely as the pass
    promises), and that it leaves the graph of every counterexample alone. Raises ExampleError, and
    what the pass and verification raise."""
    for kind, found in (("example", item.examples), ("counterexample", item.counterexamples)):
        if not found:
            raise ExampleError(f"{item.name} has no {kind}: add one with {item.name}.{kind}(...)")
    for number, example in enumerate(item.examples, 1):
        before, after = run_example(item, example)
        if after.graph == before.graph:
            raise ExampleError(
                f"{item.name} leaves its example {number} as it is:\n{before.graph}{_said(after)}"
            )
        after.graph.lint()
        verify(before, after, item.exactness, item.name)
    for number, example in enumerate(item.counterexamples, 1):
        before, after = run_example(item, example)
        if after.graph != before.graph:
            raise ExampleError(
                f"{item.name} changes its counterexample {number} ({example.about}):\n"
                f"{before.graph}\nto\n{after.graph}"
            )


def run_example(item: Pass, example: Example) -> tuple[GraphModule, GraphModule]:
    """The example as a graph, and what the pass makes of it."""
    before = example.trace()
    return before, item(before, **example.options)


def source_of(program: Callable[..., Any]) -> str:
    """Source of an example's program; a lambda is written as a function. Raises OSError where the
    source is not at hand."""
    if program.__name__ != "<lambda>":
        return textwrap.dedent(inspect.getsource(program)).strip()
    code = program.__code__
    text = Path(code.co_filename).read_text(encoding="utf-8")
    line, column = max((p[0] or 0, p[2] or 0) for p in code.co_positions())  # in its body
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, ast.Lambda) and _covers(found.body, line, column):
            body = ast.get_source_segment(text, found.body)
            return f"def program({ast.unparse(found.args)}):\n    return {body}"
    raise OSError(f"no lambda at {code.co_filename}:{code.co_firstlineno}")


def _covers(node: ast.expr, line: int, column: int) -> bool:
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return first <= (line, column) < last


def _said(module: GraphModule) -> str:
    from fxlite.passes.ledger import ledger

    return "".join(f"\n{entry}" for entry in ledger(module))
