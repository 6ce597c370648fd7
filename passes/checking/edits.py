"""What a stretch of a graph's journal changed: each node's call before and after.

In: a GraphModule and a position of its journal. Out: which nodes were created, erased and changed,
the call each of them was before, the weights of then, and the *claims* to be proved for the change
to be right: values before and after that must be equal. The cost is that of the edits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node_store import undo_assign, undo_erase, undo_set_field


class Call(NamedTuple):
    """What computes a node's value."""

    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Any


def call_of(node: Node) -> Call:
    """A node's call as it is now, to be kept."""
    return Call(node.op, node.target, node.args, node.kwargs)


#: A node stands for its own call as it is now.
AnyCall: TypeAlias = Call | Node


class Pair(NamedTuple):
    """The value of ``before`` before the edits, and of ``after`` after them, must be equal."""

    before: Node
    after: Node


@dataclass
class Claim:
    """Pairs that imply that ``reader`` computes what it did; None where not only its inputs
    changed, and that is to be shown itself. A claim that is not ``needed`` may be wrong though the
    program is right; where it holds, the regions of others end there. Without ``reader`` it is a
    guess from a node that was rewired and erased later."""

    reader: Node | None
    pairs: list[Pair] | None = None
    needed: bool = True


class Edits:
    """The net effect of a module's edits since ``start``.

    ``changed`` are the nodes that are not what they were: created, erased, or another call; those
    that were created and erased again are not among them."""

    def __init__(self, gm: GraphModule, start: int) -> None:
        self.gm = gm
        self.original: dict[Node, Call] = {}
        self.created: set[Node] = set()
        self.erased: dict[Node, None] = {}
        self._entries: dict[tuple[int, str], Any] = {}
        self._groups: list[Any] = []  # keeps modules alive, whose id is a key
        rewritten = self._read(gm.graph.journal.records, start)
        for node in rewritten:
            if not node._erased and all(map(identical, self.original[node], call_of(node))):
                del self.original[node]
        self.changed: set[Node] = {*self.created, *self.erased, *self.original}
        self.new_weights = [n for n in self._readers_of_weights() if n not in self.changed]
        self.changed.update(self.new_weights)

    def __bool__(self) -> bool:
        return bool(self.changed)

    def _read(self, records: list[Any], start: int) -> list[Node]:
        """Read the journal; returns the nodes whose call was written."""
        args: dict[Node, tuple[Any, Any]] = {}
        fields: dict[Node, dict[str, Any]] = {}
        for number in range(start, len(records)):
            record = records[number]
            if record.__class__ is not tuple:
                if record not in self.erased and record not in args:
                    self.created.add(record)
                continue
            function, subject = record[0], record[1]
            if function is undo_assign:
                if subject not in args:
                    args[subject] = record[2:]
            elif function is undo_set_field:
                if record[2] in ("op", "target"):
                    fields.setdefault(subject, {}).setdefault(record[2], record[3])
            elif function is undo_erase:
                if subject not in self.created:
                    self.erased[subject] = None
            elif function is GraphModule._restore_entry:
                self._note(record[2], record[3], record[4])
            elif function is GraphModule._restore_groups:
                _, _, module, groups = record
                for group, entries in zip(("_parameters", "_buffers", "_modules"), groups):
                    for name, value in entries.items():
                        self._note(module, name, (group, value))
        self.created = {n for n in self.created if not n._erased}
        self.erased = {n: None for n in self.erased if n._erased}
        rewritten = list(dict.fromkeys([*args, *fields]))
        for node in rewritten:
            old = fields.get(node, {})
            was_args, was_kwargs = args.get(node) or (node.args, node.kwargs)
            self.original[node] = Call(
                old.get("op", node.op), old.get("target", node.target), was_args, was_kwargs
            )
        for node in rewritten:
            if node in self.created or (node._erased and node not in self.erased):
                del self.original[node]
        return [n for n in rewritten if n in self.original]

    def _note(self, module: Any, name: str, entry: Any) -> None:
        self._groups.append(module)
        self._entries.setdefault((id(module), name), entry)

    def _readers_of_weights(self) -> list[Node]:
        """The get_attr nodes whose weight is not the array it was."""
        if not self._entries:
            return []
        return [
            n
            for n in self.gm.graph.nodes
            if n.op == "get_attr"
            and n not in self.created
            and self.attribute_before(n.target) is not self.attribute_after(n.target)
        ]

    # -- before and after ----------------------------------------------------------------------
    def before(self, node: Node) -> AnyCall:
        """The call that a node was before the edits."""
        return self.original.get(node, node)

    def attribute_after(self, path: str) -> Any:
        """The weight or module at a path; None where there is none."""
        try:
            return self.gm.get_attribute(path)
        except AttributeError:
            return None

    def attribute_before(self, path: str) -> Any:
        """The weight or module that was at a path before the edits."""
        found: Any = self.gm
        for part in path.split("."):
            entry = self._entries.get((id(found), part), self)
            if entry is not self:
                found = None if entry is None else entry[1]
            else:
                groups = (vars(found)[g] for g in ("_parameters", "_buffers", "_modules"))
                found = next((g[part] for g in groups if part in g), None)
            if found is None:
                return None
        return found

    # -- what must hold ------------------------------------------------------------------------
    def claims(self) -> Iterator[Claim]:
        """What implies that the program computes what it did.

        A node that is the same call computes the same if its inputs do. So it is enough that each
        changed node which an unchanged one reads computes the same, and that results and calls
        with effects get the same inputs. Most other nodes that have new inputs
        compute the same, too."""
        for node, old in self.original.items():
            pairs = changed_places(old, node, self.changed)
            if node._erased:
                alive = [p for p in pairs or () if not p.after._erased]
                if alive:
                    yield Claim(None, alive, needed=False)
            elif node.op == "placeholder":
                continue
            elif node.is_impure() or any(user not in self.changed for user in node.users):
                yield Claim(node, pairs)
            elif pairs is not None:
                yield Claim(node, pairs, needed=False)
        for node in self.new_weights:
            if any(user not in self.changed for user in node.users):
                yield Claim(node)


def changed_places(old: AnyCall, new: AnyCall, changed: set[Node]) -> list[Pair] | None:
    """The inputs of a call before and after, where they may differ; None where not only the inputs
    differ, but the call itself or its structure."""
    is_module = old.op == "call_module"  # its kwargs hold nodes
    same = identical(old.target, new.target) and (is_module or identical(old.kwargs, new.kwargs))
    if old.op != new.op or not same:
        return None
    pairs: list[Pair] = []
    work: list[tuple[Any, Any]] = [(old.args, new.args)]
    if is_module:
        work.append((dict(old.kwargs), dict(new.kwargs)))
    while work:
        a, b = work.pop()
        if a.__class__ is Node and b.__class__ is Node:
            if a is not b or a in changed:
                pairs.append(Pair(a, b))
        elif a is b:
            continue
        elif isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            if len(a) != len(b) or type(a) is not type(b):
                return None
            work.extend(zip(a, b))
        elif isinstance(a, dict) and isinstance(b, dict):
            if list(a) != list(b):
                return None
            work.extend((a[k], b[k]) for k in a)
        elif not identical(a, b):
            return None
    return pairs[::-1]


def identical(a: Any, b: Any) -> bool:
    """True for equal arguments: 1, 1.0 and True differ, as do 0.0 and -0.0."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(v, b[k]) for k, v in a.items())
    return bool(a == b) and (a.__class__ is not float or repr(a) == repr(b))
