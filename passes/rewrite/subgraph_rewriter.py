"""torch.fx's names for rewriting: filters that see graphs, replacements made for each match, and
matchers of a pattern's graph.

In: a GraphModule and patterns. Out: matches. What finds and replaces is
:mod:`fxlite.passes.rewrite.match`: other spellings and orders of operands match, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, expect
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.rewrite.match import Match, find_match, replace_matches
from fxlite.passes.rewrite.matcher import Surroundings
from fxlite.passes.rewrite.pattern import Pattern, Program, as_graph_module
from fxlite.passes.rewrite.replacement import Replacement

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
    """:func:`fxlite.replace_pattern` with filters of (match, graph, graph of the pattern), all of
    which must be true, and perhaps with a function of these that gives the graph to put in for a
    match. Parameters of replacements are those of the pattern in the same order, whatever their
    names. Only nodes with ``node_name_match`` in their names are anchors.

    Raises ArgumentError where neither or both replacements are given; see replace_pattern."""
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
    """Finds the graph of a pattern in graphs. ``match_output``: where its results are those of the
    graph; ``match_placeholder``: where its inputs are inputs of the graph. Of matches that overlap
    the first is found, unless not ``remove_overlapping_matches``. Numbers and attributes match any
    with ``ignore_literals``."""

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
        """Where the pattern is found, in order; ``node_name_match`` is in the anchor's name."""
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
    """Finds a pattern that returns its results and, last, a dict of nodes by name, which matches
    then have as ``name_node_map``."""

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
