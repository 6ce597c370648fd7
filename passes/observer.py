"""What a function does to a graph, observed from outside: torch.fx's ``GraphTransformObserver``.

In: a module, and any function that edits it. Out: the names of the nodes that it made and erased,
and pictures of before and after. A :class:`~fxlite.passes.PassManager` reports the same of each of
its passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from fxlite.base.checked import checked_methods
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule

T = TypeVar("T")


@checked_methods
class GraphTransformObserver:
    """``with GraphTransformObserver(gm, "my pass") as observer: edit(gm)``: ``created_nodes`` and
    ``erased_nodes`` are the names of what was made and erased. Into the folder ``log_url``, if it
    is given, go two pictures with what changed, ``pass_1_NAME_input_graph.dot`` and
    ``..._output_graph.dot``."""

    _numbers: ClassVar[itertools.count[int]] = itertools.count(1)
    _count: ClassVar[int] = 0

    def __init__(
        self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | Path | None = None
    ) -> None:
        self.gm, self.passname, self.subsystem, self.log_url = gm, passname, subsystem, log_url
        self.created_nodes: set[str] = set()
        self.erased_nodes: set[str] = set()
        self._before: GraphModule | None = None

    @classmethod
    def get_current_pass_count(cls) -> int:
        """How many passes were observed with a ``log_url`` so far."""
        return GraphTransformObserver._count

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], T]) -> T:
        """Call a function of the module, observed."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Callable[[Graph], T]) -> T:
        """Call a function of the graph, observed."""
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self) -> Self:
        self.created_nodes.clear()
        self.erased_nodes.clear()
        self._before = None if self.log_url is None else self.gm.copy()
        self.gm.register_create_node_hook(self._created)
        self.gm.register_erase_node_hook(self._erased)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.gm.unregister_create_node_hook(self._created)
        self.gm.unregister_erase_node_hook(self._erased)
        if self.log_url is None or self._before is None:
            return
        GraphTransformObserver._count = next(self._numbers)
        if self.created_nodes or self.erased_nodes:
            stem = f"pass_{self._count}_{self.passname.replace(' ', '_')}"
            folder = Path(self.log_url)
            before, after = self._before.graph, self.gm.graph
            before.draw(folder / f"{stem}_input_graph.dot", color="change", changed_from=after)
            after.draw(folder / f"{stem}_output_graph.dot", color="change", changed_from=before)

    def _created(self, node: Node) -> None:
        self.created_nodes.add(node.name)

    def _erased(self, node: Node) -> None:
        self.erased_nodes.add(node.name)
