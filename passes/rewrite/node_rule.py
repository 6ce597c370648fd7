"""Rules about one node: for what is too local, or asks too much, for a pattern.

In: a function that gets a call of certain ops and says what its readers may read instead. Out: a
:class:`NodeRule`, which is a pass and may stand in a
:class:`~fxlite.passes.rewrite.rule_set.RuleSet` beside rules with patterns::

    @node_rule("permute", "flip")
    def undone(node):
        \"\"\"A flip of the same flip is no flip.\"\"\"
        x = node.args[0]
        if not is_call(x, node.target.name):
            return None                                  # nothing to say about this node
        if x.kwargs != node.kwargs:
            return "it undoes another axis"              # a reason, for the ledger
        return x.args[0]                                 # or Call("reshape", x, shape=(2, 3))

An answer is used only if it has the node's type. Unlike a pattern, the function may look at a value
that others read too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, did_you_mean
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op, lookup
from fxlite.passes.base import Pass, enter
from fxlite.passes.ledger import Refusal, add_refusals, refusal
from fxlite.passes.rewrite.match import Rewriter
from fxlite.types.agreement import Exactness

_SHOWN = 10  # nodes in an explanation


class Call:
    """A call to make in place of a node: ``Call("reshape", x, shape=(2, 3))``."""

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


@dataclass(frozen=True)
class NodeRewrite:
    """Where a rule fired: what the replaced node read, and the nodes put in."""

    inputs: list[Node]
    replacements: list[Node]


class NodeRule(Pass):
    """A function of one node as a pass. Make one with :func:`node_rule`."""

    #: How many calls above a node its answer may depend on; a set of rules looks again that far.
    height = 2

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

    def try_at(self, rewriter: Rewriter, node: Node, refused: list[Refusal]) -> NodeRewrite | None:
        """Rewrite at ``node`` if the rule fires there; a reason not to goes into ``refused``."""
        found = self.answer(node)
        if isinstance(found, str):
            refused.append(refusal(self.name, node, found, [node]))
            return None
        if found is None or found is node or found.type != node.type:
            return None
        inputs, made = node.all_input_nodes, list[Node]()
        if isinstance(found, Call):
            graph = node.graph
            with graph.inserting_before(node), graph.with_origin(node):
                new = graph.call_op(found.op, found.args, found.kwargs)
            new.meta["from"] = ((self.name, node.name), *(node._meta or {}).get("from", ()))
            made.append(new)
            found = new
        rewriter.replace_node(node, found, made)
        return NodeRewrite(inputs, made)

    def explain(self, gm: GraphModule, node: Node | str | None = None) -> NodeExplanation:
        """What the rule's function says about the nodes it looks at, or about one of them. Raises
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

    def _run(self, gm: GraphModule) -> None:
        refused: list[Refusal] = []
        with paused_gc():
            rewriter = Rewriter(gm)
            barred = rewriter.around.barred
            for node in list(gm.graph.nodes):
                rewriter.refresh(node)
                if node not in barred and self.may_fire(node):
                    self.try_at(rewriter, node, refused)
            rewriter.finish()
        add_refusals(gm, refused)


@dataclass(frozen=True)
class NodeExplanation:
    """What a rule says about nodes; ``str`` is the text."""

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
    """Make a rule of a function of one node that calls one of ``ops``; see the text of this module.

    It is registered as a pass, unless it is to be used in a set only. Raises ArgumentError for an
    unknown op."""

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
    """True for a Python number of that value (sign of zero included), not for a bool."""
    return type(value) in (int, float) and value == number and math.copysign(1, value) == math.copysign(1, number)
