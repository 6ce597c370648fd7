"""Rules: passes written as a pattern, a replacement, and conditions.

A rule is written with plain functions, like ops::

    @rule(exactness="allclose")                    # a pass: silu(gm) is a new module
    def silu(x):
        \"\"\"x * sigmoid(x) is silu(x).\"\"\"
        return x * F.sigmoid(x)                    # the pattern, in any spelling

    @silu.replacement
    def _(x):
        return F.silu(x)

    @silu.where                                    # optional; there may be several
    def _(x):
        return is_float(x) or "x is not a float tensor"

    silu.example(lambda x: x * F.sigmoid(x), x="f32[4]")
    silu.counterexample(lambda x, y: x * F.sigmoid(y), x="f32[4]", y="f32[4]")

**The pattern** runs once, on symbols. NumPy functions, operators, ``nn.functional`` and modules
become ops as usual, so one spelling finds them all. Parameters mark what may differ:

- ``x``: any value. A number fits too, and two parameters may stand for one value.
- ``bias=None``: an operand that may be missing; the pattern sees None, and so may branch on it.
- ``*xs``: any number of operands, in the list of ``np.concatenate(xs)``, ``np.stack((x, *xs))``.
- ``*, stride``: any attribute (``F.conv2d(x, w, stride=stride)``), any number (``x * stride``).

Everything else matches as written: numbers, attributes, arrays, the weights of a module that is
called. Operands of commutative ops match in either order, and chains of one associative op match
however they are grouped (sums and products of floats, which then round differently, only in rules
that are not ``exact``). Values computed inside the pattern must not be read outside it; if a pattern
returns several values, all of them are replaced.

**The replacement** takes parameters of the same names and is traced with the types found at each
place, so it may ask for ``x.shape``. Attributes arrive as the numbers found, so it may compute with
them. A replacement whose type differs from that of the replaced value is refused.

**where** takes parameters of the same names (a first one named ``match`` is the
:class:`~fxlite.passes.rewrite.match.Match`) and returns True, False, or a text with the reason why
not. :mod:`fxlite.passes.rewrite.predicates` has small questions to ask. If there are several ways to
match, the first that fulfils the conditions is used.

If the pattern fits but the rule does not fire, the reason is in the ledger (``passes.ledger(gm)``);
if the pattern almost fits, ``silu.explain(gm)`` says what is missing. A rule looks at every node once
and not at the nodes it inserts; :class:`~fxlite.passes.rewrite.rule_set.RuleSet` applies rules until
none fires. Every rule has an example and a counterexample.

**A rule about one node** is for rewrites that are too local for a pattern, or need conditions that a
pattern cannot express: a function that is called with each call of certain ops and returns the value
that its readers may read instead::

    @node_rule("permute", "flip")
    def undone(node):
        \"\"\"A flip of the same flip is no flip.\"\"\"
        x = node.args[0]
        if not is_call(x, node.target.name):
            return None                                  # nothing to say about this node
        if x.kwargs != node.kwargs:
            return "it undoes another axis"              # a reason, for the ledger
        return x.args[0]                                 # or Call("reshape", x, shape=(2, 3))

The answer is used only if it has the node's type. Unlike a pattern, the function may inspect a value
that others read as well.
"""

from __future__ import annotations

import abc
import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, did_you_mean
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import map_aggregate
from fxlite.ops.op import Op, lookup
from fxlite.passes.base import Pass, PassError, enter
from fxlite.passes.ledger import Refusal, add_refusals, refusal
from fxlite.passes.rewrite.match import Match, Rewriter, find_matches, matches_at
from fxlite.passes.rewrite.pattern import Parameters, Pattern, caller, parameters_of
from fxlite.passes.rewrite.replacement import Replacement, match_names
from fxlite.types.agreement import Exactness

if TYPE_CHECKING:
    from fxlite.passes.rewrite.explain import Explanation

Condition = Callable[[Match], "bool | str"]
#: Why rules did not fire, by the rule's name and the node.
Refused = dict[tuple[str, Node], Refusal]


class Fired(NamedTuple):
    """A place where a rule fired: the nodes it reads, and the new nodes."""

    inputs: list[Node]
    replacements: list[Node]


class AnyRule(Pass):
    """A pass that looks at one node after the other: a :class:`Rule` (pattern and replacement) or a
    :class:`NodeRule` (a function of one node). A :class:`RuleSet` applies several."""

    @property
    def height(self) -> int:
        """How many calls above a node decide whether the rule fires there; a set revisits readers that far away."""
        return 2

    @abc.abstractmethod
    def may_fire(self, node: Node) -> bool:
        """False if the call alone rules it out; the answer depends only on the op, or the kind of node."""

    @abc.abstractmethod
    def try_at(self, rewriter: Rewriter, node: Node, refused: Refused) -> Fired | None:
        """Rewrite at ``node`` if the rule fires there; a reason not to is added to ``refused``."""

    def _run(self, gm: GraphModule) -> None:
        refused: Refused = {}
        with paused_gc():
            rewriter = Rewriter(gm)
            barred = rewriter.around.barred
            for node in list(gm.graph.nodes):
                rewriter.refresh(node)
                if node not in barred and self.may_fire(node):
                    self.try_at(rewriter, node, refused)
            rewriter.finish()
        add_refusals(gm, list(refused.values()))


class Rule(AnyRule):
    """A pattern with a replacement, as a pass. Make one with :func:`rule`."""

    def __init__(self, pattern: Callable[..., Any], name: str, exactness: Exactness | str) -> None:
        super().__init__(pattern, name, exactness)
        self.program = pattern
        self.function = self._run
        self._replacement: Callable[..., Any] | None = None
        self._conditions: list[Condition] = []

    # -- writing a rule ------------------------------------------------------------------------
    def replacement(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach the replacement of the pattern: a function of the same parameters."""
        self._replacement = function
        self.__dict__.pop("new", None)
        return function

    def where(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach a condition: a function of the same parameters (a first one named ``match`` is the
        Match) that returns True, False, or a text with the reason why not."""
        self._conditions.append(_condition(function, parameters_of(self.program)))
        return function

    # -- what it consists of -------------------------------------------------------------------
    @functools.cached_property
    def pattern(self) -> Pattern:
        """The pattern, traced. Raises ArgumentError for a function that cannot be one."""
        return Pattern(self.program, associative=self.exactness.kind != "exact")

    @functools.cached_property
    def new(self) -> Replacement:
        """The replacement. Raises PassError if the rule has none, ArgumentError for parameters that
        do not fit."""
        if self._replacement is None:
            raise PassError(f"rule {self.name} has no replacement: write one under @{self.name}.replacement")
        return Replacement(self._replacement, self.pattern, self.name)

    @functools.cached_property
    def height(self) -> int:
        """How many calls above a node the pattern may reach."""
        return max((len(v.steps) for v in self.pattern.variants), default=0)

    # -- applying it ---------------------------------------------------------------------------
    def may_fire(self, node: Node) -> bool:
        """True if the node calls the op (or module) that computes the pattern's last result."""
        return bool(self.pattern.variants_for(node))

    def find(self, gm: GraphModule) -> list[Match]:
        """The places where the rule would fire, in order, including overlapping ones."""
        return find_matches(gm, self.pattern, lambda match: self.why_not(match) is None)

    def explain(self, gm: GraphModule, node: Node | str | None = None) -> Explanation:
        """Explain why the rule does not fire: the places where it almost does, best first, each with the
        first difference and the smallest change to the pattern. With ``node``: why not there."""
        from fxlite.passes.rewrite.explain import explain

        return explain(gm, self, node)

    def why_not(self, match: Match) -> str | None:
        """The reason why a condition declines a match, or None."""
        for condition in self._conditions:
            answer = condition(match)
            if answer is None:
                raise ArgumentError(f"a condition of rule {self.name} gives None: it must give True, False or a reason")
            if isinstance(answer, str) or not answer:
                return answer or "a condition of the rule is not met"
        return None

    def try_at(self, rewriter: Rewriter, node: Node, refused: Refused) -> Fired | None:
        """Rewrite at ``node`` if the rule fires there; a reason not to is added to ``refused``."""
        first: tuple[str, list[Node]] | None = None
        for match in matches_at(self.pattern, node, rewriter.around, bool(self._conditions)):
            if self._conditions and rewriter.around.waiting:
                rewriter.settle(match)
            reason = self.why_not(match)
            if reason is None:
                reason = rewriter.replace(match, self.new, keep_types=True)
                if reason is None:
                    return Fired(match.inputs, match.replacements)
                first = reason, match.calls
                break
            first = first or (reason, match.calls)
        for steps in self.pattern.variants_for(node) if first is None else ():
            if steps.blocked is not None:
                first = _read_outside(steps.outside_reader(steps.blocked)), Match(steps, steps.blocked).calls
                break
        if first is not None:
            refused[self.name, node] = refusal(self.name, node, *first)
        return None

    def _run(self, gm: GraphModule) -> None:
        self.pattern  # noqa: B018 - traced before the loop: an error in it is none of a node's
        super()._run(gm)


def _read_outside(found: tuple[Node, Node] | None) -> str:
    assert found is not None
    value, reader = found
    where = f" at {reader.loc.short}" if reader.loc is not None else ""
    return f"{value.name} has a second reader: {reader.name}{where}"


def _condition(function: Callable[..., Any], pattern: Parameters) -> Condition:
    """A condition as a function of the match, whatever its parameters are."""
    names = list(inspect.signature(function).parameters)
    mine = parameters_of(function)
    wants_match = names[:1] == ["match"] and "match" not in pattern.names
    if wants_match:
        others = tuple(n for n in mine.operands if n != "match")
        mine = Parameters(others, mine.optional, mine.rest, mine.attributes)
    if wants_match and not mine.names:
        return function
    from_pattern = match_names(mine, pattern, "a condition")
    call = caller(function)

    def condition(match: Match) -> Any:
        values: dict[str, Any] = dict(zip(from_pattern, map(match.bindings.__getitem__, from_pattern.values())))
        return call({"match": match, **values} if wants_match else values)

    return condition


@overload
def rule(function: Callable[..., Any]) -> Rule: ...
@overload
def rule(
    function: None = None, *, name: str | None = None, exactness: Exactness | str = "exact", register: bool = True
) -> Callable[[Callable[..., Any]], Rule]: ...
@checked
def rule(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    exactness: Exactness | str = "exact",
    register: bool = True,
) -> Any:
    """Make a rule of a pattern; see :mod:`fxlite.passes.rewrite.rule`. It is registered as a pass unless
    ``register`` is False, for a rule that is used only in a set.

    ``exactness`` is that of a pass: ``exact`` (bit for bit), ``allclose`` or ``sqnr``."""

    def wrap(function: Callable[..., Any]) -> Rule:
        made = Rule(function, name or function.__name__, exactness)
        if register:
            enter(made)
        return made

    return wrap if function is None else wrap(function)


# -- rules about one node --------------------------------------------------------------------------
_SHOWN = 10  # nodes in an explanation


class Call:
    """A call to make in place of a node: ``Call("reshape", x, shape=(2, 3))``. What it reads may be calls, too."""

    def __init__(self, op: str, *args: Any, **kwargs: Any) -> None:
        named = lookup(op)
        self.op, bound = named.canonicalize(named.bind(args, kwargs))
        self.args, self.kwargs = self.op.split_arguments(bound)

    @property
    def type(self) -> Any:
        """Type of the result."""
        return self.op.type_of_call(self.args, self.kwargs)

    def __repr__(self) -> str:
        return f"a call of {self.op.name}"


#: A value to read instead, a call to make, a reason not to, or nothing to say.
Answer = Node | Call | str | None


class NodeRule(AnyRule):
    """A function of one node as a pass. Make one with :func:`node_rule`."""

    def __init__(
        self, function: Callable[[Node], Answer], ops: tuple[str, ...], name: str, exactness: Exactness | str
    ) -> None:
        super().__init__(function, name, exactness)
        self.answer = function
        self.function = self._run
        self.ops: tuple[Op, ...] = tuple(map(lookup, ops))

    def may_fire(self, node: Node) -> bool:
        """True if the node calls one of the rule's ops."""
        return node.op == "call_function" and node.target in self.ops

    def try_at(self, rewriter: Rewriter, node: Node, refused: Refused) -> Fired | None:
        """Rewrite at ``node`` if the rule fires there; a reason not to is added to ``refused``."""
        found = self.answer(node)
        if isinstance(found, str):
            refused[self.name, node] = refusal(self.name, node, found, [node])
            return None
        if found is None or found is node or found.type != node.type:
            return None
        inputs, made = node.all_input_nodes, list[Node]()
        if isinstance(found, Call):
            graph = node.graph

            def inserted(value: Any) -> Any:
                if not isinstance(value, Call):
                    return value
                new = graph.call_op(value.op, map_aggregate(value.args, inserted), value.kwargs)
                new.meta["from"] = ((self.name, node.name), *(node._meta or {}).get("from", ()))
                made.append(new)
                return new

            with graph.inserting_before(node), graph.with_origin(node):
                found = inserted(found)
        rewriter.replace_node(node, found, made)
        return Fired(inputs, made)

    def explain(self, gm: GraphModule, node: Node | str | None = None) -> NodeExplanation:
        """Show what the rule's function returns for the nodes it looks at, or for one of them. Raises
        ArgumentError for an unknown node."""
        if node is None:
            return NodeExplanation(self, tuple(filter(self.may_fire, gm.graph.nodes)))
        name = node if isinstance(node, str) else node.name
        for candidate in gm.graph.nodes:
            if candidate.name == name:
                return NodeExplanation(self, (candidate,))
        hint = did_you_mean(name, [n.name for n in gm.graph.nodes], 1)
        raise ArgumentError(f"the graph has no node {name!r}{hint}")

    def why_not(self, node: Node) -> str | None:
        """Why the rule does not fire at a node, or None."""
        if not self.may_fire(node):
            there = node.target.name if node.op == "call_function" else node.op
            return f"the rule looks at {_listed(self.ops)}, this is {there}"
        found = self.answer(node)
        if isinstance(found, str):
            return found
        if found is None or found is node:
            return "the rule's function has no answer here"
        if found.type != node.type:
            name = found.name if isinstance(found, Node) else found
            return f"its answer, {name}, would change the type from {node.type} to {found.type}"
        return None


@dataclass(frozen=True)
class NodeExplanation:
    """What a rule returns for nodes; ``str`` gives the text."""

    rule: NodeRule
    nodes: tuple[Node, ...]

    def __str__(self) -> str:
        rule = self.rule
        if not self.nodes:
            return f"{rule.name} does not fire: the graph has no {_listed(rule.ops)}"
        lines: list[str] = []
        fires = [n for n in self.nodes if rule.why_not(n) is None]
        if fires:
            shown = ", ".join(n.name for n in fires[:_SHOWN])
            more = f" and {len(fires) - _SHOWN} more" if len(fires) > _SHOWN else ""
            lines.append(f"{rule.name} fires at {shown}{more}")
        silent = [(n, reason) for n in self.nodes if (reason := rule.why_not(n)) is not None]
        if silent:
            lines.append(f"{rule.name} does not fire at")
        for node, reason in silent[:_SHOWN]:
            origin = f"   ({node.origin})" if node.origin else ""
            lines += [f"  {node.format_node().strip()}{origin}", f"    {reason}"]
        if len(silent) > _SHOWN:
            lines.append(f"  and {len(silent) - _SHOWN} more")
        return "\n".join(lines)

    __repr__ = __str__


@checked
def node_rule(
    *ops: str, name: str | None = None, exactness: Exactness | str = "exact", register: bool = True
) -> Callable[[Callable[[Node], Answer]], NodeRule]:
    """Make a rule of a function of one node that calls one of ``ops``; see
    :mod:`fxlite.passes.rewrite.rule`.

    It is registered as a pass unless ``register`` is False, for a rule that is used only in a set.
    Raises ArgumentError for an unknown op."""

    def wrap(function: Callable[[Node], Answer]) -> NodeRule:
        made = NodeRule(function, ops, name or function.__name__, exactness)
        if register:
            enter(made)
        return made

    return wrap


def _listed(ops: tuple[Op, ...]) -> str:
    return " or ".join(op.name for op in ops)


# -- questions -------------------------------------------------------------------------------------
def is_call(value: Any, *names: str) -> bool:
    """True if ``value`` is a node that calls one of these ops."""
    return isinstance(value, Node) and value.op == "call_function" and value.target.name in names


def is_number(value: Any, number: float) -> bool:
    """True for a Python number of that value and sign of zero; False for a bool."""
    return type(value) in (int, float) and value == number and math.copysign(1, value) == math.copysign(1, number)


def number_of(value: Any) -> float | None:
    """The value of a number (not a bool) or of a constant of rank 0; None for other values."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, Node) or value.op != "get_attr" or getattr(value.type, "rank", None) != 0:
        return None
    owner = value.graph.owning_module
    return None if owner is None else float(np.asarray(owner.get_attribute(value.target)))
