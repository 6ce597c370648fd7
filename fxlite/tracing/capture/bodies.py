"""Bodies of loops and branches of conditions while they are traced, and their nested arguments and results,
flattened to arrays and numbers.

In: an active tracer. Out: sub-graphs. A body is recorded into a graph of its own. A value of the surrounding
program that the body reads is *captured*: it becomes an input of the body, and an operand of the node that has
the body. Bodies may be nested: a value of the program around both that the inner one captures is also captured by
the outer one. Each leaf of the arguments and results of a body has a :class:`Kind`: a type, or Python's bool, int,
float or complex, which are weak as in NumPy (NEP 50).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError, FxliteError
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Node
from fxlite.graph.pytree import LEAF, Structure
from fxlite.graph.subgraph import BodyBuilder, SubGraph
from fxlite.ops.op import lookup
from fxlite.tracing.proxy import DTYPES, Proxy, PythonNumber, kind_of_number
from fxlite.tracing.writes.shared_memory import Memory, View
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


class Body(BodyBuilder):
    """``with Body(tracer, what) as body:`` records the calls inside into ``body.graph``. ``what`` names the
    construct to which the body belongs, for messages."""

    def __init__(self, tracer: Tracer, what: str) -> None:
        super().__init__(tracer.graph)
        self.tracer, self.what = tracer, what
        self.parent: Body | None = tracer.bodies[-1] if tracer.bodies else None
        self.graph._store.namer.know(self.outer._store.namer)

    def __enter__(self) -> Body:
        self.tracer.graph = self.graph
        self.tracer.bodies = [*self.tracer.bodies, self]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracer.graph = self.outer
        self.tracer.bodies = self.tracer.bodies[:-1]

    def own(
        self, name: str, type: TensorType, number: bool = False, refusal: str = "", immutable: bool | None = True
    ) -> Proxy:
        """Add an input. Inside, it is a value that the body owns and may write into, unless there is a
        ``refusal``. ``number``: it is a Python number; ``immutable``: if it has rank 0, it is a NumPy number."""
        node = self.input(name, type)
        if number:
            return PythonNumber(node, self.tracer)
        proxy = self.tracer.proxy(node)
        memory = Memory(refusal, is_number=not type.shape and immutable)
        proxy._view = View(node, memory, self.tracer.writes.count)
        return proxy

    def note(self, place: Any) -> None:
        """Called before a place is set."""

    def note_doubt(self, memory: Memory) -> None:
        """Called before the contents of a memory are marked as unknown."""
        if self.parent is not None:
            self.parent.note_doubt(memory)

    def own_object(self, value: Any) -> None:
        """Called when an object was made inside the body."""

    def owns(self, value: Any) -> bool:
        """Whether an object is known to have been made inside the body."""
        return False

    def may_write(self, root: View) -> bool:
        """Whether the body may write into a memory, which must be its own."""
        return root.home is self.graph

    def lift(self, node: Node) -> Node:
        """A value as the body reads it: itself, or an input for a value of the surrounding program."""
        if node.graph is self.graph:
            return node
        outside = node
        if node.graph is not self.outer:
            if self.parent is None:
                raise self.tracer.value_of_body(node)
            outside = self.parent.lift(node)
        if not isinstance(outside.type, TensorType):
            raise self.tracer.untyped(f"{self.what} reads {outside.name}, which has no type", outside)
        found = self.capture(outside)
        self.tracer.outside[found] = self.tracer.outside.get(outside, outside)
        return found

    def finish(self, results: Sequence[Node], captured: Iterable[Node]) -> SubGraph:
        """The finished sub-graph, whose names are reserved, so that no other value of the program gets them."""
        names = {node.name for node in self.graph.nodes}
        made = super().finish(results, captured)
        self.outer._store.namer.taken |= names | {node.name for node in made.inputs}
        if self.graph.guards:
            known = [guard for guard in self.graph.guards if guard not in self.outer.guards]
            self.outer.guards = (*self.outer.guards, *known)
        return made


_ORDER = (bool, int, float, complex)


@dataclass(frozen=True)
class Kind:
    """The kind of a leaf: a type, or a Python number."""

    type: TensorType
    number: Any = None

    def __str__(self) -> str:
        return f"{self.number.__name__} of Python" if self.number else str(self.type)


def number_kind(number: Any) -> Kind:
    """The kind of a Python bool, int, float or complex."""
    return Kind(TensorType((), DTYPES[number]), number)


def leaves_of(value: Any, path: str) -> tuple[list[Any], list[str], Structure]:
    """The arrays and numbers in a nested value, their paths, and the form of the whole. Raises TypeError for
    other values."""
    found: list[Any] = []
    paths: list[str] = []

    def leaf(value: Any, path: str, keys: tuple[Any, ...]) -> Structure:
        if value is None or isinstance(value, str):
            return Structure("constant", value=value)
        kinds = (np.ndarray, np.generic, bool, int, float, complex, NamedDim)
        if not is_traced(value) and not isinstance(value, kinds):
            raise TypeError(f"{path} is a {type(value).__name__}, not an array or a number")
        found.append(value)
        paths.append(path)
        return LEAF

    return found, paths, pytree.structure_of(value, path, leaf)


def kind_of(tracer: Tracer, value: Any, path: str) -> Kind:
    """The kind of a leaf. Raises TraceError for one without a type."""
    number = int if isinstance(value, NamedDim) else kind_of_number(value)
    if number is not None:
        return number_kind(number)
    if is_traced(value):
        return Kind(value.type)
    return Kind(type_of(value))


def joined(one: Kind, other: Kind) -> Kind | None:
    """The kind that values of both kinds can have; None if there is none. A Python number takes another type if
    that can represent it."""
    if one == other:
        return one
    if one.number and other.number:
        return number_kind(max(one.number, other.number, key=_ORDER.index))
    if one.number is None and other.number is None:
        return None
    strong, weak = (other, one) if one.number else (one, other)
    assert weak.number is not None
    try:
        fits = dtypes.result_type(strong.type.dtype, weak.number(1)) is strong.type.dtype
    except DTypeError:
        fits = False
    return strong if fits and not strong.type.rank else None


def as_node(tracer: Tracer, value: Any, kind: Kind) -> Node:
    """A leaf as a node of its kind, recorded at the tracer's current place."""
    if isinstance(value, NamedDim):
        return tracer.local(tracer.size_as_tensor(value, kind.type.dtype))
    if type(value) in DTYPES:
        return lookup("full")((), value, kind.type.dtype).node  # type: ignore[no-any-return]
    if isinstance(value, PythonNumber) and value.type.dtype is not kind.type.dtype:
        return lookup("cast")(value, kind.type.dtype).node  # type: ignore[no-any-return]
    return tracer.create_arg(value)  # type: ignore[no-any-return]


def as_value(tracer: Tracer, node: Node, kind: Kind) -> Any:
    """A result as the program sees it."""
    if kind.number:
        return PythonNumber(node, tracer)
    proxy = tracer.proxy(node)
    if not kind.type.shape:
        from fxlite.tracing.writes.shared_memory import Memory, View

        proxy._view = View(node, Memory(is_number=True), tracer.writes.count)
    return proxy


def taken_apart(tracer: Tracer, value: Any, what: str) -> tuple[list[Any], list[str], Structure]:
    """:func:`leaves_of`, which raises TraceError instead of TypeError."""
    try:
        return leaves_of(value, what)
    except TypeError as error:
        raise tracer.error(
            str(error),
            "loops and conditions take and give arrays, numbers, and tuples, lists, dicts and dataclasses of these",
        ) from None
    except FxliteError as error:
        raise tracer._located(error, None) from None


def put_together(structure: Structure, values: Iterable[Any]) -> Any:
    """A nested value with these leaves."""
    given = iter(values)
    return pytree.build(structure, lambda _: next(given))
