"""Edits by hand that keep a program's meaning: each takes a Chooser and edits ``gm`` in place.

Out: True if there was something to edit. The edits are those of the graph's interface: inserting,
copying, renaming, moving, rewiring, erasing, new arguments, new weights, a rolled-back transaction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.graph.graph import Node
from fxlite.types.tensor_type import TensorType
from tests.graph_builder import Builder

#: Names somebody may wish for; the graph makes them unique and fit for Python.
NAMES = ("y", "x", "B", "ops", "self", "lambda", "None", "a.b", "1st", "café", "np", "forward", "_")


class Chooser(Builder):
    """Choices on the graph of a module."""

    def __init__(self, draw: Any, gm: fx.GraphModule) -> None:
        super().__init__(draw)
        self.gm, self.graph = gm, gm.graph

    def node(self, *opcodes: str) -> Node | None:
        """A node, of these opcodes if any are given."""
        found = [n for n in self.graph.nodes if not opcodes or n.op in opcodes]
        return self.choose(found) if found else None

    def tensor(self) -> Node | None:
        """A node whose value is one tensor, and not the output."""
        found = [n for n in self.graph.nodes if isinstance(n.type, TensorType) and n.op != "output"]
        return self.choose(found) if found else None


def dead_node(c: Chooser) -> bool:
    """A call nobody reads."""
    node = c.tensor()
    if node is None:
        return False
    with c.graph.inserting_after(node):
        c.graph.call_function(c.choose(("abs", "cos", "isnan")), (node,))
    return True


def dead_code(c: Chooser) -> bool:
    """Erase what nobody reads."""
    return c.graph.eliminate_dead_code()


def duplicate(c: Chooser) -> bool:
    """A copy of a call, read by one of the readers."""
    node = c.node("call_function", "get_attr")
    if node is None or not node.users:
        return False
    with c.graph.inserting_after(node):
        copy = c.graph.node_copy(node)
    reader = c.choose(list(node.users))
    reader.replace_input_with(node, copy)
    return True


def replace_all_uses(c: Chooser) -> bool:
    """All readers read a copy; the node itself is erased."""
    node = c.node("call_function", "get_attr")
    if node is None:
        return False
    with c.graph.inserting_before(node):
        copy = c.graph.node_copy(node)
    node.replace_all_uses_with(copy)
    c.graph.erase_node(node)
    return True


def insert_identity(c: Chooser) -> bool:
    """A reader gets the value through a call that keeps every bit."""
    node = c.tensor()
    if node is None or not node.users:
        return False
    kind = node.type
    reader = c.choose(list(node.users))
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("reshape", (node,), {"shape": kind.shape}),
        ("cast", (node,), {"dtype": kind.dtype.name}),
        ("dropout", (node, 0.5), {}),
        ("concat", ((node,),), {"axis": 0}),
        ("permute", (node,), {"axes": tuple(range(kind.rank))}),
        ("expand", (node,), {"shape": kind.shape}),
        ("where", (True, node, node), {}),
    ]
    name, args, kwargs = c.choose(calls)
    if (name == "concat" and not kind.rank) or (name == "dropout" and not kind.dtype.is_float):
        return False
    with c.graph.inserting_before(reader):
        new = c.graph.call_function(name, args, kwargs)
    reader.replace_input_with(node, new)
    return True


def rename(c: Chooser) -> bool:
    """A node gets another name."""
    node = c.node("call_function", "call_module", "get_attr")
    if node is None:
        return False
    if c.chance():
        node.name = c.choose(NAMES)
    else:
        c.graph.rename_node(node, c.choose(NAMES))
    return True


def move(c: Chooser) -> bool:
    """A node goes elsewhere between its inputs and its readers."""
    node = c.node("call_function", "get_attr")
    if node is None:
        return False
    nodes = list(c.graph.nodes)
    position = {n: i for i, n in enumerate(nodes)}
    low = max((position[n] for n in node.all_input_nodes), default=len(c.graph.placeholders) - 1)
    high = min((position[n] for n in node.users), default=len(nodes) - 1)
    if c.chance():
        nodes[c.number(low, high - 1)].append(node)
    else:
        nodes[c.number(low + 1, high)].prepend(node)
    return True


def commute(c: Chooser) -> bool:
    """The operands of a commutative op change places, in one of the ways to say so."""
    found = [n for n in c.graph.nodes if n.op == "call_function" and n.target.commutative]
    if not found:
        return False
    node = c.choose(found)
    x, y = node.args
    same = isinstance(x, Node) and isinstance(y, Node) and x.type == y.type
    if not same or c.chance():  # half-way, the node reads one of them twice
        node.args = (y, x)
    else:
        with c.graph.transaction("commute"):
            node.update_arg(0, y)
            node.update_arg(1, x)
    return True


def retarget(c: Chooser) -> bool:
    """The same op, arguments and type once more."""
    node = c.node("call_function")
    if node is None:
        return False
    node.target = node.target.name if c.chance() else node.target
    node.kwargs = dict(node.kwargs)
    node.args = node.args
    node.type = node.type
    return True


def moved_weight(c: Chooser) -> bool:
    """A weight is stored and read at another path, too."""
    node = c.node("get_attr")
    if node is None:
        return False
    with c.graph.transaction("moved weight"):
        path = f"copies.{node.target.replace('.', '_')}"
        c.gm.set_attribute(path, np.array(c.gm.get_attribute(node.target)))
        with c.graph.inserting_after(node):
            copy = c.graph.get_attr(path)
        node.replace_all_uses_with(copy)
    return True


def unused_weights(c: Chooser) -> bool:
    """Weights nobody reads go."""
    c.gm.delete_all_unused_submodules()
    return True


def rolled_back(c: Chooser) -> bool:
    """A transaction that fails after edits that change the meaning leaves no trace."""
    before = c.graph.text(full=True), [n.name for n in c.graph.nodes]
    node = c.tensor()
    if node is None:
        return False
    with pytest.raises(ZeroDivisionError), c.graph.transaction("fails"):
        with c.graph.inserting_after(node):
            new = c.graph.call_function("isnan", (node,))
        c.graph.output_node().args = ((new, node),)
        c.gm.set_attribute("w_new", np.ones(3))
        if not isinstance(c.choose((1, 0)), str):
            raise ZeroDivisionError
    assert before == (c.graph.text(full=True), [n.name for n in c.graph.nodes])
    return False


def note(c: Chooser) -> bool:
    """Meta, which is the user's."""
    node = c.node()
    if node is None:
        return False
    node.meta["fuzz"] = [1, {"of": c.graph.placeholders[0]}]
    return True


EDITS = (
    dead_node,
    duplicate,
    rename,
    insert_identity,
    move,
    replace_all_uses,
    commute,
    dead_code,
    retarget,
    moved_weight,
    unused_weights,
    rolled_back,
    note,
)
