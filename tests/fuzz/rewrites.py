"""The kinds of rewrite: passes, rules, edits by hand, and all ways to take a graph apart and make
it again.

Each takes a Chooser on a module and gives a :class:`Rewrite`: the module that is to go on with, and
what it promises. What a kind promises beyond that is asserted here.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fxlite as fx
from fxlite import ops, passes
from fxlite.base.errors import FxliteError
from fxlite.files.serialize import from_bytes, to_bytes
from fxlite.graph.graph import Node
from fxlite.passes import PASSES, PassManager
from fxlite.types.agreement import leaves
from tests.fuzz.edits import EDITS, Chooser
from tests.fuzz.identities import IDENTITIES, Identity
from tests.fuzz.results import exact_difference
from tests.fuzz.spelling import constants, spelled
from tests.graphs import facts


@dataclass(frozen=True)
class Rewrite:
    """The module to go on with, what was done (by kind), and whether every bit must be kept."""

    module: fx.GraphModule
    kinds: tuple[str, ...]
    exact: bool = True
    text: str = ""


def _same_but_module(gm: fx.GraphModule, made: fx.GraphModule, kind: str) -> Rewrite:
    """``made`` is identical to ``gm``: names, order, types, places, notes."""
    assert facts(made) == facts(gm), kind
    assert made.graph.text(full=True) == gm.graph.text(full=True), kind
    fx.assert_same(made, gm)
    return Rewrite(made, (kind,))


# -- passes and rules ------------------------------------------------------------------------------
#: What passes promise that mean to compute the same.
SAME = ("exact", "allclose")


def registered(c: Chooser) -> Rewrite:
    """Some of the registered passes that compute the same (quantization does not), in any order,
    checked by the manager."""
    known = sorted(name for name, item in PASSES.items() if item.exactness.kind in SAME)
    names = [c.choose(known) for _ in range(c.number(1, 4))]
    before = facts(c.gm)
    made = PassManager(names, check=True)(c.gm)
    assert facts(c.gm) == before, "a pass edited its input"
    exact = all(PASSES[n].exactness.kind == "exact" for n in names)
    return Rewrite(made, tuple(f"pass {n}" for n in names), exact, ", ".join(names))


def identity(c: Chooser) -> Identity:
    """One that may fit somewhere; any one where none does."""
    nodes = list(c.graph.nodes)
    return c.choose([i for i in IDENTITIES if any(map(i.rule.may_fire, nodes))] or IDENTITIES)


def rule(c: Chooser) -> Rewrite:
    """An identity as a rule in a checked manager."""
    chosen = identity(c)
    made = PassManager([chosen.rule], check=True)(c.gm)
    fired = made.graph.text(full=True) != c.gm.graph.text(full=True)
    exact = chosen.exactness == "exact"
    return Rewrite(made, ("rule",) if fired else (), exact, chosen.name)


def pattern(c: Chooser) -> Rewrite:
    """An identity by replace_pattern, in place; one that does not fit leaves everything as it
    was."""
    chosen = identity(c)
    before = facts(c.gm)

    def fits(match: passes.Match) -> bool:
        return chosen.rule.why_not(match) is None

    try:
        found = fx.replace_pattern(c.gm, chosen.pattern, chosen.replacement, fits)
    except FxliteError:
        assert facts(c.gm) == before, "replace_pattern failed and left an edit"
        return Rewrite(c.gm, (), True, chosen.name)
    kinds = ("replace_pattern",) if found else ()
    return Rewrite(c.gm, kinds, chosen.exactness == "exact", chosen.name)


# -- edits -----------------------------------------------------------------------------------------
def edits(c: Chooser) -> Rewrite:
    """Edits by hand; undo brings back the identical graph, redo the edited one."""
    journal, before = c.graph.journal, facts(c.gm)
    start = len(journal.labels)
    done = []
    together = c.chance()
    for _ in range(c.number(1, 4)):
        edit = c.choose(EDITS)
        if together:
            with c.graph.transaction(edit.__name__):
                edited = edit(c)
        else:
            edited = edit(c)
        if edited:
            done.append(edit.__name__)
    after, text = facts(c.gm), c.graph.text(full=True)
    units = len(journal.labels) - start
    if start == 0 or journal.labels[start - 1] != "edits":  # else they may have joined earlier ones
        for _ in range(units):
            c.gm.undo()
        if "note" not in done:  # meta is no edit of the graph
            assert facts(c.gm) == before, "undo"
        c.graph.lint(full=True)
        for _ in range(units):
            c.gm.redo()
        assert facts(c.gm) == after and c.graph.text(full=True) == text, "redo"
    return Rewrite(c.gm, tuple(f"edit {d}" for d in done), True, ", ".join(done))


def undo_all(c: Chooser) -> Rewrite:
    """Take back everything there is to take back, or some of it; do it again, or leave it."""
    labels = list(c.graph.journal.labels)
    if not labels:
        return Rewrite(c.gm, ())
    after = facts(c.gm)
    count = c.number(1, len(labels))
    assert [c.gm.undo() for _ in range(count)] == labels[::-1][:count]
    c.graph.lint(full=True)
    if c.chance():
        assert [c.gm.redo() for _ in range(count)] == labels[-count:]
        assert facts(c.gm) == after, "redo"
    return Rewrite(c.gm, ("undo",), False, str(count))  # an allclose rewrite may be taken back


# -- made again ------------------------------------------------------------------------------------
def copied(c: Chooser) -> Rewrite:
    """copy, deepcopy, pickle, save and load: the identical graph."""
    make: Callable[[fx.GraphModule], fx.GraphModule] = c.choose(
        (
            fx.GraphModule.copy,
            copy.deepcopy,
            lambda gm: from_bytes(to_bytes(gm)),
            lambda gm: pickle.loads(pickle.dumps(gm)),
        )
    )
    return _same_but_module(c.gm, make(c.gm), "copy, save and load")


def transformed(c: Chooser) -> Rewrite:
    """A Transformer that changes nothing."""
    made = fx.Transformer(c.gm).transform()
    fx.assert_same(made, c.gm)
    return Rewrite(made, ("transformer",))


def retraced(c: Chooser) -> Rewrite:
    """A trace of the module, with and without types given."""
    types = {} if c.chance() else {p.target: p.type for p in c.graph.placeholders}
    made = fx.symbolic_trace(c.gm, inputs=types)
    fx.assert_same(made, c.gm)
    return Rewrite(made.eval(), ("retrace",))


def parsed(c: Chooser) -> Rewrite:
    """The graph's text, parsed."""
    held = {n.target: c.gm.get_attribute(n.target) for n in c.graph.find_nodes(op="get_attr")}
    held |= {n.target: c.gm.get_submodule(n.target) for n in c.graph.find_nodes(op="call_module")}
    made = fx.GraphModule(held, fx.parse(c.graph.text(full=True)))
    fx.assert_same(made, c.gm)
    return Rewrite(made.eval(), ("parse",))


def program(c: Chooser, arrays: list[Any]) -> Rewrite:
    """The graph as a NumPy program in any spelling: run as it is, and traced."""
    found = spelled(c)
    if found is None:
        return Rewrite(c.gm, ())
    source, module = found
    try:
        difference = exact_difference(fx.Interpreter(c.gm).run(*arrays), module(*arrays))
        assert difference is None, f"run by NumPy alone: {difference}"
        made = fx.symbolic_trace(module, inputs={p.target: p.type for p in c.graph.placeholders})
        if not constants(c.graph):
            # traced in inference mode, with all results of a call that has several
            expected = passes.dce(passes.remove_dropout(c.gm))
            for placeholder in expected.graph.placeholders:
                placeholder.args = ()  # a parameter whose type is given has no default
            fx.assert_same(passes.dce(made), expected)
    except BaseException as error:
        error.add_note(f"the program was\n{source}")
        raise
    return Rewrite(made.eval(), ("program",), True, source)


def split(c: Chooser) -> Rewrite:
    """Submodules by position or by support, and put back in place."""
    calls = [n for n in c.graph.nodes if n.op.startswith("call_")]
    if c.chance():
        part, number, outside = {}, 0, False
        for node in calls:  # parts that follow one another do not depend on each other in a circle
            if c.number(0, 4) == 4:
                number, outside = number + 1, c.chance()
            part[node] = None if outside else number
        made, kind = passes.split_module(c.gm, part.__getitem__), "split"
    else:
        chosen = [t for t in dict.fromkeys(n.target for n in calls) if c.chance()]
        found = passes.partition(c.gm, lambda n: n.target in chosen)
        made, kind = passes.fuse_partitions(c.gm, found), "partition"
    made.graph.lint(full=True)
    flat = passes.inline_modules(made)
    # a part drops what nobody reads; parts made earlier are put back, too
    fx.assert_same(passes.dce(flat), passes.dce(passes.inline_modules(c.gm)))
    return Rewrite(made if c.chance() else flat, (kind,))


def extracted(c: Chooser, arrays: list[Any]) -> Rewrite:
    """Some of the nodes as a module of their own give the values they had inside."""
    nodes = [n for n in c.graph.nodes if n.op.startswith("call_") and c.chance()]
    if all(n.target is ops.getitem for n in nodes):  # elements go with the call they are of
        return Rewrite(c.gm, ())
    part = passes.extract_subgraph(c.gm, nodes)
    part.graph.lint(full=True)
    values: dict[str, Any] = {}

    class Record(fx.Interpreter):
        def run_node(self, node: Node) -> Any:
            values[node.name] = super().run_node(node)
            return values[node.name]

    Record(c.gm).run(*arrays)
    result = part(*[values[p.target] for p in part.graph.placeholders])
    named = _read(part.graph.output_node().args[0])
    for name, value in zip(named, leaves(result), strict=True):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(leaves(values[name]), [value])), name
    return Rewrite(c.gm, ("extract",))


def _read(value: Any) -> list[str]:
    if isinstance(value, Node):
        return [value.name]
    return [name for v in value for name in _read(v)]


KINDS: tuple[Callable[..., Rewrite], ...] = (
    edits,
    registered,
    rule,
    pattern,
    copied,
    transformed,
    retraced,
    parsed,
    program,
    split,
    extracted,
    undo_all,
)
