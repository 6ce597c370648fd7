"""Pattern rewriting: find the computation of one function in a graph and replace it by another.

In: a GraphModule, a pattern and a replacement written as plain functions in any spelling::

    def pattern(x, w):              def replacement(x, w):
        return np.maximum(x @ w, 0)     return F.relu(x @ w)

    matches = fx.replace_pattern(gm, pattern, replacement)

Out: the list of matches; the graph is edited in place. :mod:`fxlite.passes.rewrite.pattern` describes
what the parameters of a pattern match. Matching starts from the pattern's result (the *anchor*); each
node of the graph is tried once as an anchor, so the time is linear in the graph's size. Under
torch.fx's names there are filters that receive graphs, replacements made for each match, and matchers
for a pattern's graph; they also match other spellings and orders of operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, expect
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.rewrite.matcher import Slots, Steps, Surroundings
from fxlite.passes.rewrite.pattern import Pattern, Program, as_graph_module
from fxlite.passes.rewrite.replacement import Inserter, Replacement
from fxlite.passes.rewrite.rewire import Rewiring, erase_dead
from fxlite.passes.rewrite.wildcard import UNBOUND

_END = float("inf")  # part of a position: nodes inserted before a node sort before it
_UNDONE = "nothing was replaced, the graph is as it was"


class Match:
    """One place where a pattern was found.

    ``anchor`` is the node that computed the pattern's (last) result, and ``anchors`` are all results
    (also called ``returning_nodes``). ``bindings`` holds the value of each pattern parameter: a node, a
    number, an attribute, None for an operand left out, or a tuple for ``*xs``; ``placeholder_nodes``
    has them in order. ``replacements`` are the new nodes. Replaced nodes are no longer in the
    graph."""

    __slots__ = ("_slots", "_steps", "bindings", "name_node_map", "replacements")

    def __init__(self, steps: Steps, slots: Slots) -> None:
        self._steps = steps
        self._slots = slots
        self.bindings: dict[str, Any] = {}
        for name, slot in steps.parameters.items():
            value = UNBOUND if slot is None else slots[slot]
            self.bindings[name] = None if value is UNBOUND else value
        self.replacements: list[Node] = []
        #: Names that a pattern gives its nodes: see :class:`SubgraphMatcherWithNameNodeMap`.
        self.name_node_map: dict[str, Node] = {}

    @property
    def anchor(self) -> Node:
        return self._slots[0]  # type: ignore[no-any-return]

    @property
    def anchors(self) -> list[Node]:
        return [self._slots[slot] for slot in self._steps.outputs]

    returning_nodes = anchors

    @property
    def placeholder_nodes(self) -> list[Any]:
        return list(self.bindings.values())

    @property
    def pattern_graph(self) -> Graph:
        """The graph of the pattern."""
        return self._steps.graph

    @property
    def calls(self) -> list[Node]:
        """The calls of the graph that the match covers."""
        return list(dict.fromkeys(map(self._slots.__getitem__, self._steps.calls)))

    @property
    def inputs(self) -> list[Node]:
        """The nodes that are bound to the pattern's parameters."""
        return [n for value in self.bindings.values() for n in nodes_in(value)]

    @property
    def nodes(self) -> dict[Node, Node]:
        """The graph's node for each call and weight of the pattern."""
        slots = self._steps.slots.items()
        return {n: self._slots[slot] for n, slot in slots if n.op != "placeholder"}

    @property
    def nodes_map(self) -> dict[Node, Any]:
        """The graph's node (or the number) for each node of the pattern, including its parameters."""
        return {n: self._slots[slot] for n, slot in self._steps.slots.items()}

    def __repr__(self) -> str:
        bound = ", ".join(f"{name}={value!r}" for name, value in self.bindings.items())
        return f"Match({self.anchor.name}: {bound})"


def matches_at(pattern: Pattern, node: Node, around: Surroundings, every: bool = True) -> Iterator[Match]:
    """The matches whose anchor is ``node``; with ``every=False`` only the first is needed."""
    for steps in pattern.variants_for(node):
        for slots in steps.ways(node, around, every):
            yield Match(steps, slots)


def find_match(
    pattern: Pattern, node: Node, around: Surroundings, accept: Callable[[Match], bool] | None = None
) -> Match | None:
    """The first match whose anchor is ``node`` and that ``accept`` approves, or None."""
    found = matches_at(pattern, node, around, accept is not None)
    return next(found if accept is None else filter(accept, found), None)


@checked
def find_matches(
    gm: GraphModule,
    pattern: Program | Pattern,
    match_filter: Callable[[Match], bool] | None = None,
    *,
    associative: bool = False,
    ignore_literals: bool = False,
    same_weights: bool = False,
) -> list[Match]:
    """The places where ``pattern`` occurs, in order, including overlapping matches. Options are those
    of :func:`replace_pattern`."""
    compiled = as_pattern(pattern, associative, ignore_literals, same_weights)
    around = Surroundings()
    found = (find_match(compiled, node, around, match_filter) for node in gm.graph.nodes)
    return [m for m in found if m is not None]


def as_pattern(pattern: Program | Pattern, *options: bool) -> Pattern:
    """A pattern as it is; a program as a pattern with these options."""
    return pattern if isinstance(pattern, Pattern) else Pattern(pattern, *options)


@checked
def replace_pattern(
    gm: GraphModule,
    pattern: Program | Pattern,
    replacement: Program,
    match_filter: Callable[[Match], bool] | None = None,
    *,
    associative: bool = False,
    ignore_literals: bool = False,
    same_weights: bool = False,
) -> list[Match]:
    """Replace every occurrence of ``pattern`` in ``gm`` by ``replacement``, in place; returns the
    matches. The code is generated again when the module is next called.

    Operands of commutative ops match in either order and associative ops in any grouping (sums and
    products of floats, which then round differently, only with ``associative``); axes match modulo
    the rank. Two parameters may match the same value, and a parameter may match a number. Values
    computed inside the pattern must not be read outside it. Matches do not overlap: the first in
    order wins, and new nodes are not matched again. The replacement has the pattern's parameters
    under the same names, or, if the names differ, in the same order; it is traced with the types at
    each place. ``match_filter`` may decline a match. If a pattern returns several values, all of them
    are replaced; a place where no order of the nodes allows that is skipped. With
    ``ignore_literals`` numbers and attributes of the pattern match any others. If the pattern is a
    module, its weights match any weights, or with ``same_weights`` only equal ones.

    Raises ArgumentError for parameters that do not fit. If the replacement does not fit a place
    (its types do not agree), the graph is left as it was and the error names the place."""
    expect(gm, GraphModule, "what replace_pattern edits", "trace it first: fx.symbolic_trace(...)")
    compiled = as_pattern(pattern, associative, ignore_literals, same_weights)
    new = Replacement(replacement, compiled, "replace_pattern")
    return replace_matches(gm, compiled, lambda match: new, match_filter)


def replace_matches(
    gm: GraphModule,
    compiled: Pattern,
    new_at: Callable[[Match], Replacement],
    match_filter: Callable[[Match], bool] | None,
) -> list[Match]:
    """Replace the matches of a pattern by what ``new_at`` returns for each."""
    matches: list[Match] = []
    with paused_gc(), gm.graph.transaction("replace_pattern"):
        rewriter = Rewriter(gm)
        around = rewriter.around
        for node in list(gm.graph.nodes):
            rewriter.refresh(node)
            if node not in around.barred and compiled.variants_for(node):
                found = find_match(compiled, node, around, match_filter and rewriter.settled(match_filter))
                if found is not None and rewriter.replace(found, new_at(found)) is None:
                    matches.append(found)
        rewriter.finish()
    gm._prepare()
    return matches


class Rewriter:
    """Replaces matches one by one while a loop visits the nodes in order. Replaced nodes stay in
    the graph, and readers are rewritten when the loop reaches them, until :meth:`finish`."""

    def __init__(self, gm: GraphModule, bar_new: bool = True) -> None:
        """With ``bar_new``, new nodes are not matched again."""
        self.gm = gm
        self.graph = gm.graph
        self.bar_new = bar_new
        self.around = Surroundings()
        self._dead = self.around.dead
        self._rewiring = Rewiring(self.graph)
        self.around.waiting = self._rewiring.waiting
        self._inserter: Inserter | None = None
        self._unread: list[Node] = []  # inputs of replaced single nodes
        self._positions: dict[Node, tuple[float, ...]] = {}
        self._created = 0

    def refresh(self, node: Node) -> None:
        """Make a node read the replacements made so far; the loop calls this on every node."""
        try:
            self._rewiring.refresh(node)
        except Exception as error:
            error.add_note(f"at {node.describe()}, which reads a replacement; {_UNDONE}")
            raise

    def settle(self, match: Match) -> None:
        """Update the readers of all values that a match binds."""
        for value in (*match.bindings.values(), *match.anchors):
            for reader in list(self.around.waiting.get(value, ())) if value.__class__ is Node else ():
                self.refresh(reader)

    def settled(self, accept: Callable[[Match], bool]) -> Callable[[Match], bool]:
        """``accept``, changed so that it sees the current readers of the values that a match binds."""

        def check(match: Match) -> bool:
            self.settle(match)
            return accept(match)

        return check

    def replace(self, match: Match, new: Replacement, keep_types: bool = False) -> str | None:
        """Compute the replacement and redirect the readers of the match's results to it. Returns None,
        or the reason why that is not possible here (with ``keep_types`` also if types would change);
        in that case nothing was edited."""
        anchors = match.anchors
        before: Node | None = anchors[0]
        if len(anchors) > 1:
            before = self._place(match)
            if before is None:
                return "no place in the order of the nodes is after its inputs and before its readers"
        assert before is not None
        if keep_types:
            reason = new.why_not(match)
            if reason is not None:
                return reason
        try:
            traced = new.at(match.bindings)
        except Exception as error:
            raise self._at(match, error) from None
        if self._inserter is None:
            self._inserter = Inserter(self.gm)
        if len(anchors) > 1:
            self._move_weights(match, before)
        try:
            results, made = self._inserter.insert(traced, match.bindings, match.anchor, before)
        except Exception as error:
            raise self._at(match, error) from None
        for old, result in zip(anchors, results):
            if not isinstance(result, Node):
                raise ArgumentError(f"the replacement gives {result!r} for {match}, not a tensor")
            self._rewiring.replace(old, result)
        match.replacements = made
        self._bar(match, anchors, results, made)
        if self._positions:
            self._enter_positions(made, before)
        return None

    def replace_node(self, node: Node, new: Node, made: list[Node]) -> None:
        """Redirect the readers of one node to ``new``, which is computed before it; ``made`` are the
        new nodes. Nodes that only the old one read are removed, too."""
        self._rewiring.replace(node, self._rewiring.current(new))
        self._dead[node] = None
        self.around.barred.add(node)
        if self.bar_new:
            self.around.barred.update(made)
        self._unread.extend(node.all_input_nodes)
        if self._positions:
            self._enter_positions(made, node)

    def _at(self, match: Match, error: Exception) -> Exception:
        error.add_note(f"while replacing {match} at {match.anchor.describe()}; {_UNDONE}")
        return error

    def _bar(self, match: Match, anchors: list[Node], results: list[Node], made: list[Node]) -> None:
        """Exclude the new nodes and those they replace from further matches."""
        dead, barred = self._dead, self.around.barred
        if self.bar_new:
            barred.update(made)
        calls = match.calls
        if len(calls) > len(anchors):  # inner values that the replacement reads stay
            needed = {n for new in made for n in new.all_input_nodes}
            needed.update(results)
            calls = [n for n in calls if n in anchors or n not in needed]
        for node in calls:
            dead[node] = None
        barred.update(calls)

    # -- several results -----------------------------------------------------------------------
    def _place(self, match: Match) -> Node | None:
        """The first result, or reader of a result, that comes after all inputs of the match; None if a
        reader comes before an input. Weights can be read anywhere."""
        positions = self._positions
        if not positions:
            positions.update((n, (i, _END)) for i, n in enumerate(self.graph.nodes))
        inputs = (positions[n] for n in match.inputs if n.op != "get_attr")
        last = max(inputs, default=(-1,))
        calls = set(match.calls)
        readers = [
            user
            for anchor in match.anchors
            for user in (*anchor.users, *self._rewiring.waiting.get(anchor, ()))
            if user not in calls and user not in self._dead
        ]
        if any(positions[reader] <= last for reader in readers):
            return None
        found: Node = min((n for n in (*match.anchors, *readers) if positions[n] > last), key=positions.__getitem__)
        return found

    def _move_weights(self, match: Match, before: Node) -> None:
        """Move the reads of weights among the inputs before ``before``."""
        for node in dict.fromkeys(match.inputs):
            if node.op == "get_attr" and self._positions[node] > self._positions[before]:
                before.prepend(node)
                self._created += 1
                self._positions[node] = (*self._positions[before][:-1], self._created, _END)

    def _enter_positions(self, made: list[Node], before: Node) -> None:
        for node in made:
            start = self._positions[before][:-1] if node.op != "get_attr" else (-1,)
            self._created += 1
            self._positions[node] = (*start, self._created, _END)

    # -- the end -------------------------------------------------------------------------------
    def finish(self) -> list[Node]:
        """Redirect all readers to the replacements, and erase the replaced nodes; a node that is still
        read stays. Returns the inputs of nodes that were removed because only replaced ones read them."""
        if not self._rewiring.new:
            return []
        try:
            self._rewiring.refresh_all()
        except Exception as error:
            error.add_note(_UNDONE)
            raise
        work = list(self._dead)
        while work:
            node = work.pop()
            if not node._erased and not node.users:
                work.extend(n for n in node.all_input_nodes if n in self._dead)
                self.graph.erase_node(node)
        return erase_dead(self._unread)


# -- torch.fx's names ------------------------------------------------------------------------------
Filter = Callable[[Match, Graph, Graph], bool]


@checked
def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Program,
    replacement: Program | None = None,
    match_filters: Iterable[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[Match, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[Match]:
    """:func:`fxlite.replace_pattern` with filters that receive (match, graph, graph of the pattern)
    and must all return true. Instead of ``replacement``, ``replacement_callback`` may be given, which
    receives the same arguments and returns the graph to insert for a match. Parameters of replacements
    are those of the pattern in the same order, whatever their names. Only nodes with
    ``node_name_match`` in their names are anchors.

    Raises ArgumentError if neither or both replacements are given, and otherwise as replace_pattern."""
    if (replacement is None) == (replacement_callback is None):
        raise ArgumentError("give either replacement, or replacement_callback")
    filters = tuple(match_filters or ())
    compiled = Pattern(pattern, ignore_literals=ignore_literals)

    def accept(match: Match) -> bool:
        is_named = not node_name_match or node_name_match in match.anchor.name
        return is_named and all(f(match, gm.graph, match.pattern_graph) for f in filters)

    def new_at(match: Match) -> Replacement:
        made = replacement_callback(match, gm.graph, match.pattern_graph)  # type: ignore[misc]
        expect(made, (Graph, GraphModule), "what replacement_callback returns")
        return Replacement(made, compiled, "replace_pattern_with_filters", by_position=True)

    if replacement is not None:
        same = Replacement(replacement, compiled, "replace_pattern_with_filters", by_position=True)
        return replace_matches(gm, compiled, lambda match: same, accept)
    return replace_matches(gm, compiled, new_at, accept)


class SubgraphMatcher:
    """Finds the graph of a pattern in graphs. With ``match_output`` its results must be results of the
    graph, with ``match_placeholder`` its inputs must be inputs of the graph. Unless
    ``remove_overlapping_matches`` is False, only the first of overlapping matches is found. With
    ``ignore_literals`` numbers and attributes match any others."""

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        expect(pattern, Graph, "the pattern of a SubgraphMatcher", "trace it: Tracer().trace(f)")
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        self._compiled = Pattern(pattern, ignore_literals=ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[Match]:
        """The matches of the pattern, in order, whose anchors have ``node_name_match`` in their names."""
        gm, around, found = as_graph_module(graph), Surroundings(), []
        for node in gm.graph.nodes:
            if node_name_match not in node.name or node in around.barred:
                continue
            match = find_match(self._compiled, node, around, self._fits)
            if match is not None:
                found.append(match)
                if self.remove_overlapping_matches:
                    around.barred.update(match.calls)
        return found

    def _fits(self, match: Match) -> bool:
        inputs = match.placeholder_nodes
        if self.match_placeholder and not all(isinstance(n, Node) and n.op == "placeholder" for n in inputs):
            return False
        results = match.anchor.graph.output_node().all_input_nodes
        return not self.match_output or results == match.anchors


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """Finds a pattern that returns its results followed by a dict of nodes by name; each match has the
    corresponding nodes as ``name_node_map``."""

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        expect(pattern_gm, GraphModule, "the pattern of a SubgraphMatcherWithNameNodeMap")
        plain = pattern_gm.copy()
        output: Any = plain.graph.output_node()
        result = output.args[0]
        if not isinstance(result, tuple) or len(result) < 2 or not isinstance(result[-1], dict):
            raise ArgumentError('a pattern with names returns its results and a dict: return y, {"conv": conv}')
        *results, self.name_node_map = result
        output.args = (results[0] if len(results) == 1 else tuple(results),)
        plain.graph.interface = None
        super().__init__(plain.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[Match]:
        """As :meth:`SubgraphMatcher.match`; each match has its ``name_node_map``."""
        found = super().match(graph, node_name_match)
        for match in found:
            nodes = match.nodes_map
            match.name_node_map = {name: nodes[n] for name, n in self.name_node_map.items()}
        return found
