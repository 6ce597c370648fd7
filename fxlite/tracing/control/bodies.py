"""The bodies of loops and the branches of conditions while they are traced.

In: a tracer at work. Out: sub-graphs. A body is recorded into a graph of its own; a value of the
program around it that the body reads is *captured*: it becomes an input of the body, and an operand
of the node that has it. Bodies may be traced inside of bodies: what the inner one captures of the
program around both, the outer one does, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fxlite.graph.graph import Node
from fxlite.graph.subgraph import BodyBuilder, SubGraph
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.python_numbers import PythonNumber
from fxlite.tracing.writes.shared_memory import Memory, View
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


class Body(BodyBuilder):
    """``with Body(tracer, what) as body:`` what is recorded inside goes into ``body.graph``;
    ``what`` is what the body belongs to, for messages."""

    def __init__(self, tracer: Tracer, what: str) -> None:
        super().__init__(tracer.graph)
        self.tracer, self.what = tracer, what
        self.parent: Body | None = tracer.bodies[-1] if tracer.bodies else None
        self.graph._store.namer.taken |= self.outer._store.namer.taken

    def __enter__(self) -> Body:
        self.tracer.graph = self.graph
        self.tracer.bodies = [*self.tracer.bodies, self]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracer.graph = self.outer
        self.tracer.bodies = self.tracer.bodies[:-1]

    def own(self, name: str, type: TensorType, number: bool = False, refusal: str = "") -> Proxy:
        """The next input; inside it is a value that the body owns and may write into, unless there
        is a ``refusal``. ``number``: a number of Python."""
        node = self.input(name, type)
        if number:
            return PythonNumber(node, self.tracer)
        proxy = self.tracer.proxy(node)
        memory = Memory(refusal, is_number=not type.shape)
        proxy._view = View(node, memory, self.tracer.writes.count)
        return proxy

    def note(self, place: Any) -> None:
        """A place is about to be set."""

    def own_object(self, value: Any) -> None:
        """An object was made in here."""

    def may_write(self, root: View) -> bool:
        """Whether the body may write into memory: into its own."""
        return root.home is self.graph

    def lift(self, node: Node) -> Node:
        """A value as the body reads it: itself, or an input for one of the program around it."""
        if node.graph is self.graph:
            return node
        outside = node
        if node.graph is not self.outer:
            if self.parent is None:
                raise self.tracer.value_of_body(node)
            outside = self.parent.lift(node)
        if not isinstance(outside.type, TensorType):
            raise self.tracer.error(
                f"{self.what} reads {outside.name}, which has no type",
                'give the input types: fx.symbolic_trace(model, x="f32[B,3,224,224]")',
                outside,
            )
        found = self.capture(outside)
        self.tracer.outside[found] = self.tracer.outside.get(outside, outside)
        return found

    def finish(self, results: Sequence[Node], captured: Iterable[Node]) -> SubGraph:
        """The sub-graph, whose names no other value of the program gets."""
        names = {node.name for node in self.graph.nodes}
        made = super().finish(results, captured)
        self.outer._store.namer.taken |= names | {node.name for node in made.inputs}
        if self.graph.guards:
            known = [guard for guard in self.graph.guards if guard not in self.outer.guards]
            self.outer.guards = (*self.outer.guards, *known)
        return made
