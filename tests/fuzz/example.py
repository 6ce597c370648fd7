"""One example: a random program, some rewrites, and what must hold after each.

After each rewrite: lint, text that parses back, the same results. At the beginning and the end: the
generated Python, and the oracle's kernels of the optimized program, give them, too.

In: hypothesis' ``draw``. Out: counts, or an AssertionError (or whatever the rewrite raised) with
the program, its rewrites and the graph they ended in.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fxlite as fx
from fxlite.types.agreement import leaves
from tests.fuzz.edits import Chooser
from tests.fuzz.results import Reference, exact_difference, op_names, run
from tests.fuzz.rewrites import KINDS, Rewrite, extracted, program
from tests.oracle import RUNGS
from tests.strategies import Drawn, programs

#: Rewrites of one program.
MOST_REWRITES = 5


class Counts:
    """What was tried so far."""

    def __init__(self) -> None:
        self.graphs = self.nodes = 0
        self.failed = False  # what is tried while an example is made smaller does not count
        self.rewrites: Counter[str] = Counter()
        self.ops: Counter[str] = Counter()

    def add(self, ops: list[str], kinds: list[str]) -> None:
        """Count a program with these calls, and the rewrites it went through."""
        if not self.failed:
            self.graphs += 1
            self.nodes += len(ops)
            self.ops.update(ops)
            self.rewrites.update(kinds)

    def __str__(self) -> str:
        lines = [
            f"{self.graphs} graphs, {self.nodes} calls of {len(self.ops)} ops, {sum(self.rewrites.values())} rewrites"
        ]
        lines += [f"{count:8} {kind}" for kind, count in sorted(self.rewrites.items())]
        return "\n".join(lines)


def check(draw: Any, counts: Counts) -> None:
    """Draw an example and check it. Raises what a check or a rewrite raises, with the story."""
    drawn: Drawn = draw(programs())
    story, ops = [f"the program: {drawn}"], op_names(drawn.module)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            kinds = _check(draw, drawn, story)
        except Exception as error:
            counts.failed = True
            error.add_note("\n".join(story))
            raise
    counts.add(ops, kinds)


def _check(draw: Any, drawn: Drawn, story: list[str]) -> list[str]:
    """Check one example; returns the kinds of rewrites applied."""
    kinds: list[str] = []
    gm, arrays = drawn.module, drawn.arrays()
    reference = Reference(gm, arrays)
    check_graph(gm)
    check_call(gm, arrays)
    for _ in range(draw(st.integers(1, MOST_REWRITES))):
        kind: Callable[..., Rewrite] = KINDS[draw(st.integers(0, len(KINDS) - 1))]
        story.append(f"{kind.__name__}:")
        before = run(gm, arrays)
        chooser = Chooser(draw, gm)
        done = kind(chooser, arrays) if kind in (extracted, program) else kind(chooser)
        gm = done.module
        story[-1] += f" {done.text}\n{gm.graph}"
        check_graph(gm)
        after = run(gm, arrays)
        difference = exact_difference(before, after) if done.exact else reference.close_difference(after)
        assert difference is None, difference
        kinds += done.kinds
    check_call(gm, arrays)
    kernels = leaves(RUNGS["kernel"](gm)(arrays))
    difference = reference.close_difference(kernels, flat=True)
    assert difference is None, f"the optimized program's kernels: {difference}"
    return kinds


def check_graph(gm: fx.GraphModule) -> None:
    """The graph passes lint, and its text parses back."""
    graph = gm.graph
    graph.lint(full=True)
    text = graph.text(full=True)
    parsed = fx.parse(text)
    assert parsed == graph, "parse(graph.text(full=True)) == graph"
    parsed.lint(full=True)
    if all(n.users for n in graph.find_nodes(op="get_attr")):  # else the text does not show them
        assert parsed.text(full=True) == text, "the text of what the text of a graph gives is the same"


def check_call(gm: fx.GraphModule, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    """The generated code computes what the interpreter does."""
    difference = exact_difference(fx.Interpreter(gm).run(*arrays), gm(*arrays))
    assert difference is None, f"the generated code and the interpreter differ: {difference}"
