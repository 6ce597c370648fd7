"""The matcher: decides whether a pattern fits at a node.

In: a traced pattern. Out: :class:`Steps`, one step for each call of the pattern, in an order in
which every step except the first knows its node. A step compares a call of the pattern with a node of
the graph and says what the node's operands must be. If there are several ways (commutative and
associative ops, another output among the readers of a value), the others are kept and tried when a
later step fails. There is no recursion, and most patterns have only one way, so that a match costs
one run of its steps.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.ops.op import Op
from fxlite.passes.rewrite.wildcard import UNBOUND, bind_template, same_attributes, same_number
from fxlite.types.dtypes import has_same_bits

Slots = list[Any]
#: A condition may turn down a way to match; this many are offered before the node is given up.
_MOST_WAYS = 256
#: Steps tried at one node: patterns with many commutative calls that differ late would go through
#: all their orders.
_MOST_STEPS = 50_000

# What an operand of a pattern is: (kind, slot or value, node or target)
PARAMETER, CALL, WEIGHT, NUMBER, ABSENT, REST, ANY_NUMBER = range(7)
OperandOf = tuple[int, Any, Any]


class Surroundings:
    """State of a rewrite in progress that matching depends on: nodes that may match only parameters
    (``barred``), readers that no longer count (``dead``), and readers to come (``waiting``)."""

    __slots__ = ("barred", "dead", "readers", "waiting")

    def __init__(self) -> None:
        self.barred: set[Node] = set()
        self.dead: dict[Node, None] = {}
        self.waiting: Mapping[Node, Iterable[Node]] = {}
        self.readers: dict[tuple[Node, Any], deque[Node]] = {}  # by the value they read and their op


class Step:
    """One call of the pattern. Its node is in slot ``slot`` when the step runs."""

    def __init__(self, node: Node, slot: int) -> None:
        self.node = node
        self.slot = slot
        self.operands: tuple[OperandOf, ...] = ()
        self.lists: tuple[tuple[int, int, int] | None, ...] | None = None
        self.wild: dict[str, Any] = {}
        self.has_attributes = False
        self.two_orders = False
        self.symmetric = False

    def options(self, slots: Slots, steps: Steps, every: bool) -> Any:
        """The ways to read the node's operands: a list, or an iterator, of lists of values; empty if
        the call differs."""
        node: Node = slots[self.slot]
        if self.has_attributes:
            if not same_attributes(self.node, node, self.wild):
                return []
            if self.wild and not self._bind_wildcards(node, slots, steps):
                return []
        elif self.node.kwargs != node.kwargs:  # of a leaf module
            return []
        values = self.values_of(node)
        if values is None:
            return []
        if not self.two_orders:
            return [values]
        first, second = values
        ways = []
        for way in (values, (second, first)):
            for operand, value in zip(self.operands, way):
                if operand[0] != PARAMETER and not plausible(operand, value):
                    break
            else:
                ways.append(way)
                if self.symmetric and not every:
                    break
        return ways

    def values_of(self, node: Node) -> Any:
        """Operands of a node in the order of ``operands``; None if their number differs."""
        args = node.args
        if self.lists is None:
            if len(args) < len(self.operands):
                args = args + (None,) * (len(self.operands) - len(args))
            return args if len(args) == len(self.operands) else None
        values: list[Any] = []
        for place, count in enumerate(self.lists):
            value = args[place] if place < len(args) else None
            if count is None:
                values.append(value)
                continue
            before, rest, after = count
            if not isinstance(value, (tuple, list)):
                return None
            extra = len(value) - before - after
            if extra < 0 or (extra and not rest):
                return None
            values.extend(value[:before])
            if rest:
                values.append(tuple(value[before : before + extra]))
            values.extend(value[before + extra :])
        return values

    def _bind_wildcards(self, node: Node, slots: Slots, steps: Steps) -> bool:
        for name, template in self.wild.items():
            value = node.kwargs.get(name, node.target.defaults.get(name))
            if not bind_template(template, value, slots, steps.wildcards):
                return False
        return True


class Find:
    """Another output of the pattern: look for it among the readers of a value that is already known."""

    def __init__(self, known: int, slot: int, target: Any) -> None:
        self.known, self.target = known, target
        self.operands: tuple[OperandOf, ...] = ()
        self.inner = [slot]

    def options(self, slots: Slots, steps: Steps, every: bool) -> Any:
        value = slots[self.known]
        if not isinstance(value, Node):
            return []
        return self._readers(value, steps.around, [slots[i] for i in steps.calls])

    def _readers(self, value: Node, around: Surroundings, taken: list[Any]) -> Iterator[Any]:
        """Readers of ``value``; those that the match contains already come last. The remaining readers
        are cached, because a value with thousands of readers is asked for repeatedly."""
        key, barred = (value, self.target), around.barred
        queue = around.readers.get(key)
        if queue is None:
            queue = deque(u for u in value.users if u.target is self.target)
            around.readers[key] = queue
        while queue and queue[0] in barred:
            queue.popleft()
        tried = set(taken)
        for user in queue:
            if user not in barred and user not in tried:
                tried.add(user)
                yield (user,)
        for user in value.users:  # readers that were added later
            if user.target is self.target and user not in barred and user not in tried:
                yield (user,)
        for node in taken:
            if isinstance(node, Node) and node.target is self.target and node in value.users:
                yield (node,)


class Steps:
    """A compiled pattern: call :meth:`ways` with a node."""

    def __init__(self, graph: Graph, module: GraphModule, any_weights: bool = False) -> None:
        self.graph, self.module, self.any_weights = graph, module, any_weights
        self.steps: list[Any] = []
        self.slots: dict[Node, int] = {}  # of the pattern's nodes
        self.wildcards: dict[str, int] = {}
        self.parameters: dict[str, int | None] = {}  # slot of each; None for one that is left out
        self.outputs: list[int] = []
        self.calls: list[int] = []
        self.size = 0
        self.target: Any = None
        self.regrouped = False
        self.rest: Node | None = None  # the parameter *xs
        self.around = Surroundings()
        #: The first way to match of the last node asked about that failed for a reader outside.
        self.blocked: Slots | None = None

    @property
    def anchor(self) -> Node:
        """The pattern's call that is matched first: the one that computes its last result."""
        return next(iter(self.slots))

    @property
    def results(self) -> list[Node]:
        """The pattern's calls whose values it returns."""
        nodes = {slot: node for node, slot in self.slots.items()}
        return [nodes[slot] for slot in self.outputs]

    def new_slot(self) -> int:
        self.size += 1
        return self.size - 1

    def ways(self, anchor: Node, around: Surroundings, every: bool) -> Iterator[Slots]:
        """The values of all slots if the last of the pattern's results is ``anchor``, for each way to
        match; with ``every=False`` ways that differ only in names are left out."""
        self.around, self.blocked = around, None
        steps, last = self.steps, len(self.steps)
        slots: Slots = [UNBOUND] * self.size
        slots[0] = anchor
        later: list[tuple[int, Slots, Iterator[Any]]] = []
        number = tries = 0
        for _ in range(_MOST_STEPS + 10 * last):
            if number == last:
                if len(self.outputs) > 1 and len({slots[i] for i in self.outputs}) < len(self.outputs):
                    pass  # one node for two results
                elif self.outside_reader(slots) is not None:
                    self.blocked = self.blocked or slots
                else:
                    yield slots
                tries += 1
                if tries == _MOST_WAYS:
                    return
            else:
                step = steps[number]
                ways = step.options(slots, self, every)
                if ways.__class__ is list and len(ways) < 2:
                    if ways and self._enter(step, ways[0], slots):
                        number += 1
                        continue
                else:
                    later.append((number, slots.copy(), iter(ways)))
            while later:  # resume the last step that has another way
                number, saved, rest = later[-1]
                way = next(rest, UNBOUND)
                if way is UNBOUND:
                    later.pop()
                    continue
                slots = saved.copy()
                if self._enter(steps[number], way, slots):
                    number += 1
                    break
            else:
                return

    def _enter(self, step: Any, values: Any, slots: Slots) -> bool:  # noqa: C901
        """Bind the operands of a step to these values; False if one does not fit. There is one branch
        for each kind of operand, in one function, because this is the innermost loop of matching."""
        if step.__class__ is not Step:
            for slot, node in zip(step.inner, values[len(step.operands) :]):
                slots[slot] = node
        for operand, value in zip(step.operands, values):
            kind, slot, what = operand
            if kind == PARAMETER:
                have = slots[slot]
                if have is UNBOUND:
                    if value is None or value.__class__ is tuple:
                        return False
                    slots[slot] = value
                elif have is not value and not _equal_numbers(have, value):
                    return False
            elif kind == CALL:
                have = slots[slot]
                if have is not UNBOUND:
                    if have is not value:
                        return False
                    continue
                if value.__class__ is not Node or value in self.around.barred:
                    return False
                if (value.target is not what or what.__class__ is str) and not self.same_module(what, value):
                    return False
                slots[slot] = value
            elif kind == NUMBER:
                if isinstance(value, Node) or not same_number(slot, value, slots[step.slot]):
                    return False
            elif kind == ABSENT:
                if value is not None:
                    return False
            elif kind == REST:
                if slots[slot] is not UNBOUND and slots[slot] != value:
                    return False
                slots[slot] = value
            elif kind == WEIGHT:
                have = slots[slot]
                if have is not UNBOUND and self.any_weights:
                    if have is not value:
                        return False
                elif not self.same_weight(what, value):
                    return False
                slots[slot] = value
            elif value.__class__ not in (int, float, bool, complex) or not bind_template(
                what, value, slots, self.wildcards
            ):
                return False
        return True

    def same_weight(self, wanted: Node, value: Any) -> bool:
        """Whether a weight of the pattern matches a value."""
        if not isinstance(value, Node) or value.op != "get_attr":
            return False
        if self.any_weights and not is_constant_path(wanted.target):
            return True
        mine = self.module.get_attribute(wanted.target)
        theirs: Any = value.graph.owning_module
        return same_arrays(mine, theirs.get_attribute(value.target))

    def same_module(self, target: Any, value: Node) -> bool:
        """Whether the leaf module of the pattern at ``target`` matches the module that a node calls."""
        if value.op != "call_module" or isinstance(target, Op):
            return False
        theirs: Any = value.graph.owning_module
        mine, other = self.module.get_submodule(target), theirs.get_submodule(value.target)
        return same_modules(mine, other, not self.any_weights)

    def is_anchor(self, node: Node) -> bool:
        """True if ``node`` calls the op (or an equal module) that computes the pattern's result."""
        if isinstance(self.target, Op):
            return node.target is self.target
        return self.same_module(self.target, node)

    def outside_reader(self, slots: Slots) -> tuple[Node, Node] | None:
        """A value computed inside the match and a node outside that reads it, or None."""
        waiting, dead = self.around.waiting, self.around.dead
        inside: set[Node] = set()
        for slot in self.calls:
            if slot in self.outputs:
                continue
            node: Node = slots[slot]
            if len(node.users) == 1 and node not in waiting:
                continue  # the reader is a call of the pattern
            inside = inside or {slots[i] for i in self.calls}
            for user in (*node.users, *waiting.get(node, ())):
                if user not in inside and user not in dead:
                    return node, user
        return None


def plausible(operand: OperandOf, value: Any) -> bool:
    """A quick check whether an operand of a pattern may match a value."""
    kind, _, what = operand
    if kind == CALL:
        return value.__class__ is Node and (value.target is what or value.op == "call_module")
    if kind in (NUMBER, ANY_NUMBER):
        return value.__class__ is not Node
    if kind == WEIGHT:
        return value.__class__ is Node and value.op == "get_attr"
    return True


def _equal_numbers(a: Any, b: Any) -> bool:
    return not isinstance(a, Node) and not isinstance(b, Node) and same_number(a, b, None)


def same_arrays(a: Any, b: Any) -> bool:
    """True for arrays of equal dtype, shape and bits."""
    return a is b or has_same_bits(np.asarray(a), np.asarray(b))


_CONSTANT = re.compile(r"(?:.*\.)?constant_\d+")


def is_constant_path(path: str) -> bool:
    """Whether a path is one that the tracer gives to an array of the program that no module holds."""
    return _CONSTANT.fullmatch(path) is not None


def same_modules(a: Module, b: Module, weights: bool = True) -> bool:
    """True for leaf modules of one class with equal plain attributes and (``weights``) equal weights."""
    if a is b or type(a) is not type(b):
        return a is b
    mine, theirs = a.state_dict(), b.state_dict()
    return (
        mine.keys() == theirs.keys()
        and (not weights or all(same_arrays(mine[k], theirs[k]) for k in mine))
        and repr(_configuration(a)) == repr(_configuration(b))
    )


def _configuration(module: Module) -> list[tuple[str, Any]]:
    return [
        (f"{path}.{name}", value)
        for path, part in module.named_modules()
        for name, value in part.__dict__.items()
        if not name.startswith("_") and isinstance(value, (bool, int, float, complex, str, tuple))
    ]
