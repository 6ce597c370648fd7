"""The node store: the linked list of a graph's nodes, their use-lists and names, the few basic edits
from which all others are made, and the journal of these edits.

In: nodes. Out: a list that may be edited during an iteration. Every edit writes its inverse into the
journal, so that transactions can be rolled back and undone. The store knows nothing about types and
ops; :class:`~fxlite.graph.graph.Graph` deals with these.

A record of the journal is either a node (the edit inserted it, and the inverse removes it) or a tuple
``(function, subject, *rest)`` whose call undoes the edit. Functions that edit record their own inverse,
so an undo writes exactly the records that a redo needs. Rollback, undo and redo of a unit (a
transaction, or the edits between two transactions) take time in proportion to its edits, whatever the
size of the graph.
"""

from __future__ import annotations

import contextlib
import functools
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError, GraphError, expect, number_of
from fxlite.base.outside_text import LONGEST_NAME
from fxlite.graph.node import (
    NO_KWARGS,
    Node,
    immutable_dict,
    new_node,
    nodes_in,
    set_erased,
    set_next,
    set_prev,
    set_users,
)

if TYPE_CHECKING:
    from fxlite.graph.graph import Graph

#: The largest distance of nodes whose order is found by walking.
NEAR = 64


class Journal:
    """The inverses of all edits, in order. Every edit calls ``records.append``."""

    __slots__ = ("_depth", "_loose", "_redo", "_units", "generation", "records", "undone")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.generation = 0  # grows whenever records are removed, which invalidates older positions
        #: The position where each rollback and undo began: facts about later positions no longer hold.
        self.undone: list[int] = []
        self._units: list[tuple[str, int]] = []  # (label, first record)
        self._redo: list[tuple[str, list[Any]]] = []
        self._loose = 0  # the position of the first edit that belongs to no unit yet
        self._depth = 0

    def __repr__(self) -> str:
        return f"<journal of {number_of(len(self.records), 'edit')}, {len(self.labels)} to undo>"

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes whenever the graph may have changed."""
        return self.generation, len(self.records)

    @property
    def labels(self) -> list[str]:
        """Labels of the units that can be undone, the oldest first."""
        loose = ["edits"] if len(self.records) > self._loose else []
        return [label for label, _ in self._units] + loose

    def forget(self) -> None:
        """Start a new history: earlier edits can no longer be undone."""
        self.records.clear()
        self._units.clear()
        self._redo.clear()
        self._loose = 0
        self.generation += 1
        self.undone.append(-1)

    # -- units ---------------------------------------------------------------------------------
    def begin(self) -> int:
        """Start a unit, or a part of the open one; returns its position."""
        if self._depth == 0:
            self._close_loose()
        self._depth += 1
        return len(self.records)

    def commit(self, label: str, start: int) -> None:
        """End what :meth:`begin` started, and keep the edits; the outermost ones form a unit."""
        self._depth -= 1
        if self._depth == 0 and len(self.records) > start:
            self._units.append((label, start))
            self._redo.clear()
            self._loose = len(self.records)

    def roll_back(self, start: int) -> None:
        """End what :meth:`begin` started, and revert the edits made since."""
        self._depth -= 1
        self.undone.append(start)
        self.take_back(start)

    def undo(self) -> str:
        """Revert the last unit; returns its label. Raises GraphError if there is none."""
        self._require_closed()
        self._close_loose()
        if not self._units:
            raise GraphError("there is nothing to undo")
        label, start = self._units.pop()
        self.undone.append(start)
        self._redo.append((label, self.take_back(start)))
        self._loose = start
        return label

    def redo(self) -> str:
        """Repeat what the last undo reverted; returns its label. Raises GraphError if there is nothing
        to redo."""
        self._require_closed()
        self._close_loose()
        if not self._redo:
            raise GraphError("there is nothing to redo")
        label, records = self._redo.pop()
        start = len(self.records)
        self.replay(records)
        self._units.append((label, start))
        self._loose = len(self.records)
        return label

    def _close_loose(self) -> None:
        if len(self.records) > self._loose:
            self._units.append(("edits", self._loose))
            self._redo.clear()
            self._loose = len(self.records)

    def _require_closed(self) -> None:
        if self._depth:
            raise GraphError("undo and redo do not work inside a transaction or a running pass")

    # -- records -------------------------------------------------------------------------------
    def take_back(self, position: int) -> list[Any]:
        """Undo all records from ``position`` on; returns what :meth:`replay` needs to redo them."""
        taken = self.records[position:]
        if not taken:
            return []
        del self.records[position:]
        self.generation += 1
        for record in reversed(taken):
            undo_record(record)
        again = self.records[position:]  # what the inverse edits wrote
        del self.records[position:]
        return again

    def replay(self, records: list[Any]) -> None:
        """Repeat what :meth:`take_back` undid."""
        for record in reversed(records):
            undo_record(record)
        self.generation += 1

    def touched(self, position: int) -> Iterator[Any]:
        """The subjects of the records from ``position`` on, each once: nodes (some of them erased by
        now), modules, and the graph itself."""
        subjects = (r[1] if r.__class__ is tuple else r for r in self.records[position:])
        return iter({id(subject): subject for subject in subjects}.values())


def undo_record(record: Any) -> None:
    """Perform the inverse edit."""
    if record.__class__ is tuple:
        record[0](*record[1:])
    else:
        node: Node = record
        node.graph._store.detach(node)


# -- the store -------------------------------------------------------------------------------------
class Namer:
    """Makes unique identifiers, ``relu``, ``relu_1``, ..., in O(1) each."""

    __slots__ = ("counts", "taken")

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.counts: dict[str, int] = {}

    def know(self, other: Namer) -> None:
        """Take none of another one's names from now on."""
        self.taken |= other.taken
        self.counts |= other.counts  # or each name is looked for among all with its stem

    def unique(self, wish: str) -> str:
        taken = self.taken
        is_name = wish.isidentifier() and wish not in _RESERVED and len(wish) <= _LONGEST
        if is_name and wish not in taken and wish.isascii():
            taken.add(wish)  # the usual case for copies and files, whose names are all different
            return wish
        name, stem = _identifier(wish)
        if name in taken:
            count = self.counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
            while name in taken:
                count += 1
                name = f"{stem}_{count}"
            self.counts[stem] = count
        taken.add(name)
        return name


_RESERVED = frozenset((*keyword.kwlist, "self", "ops"))
_LONGEST = LONGEST_NAME - 20  # leaves room for a number at the end


@functools.lru_cache(maxsize=4096)
def _identifier(wish: str) -> tuple[str, str]:
    """``wish`` as an identifier, and the same without the number at its end."""
    wish = unicodedata.normalize("NFKC", wish[:_LONGEST])
    wish = "".join(c if f"_{c}".isidentifier() else "_" for c in wish)[:_LONGEST] or "value"
    if wish[0].isdigit() or wish in _RESERVED:
        wish = f"_{wish}"
    return wish, re.sub(r"_\d+$", "", wish)


class NodeStore:
    """The nodes of ``graph`` in a linked list, with use-lists, names and a journal."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        root = new_node(graph, "", "root", None, (), NO_KWARGS, None, None, None)
        set_next(root, root)
        set_prev(root, root)
        self.root = root
        #: The node before which new nodes are inserted.
        self.insert_before = root
        self.namer = Namer()
        self.length = 0
        self.n_placeholders = 0
        #: The number of nodes with sub-graphs. Mostly there are none, and they need not be looked for.
        self.n_controls = 0
        #: The inverses of all edits; see :mod:`fxlite.graph.node_store`.
        self.journal = Journal()
        self.record: Callable[[Any], None] = self.journal.records.append
        self._positions: tuple[Any, dict[Node, int]] = (None, {})
        #: The functions to be called at edits, by kind of edit; see :mod:`fxlite.graph.node_store`.
        self.hooks: Hooks = {}

    def watch(self, hooks: Hooks) -> None:
        """Call these functions on edits, in place of the earlier ones."""
        self.hooks = hooks
        append = self.journal.records.append
        self.record = self._record_and_call if any(hooks.values()) else append

    def _record_and_call(self, record: Any) -> None:
        self.journal.records.append(record)
        is_node = record.__class__ is Node
        kind = "create" if is_node else "erase" if record[0] is undo_erase else ""
        for hook in tuple(self.hooks.get(kind, ())):
            hook(record if is_node else record[1])

    # -- transactions ------------------------------------------------------------------------
    @contextlib.contextmanager
    def transaction(self, label: str) -> Iterator[None]:
        """Make the edits of the body one unit for undo. If the body raises, all of them are reverted.
        May be nested."""
        start = self.journal.begin()
        try:
            yield
        except BaseException:
            self.journal.roll_back(start)
            raise
        self.journal.commit(label, start)

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Revert the edits of the body if it raises. They do not form a unit of their own."""
        start = len(self.journal.records)
        try:
            yield
        except BaseException:
            self.journal.take_back(start)
            raise

    # -- order -----------------------------------------------------------------------------------
    def is_before(self, a: Node, b: Node) -> bool:
        """Whether ``a`` stands before ``b``. Walking from both finds nodes that are close together; for
        others, all nodes are numbered once for each state of the graph. Raises GraphError unless both
        are in the graph."""
        if any(n.graph is not self.graph or n._erased for n in (a, b)):
            raise GraphError(f"{a.name} and {b.name} have no order: they are not in one graph")
        after_a, after_b = a, b
        for _ in range(NEAR):
            after_a, after_b = after_a._next, after_b._next
            if after_a is b or after_b is self.root:
                return a is not b
            if after_b is a or after_a is self.root:
                return False
        version, positions = self._positions
        if version != self.journal.version:
            positions = {node: i for i, node in enumerate(NodeList(self))}
            self._positions = self.journal.version, positions
        return positions[a] < positions[b]

    # -- the five edits, each with its inverse -------------------------------------------------
    def attach(self, node: Node, before: Node) -> None:
        """Insert a node that is in no list before ``before``."""
        previous = before._prev
        set_next(previous, node)
        set_prev(node, previous)
        set_next(node, before)
        set_prev(before, node)
        add_user(node._args, node)
        if node._kwargs:
            if node.op != "call_function":
                add_user(tuple(node._kwargs.values()), node)
            elif node.target.kind == "control":
                self.n_controls += 1
        self.length += 1
        if node.op == "placeholder":
            self.n_placeholders += 1
        if node._erased:  # an undo brings it back
            set_erased(node, False)
            self.namer.taken.add(node.name)
        self.record(node)

    def detach(self, node: Node) -> None:
        """Remove a node without readers from the list. It keeps its fields and its own links, so that a
        running iteration can continue from it."""
        for used in node.all_input_nodes:
            _remove_user(used, node)
        before, after = node._prev, node._next
        if self.insert_before is node:
            self.insert_before = after
        set_next(before, after)
        set_prev(after, before)
        set_erased(node, True)
        self.length -= 1
        if node.op == "placeholder":
            self.n_placeholders -= 1
        elif node.op == "call_function" and node.target.kind == "control":
            self.n_controls -= 1
        self.namer.taken.discard(node.name)
        self.record((undo_erase, node, after))

    def move(self, node: Node, before: Node) -> None:
        """Move a node of the list before ``before``."""
        if before is node:
            return
        if any(n.graph is not self.graph or n._erased for n in (before, node)):
            raise GraphError(f"cannot move {node.name}: both nodes must be in one graph")
        after = node._next
        set_next(node._prev, after)
        set_prev(after, node._prev)
        previous = before._prev
        set_next(previous, node)
        set_prev(node, previous)
        set_next(node, before)
        set_prev(before, node)
        self.record((undo_move, node, after))

    def assign(self, node: Node, args: tuple[Any, ...], kwargs: immutable_dict) -> None:
        """Replace a node's arguments, and update the use-lists."""
        before = node.all_input_nodes
        self.record((undo_assign, node, node._args, node._kwargs))
        object.__setattr__(node, "_args", args)
        object.__setattr__(node, "_kwargs", kwargs)
        after = node.all_input_nodes
        kept = set(after)
        for used in before:
            if used not in kept:
                _remove_user(used, node)
        for used in after:
            _add_one_user(used, node)

    def set_field(self, node: Node, field: str, value: Any) -> None:
        """Replace another field of a node."""
        self.record((undo_set_field, node, field, getattr(node, field)))
        object.__setattr__(node, field, value)


# -- inverse edits and use-lists -------------------------------------------------------------------
def undo_erase(node: Node, after: Node) -> None:
    """The inverse of erasing a node that stood before ``after``."""
    node.graph._store.attach(node, after)


def undo_move(node: Node, after: Node) -> None:
    """The inverse of moving a node that stood before ``after``."""
    node.graph._store.move(node, after)


def undo_assign(node: Node, args: tuple[Any, ...], kwargs: immutable_dict) -> None:
    """The inverse of giving a node other arguments."""
    node.graph._store.assign(node, args, kwargs)


def undo_set_field(node: Node, field: str, value: Any) -> None:
    """The inverse of replacing a field of a node."""
    if field == "name":
        node.graph._store.namer.taken.discard(node.name)
        node.graph._store.namer.taken.add(value)
    node.graph._store.set_field(node, field, value)


def is_container(value: Any) -> bool:
    """True for a value that may contain nodes."""
    return isinstance(value, (list, dict, tuple))


def add_user(args: tuple[Any, ...], user: Node) -> None:
    """Enter ``user`` in the use-lists of the nodes in ``args``."""
    for value in args:
        if value.__class__ is Node:
            users = value._users
            if users is None:
                set_users(value, user)
            elif users is not user:
                _add_one_user(value, user)
        elif value.__class__ is tuple or is_container(value):
            add_user(tuple(nodes_in(value)), user)


def _add_one_user(node: Node, user: Node) -> None:
    users = node._users
    if users is None:
        set_users(node, user)
    elif users.__class__ is Node:
        if users is not user:
            set_users(node, {users: None, user: None})
    else:
        users[user] = None


def _remove_user(node: Node, user: Node) -> None:
    users = node._users
    if users is user:
        set_users(node, None)
    elif users is not None and users.__class__ is not Node:
        users.pop(user, None)
        if not users:
            set_users(node, None)


class NodeList:
    """A view of a graph's nodes with iteration in both directions, length and ``in``. The graph may be
    edited during an iteration."""

    def __init__(self, store: NodeStore) -> None:
        self._store = store

    def __iter__(self) -> Iterator[Node]:
        root = self._store.root
        node = root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._next

    def __reversed__(self) -> Iterator[Node]:
        root = self._store.root
        node = root._prev
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev

    def __len__(self) -> int:
        return self._store.length

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and node.graph is self._store.graph and not node._erased

    def __repr__(self) -> str:
        return f"[{', '.join(n.name for n in self)}]"


NodeHook = Callable[["Node"], object]
#: Called with ``old`` (a node), ``new`` (the name of a node) and ``user`` (a node).
ReplaceHook = Callable[..., object]
#: Hooks by the kind of edit that they are called at.
Hooks = dict[str, list[Any]]


class EditHooks:
    """The methods of a GraphModule that register functions to be called on edits of its graph. Hooks
    belong to the module and stay when its graph is replaced; copies have none. Undoing an edit is an
    edit, too."""

    if TYPE_CHECKING:

        @property
        def graph(self) -> Graph: ...

    def register_create_node_hook(self, f: NodeHook) -> None:
        """Call ``f(node)`` for each node that is created from now on."""
        self._change_hooks("create", f, add=True)

    def unregister_create_node_hook(self, f: NodeHook) -> None:
        """Remove a function of :meth:`register_create_node_hook`. Raises ArgumentError if it is not
        registered."""
        self._change_hooks("create", f, add=False)

    def register_erase_node_hook(self, f: NodeHook) -> None:
        """Call ``f(node)`` for each node that is erased from now on."""
        self._change_hooks("erase", f, add=True)

    def unregister_erase_node_hook(self, f: NodeHook) -> None:
        """Remove a function of :meth:`register_erase_node_hook`. Raises ArgumentError if it is not
        registered."""
        self._change_hooks("erase", f, add=False)

    def register_replace_node_hook(self, f: ReplaceHook) -> None:
        """Call ``f(old=node, new=name, user=node)`` before ``replace_all_uses_with`` or
        ``replace_input_with`` makes ``user`` read the node named ``new`` instead of ``old``."""
        self._change_hooks("replace", f, add=True)

    def unregister_replace_node_hook(self, f: ReplaceHook) -> None:
        """Remove a function of :meth:`register_replace_node_hook`. Raises ArgumentError if it is not
        registered."""
        self._change_hooks("replace", f, add=False)

    def _change_hooks(self, kind: str, f: Callable[..., object], add: bool) -> None:
        expect(f, Callable, f"a hook for {kind}")
        hooks: Hooks = self.__dict__.setdefault("_edit_hooks", {})
        if add:
            hooks.setdefault(kind, []).append(f)
        elif f in hooks.get(kind, ()):
            hooks[kind].remove(f)
        else:
            raise ArgumentError(f"{f} is not a hook for {kind} of {getattr(self, 'name', self)}")
        self.graph._store.watch(hooks)
