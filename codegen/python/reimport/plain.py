"""Files of the dialect "numpy" as programs that can be traced.

In: the classes and functions of such a file, after it was run. Out: a module whose weights are the
arrays of its objects, and in whose trace functions of the file that fxlite has written are ops
again; and a trace in which groups of calls are the ops again that were written so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import FxliteError
from fxlite.base.state import active_tracer, is_traced
from fxlite.codegen.python.numpy_text import NumpyText
from fxlite.codegen.python.source import python_source
from fxlite.graph.graph import Graph, Node, map_nodes, nodes_in
from fxlite.graph.graph_module import Container, GraphModule
from fxlite.nn.module import Module, Parameter
from fxlite.ops import creation
from fxlite.ops.op import REGISTRY
from fxlite.ops.own.foreign import ForeignOp
from fxlite.show.comparison.compare import operands, types_equal
from fxlite.show.comparison.pairing import call_key
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.types.tensor_type import TensorType


# -- programs --------------------------------------------------------------------------------------
class PlainProgram(Module):
    """An object whose class is none of fxlite's, and the arrays that it and its parts hold."""

    def __init__(self, made: Any, trained: Callable[[str], bool]) -> None:
        super().__init__()
        self._held = list(_arrays(made, "", type(made).__module__))
        for path, owner, name in self._held:
            value = _get(owner, name)
            parent, last = self._parent(path)
            if trained(path):
                parent._enter(parent._parameters, last, Parameter(value))
            else:
                parent.register_buffer(last, value)
        self._made = made
        self.signature = inspect.signature(made)

    def _parent(self, path: str) -> tuple[Module, str]:
        *parts, last = path.split(".")
        module: Module = self
        for part in parts:
            module = module._modules.setdefault(part, Container())
        return module, last

    @property
    def forward(self) -> Callable[..., Any]:
        """What the object computes, with its parameters."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._call(args, kwargs)

        forward.__signature__ = self.signature  # type: ignore[attr-defined]
        return forward

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = [_get(owner, name) for _, owner, name in self._held]
        try:
            for path, owner, name in self._held:
                parent, last = self._parent(path)
                _put(owner, name, parent.__getattr__(last))
            return self._made(*args, **kwargs)
        finally:
            for (_, owner, name), value in zip(self._held, before):
                _put(owner, name, value)


def _arrays(value: Any, path: str, module: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, owner, name or index) of the arrays that objects of a file hold."""
    is_list = isinstance(value, list)
    parts = enumerate(value) if is_list else vars(value).items()
    for name, part in parts:
        inner = f"{path}.{name}" if path else str(name)
        if isinstance(part, np.ndarray):
            yield inner, value, name
        elif isinstance(part, list) or type(part).__module__ == module:
            yield from _arrays(part, inner, module)


def _get(owner: Any, name: Any) -> Any:
    return owner[name] if isinstance(owner, list) else getattr(owner, name)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, list):
        owner[name] = value
    else:
        setattr(owner, name, value)


# -- functions -------------------------------------------------------------------------------------
def with_ops(names: dict[str, Any]) -> dict[str, Any]:
    """The names of a file with ops in the place of functions that fxlite has written and nobody
    has edited, and of NumPy's that make arrays."""
    known = NumpyText.library.text
    for name, value in list(names.items()):
        if value is np:
            names[name] = _Numpy()
        elif isinstance(value, FunctionType) and value.__globals__ is names:
            own = value.__name__
            if own in known and inspect.getsource(value).strip() == known[own].strip():
                names[name] = _traced(own, value)
    return names


class _Numpy:
    """NumPy, whose arrays made of nothing are recorded while a program is traced."""

    def __getattr__(self, name: str) -> Any:
        is_recorded = name in vars(creation) and active_tracer.get() is not None
        return getattr(creation if is_recorded else np, name)

    @staticmethod
    def eye(*args: Any, **kwargs: Any) -> Any:
        return np.eye(*args, **kwargs).view(_Eye)


class _Eye(np.ndarray[Any, Any]):
    """The unit matrix, whose rows at traced positions are ``one_hot``."""

    def __getitem__(self, index: Any) -> Any:
        if is_traced(index):
            return ops.one_hot(index, len(self), dtype=self.dtype)
        return super().__getitem__(index)


def _traced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that records the op of its name where it is given traced values."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [v for v in (*args, *kwargs.values()) if is_traced(v)]
        if not given:
            return function(*args, **kwargs)
        if callable(args[0]) and not is_traced(args[0]):  # recurrence(lstm_step, ...)
            mode = args[0].__name__.removesuffix("_step")
            args, kwargs = args[1:], {**kwargs, "mode": mode}
        if name == "dropout":
            kwargs["training"] = True
        rank = getattr(given[0].node.type, "rank", 0) - 2
        op = REGISTRY.get(name) or REGISTRY.get(f"{name}{rank}d")
        return function(*args, **kwargs) if op is None else op(*args, **kwargs)

    call.__name__ = name
    return call


# -- groups of calls -------------------------------------------------------------------------------
def recomposed(made: GraphModule, like: GraphModule, paths: Mapping[str, str]) -> GraphModule:
    """A trace of such a file in which groups of calls that are how an op of ``like`` is written,
    ``x @ w.T + b``, are that op. ``paths``: of weights that ``like`` calls otherwise."""
    rules: dict[Any, tuple[Node, Graph]] = {}
    for node in like.graph.find_nodes(op="call_function"):
        weights = tuple(n.target for n in operands(node) if n.op == "get_attr")
        key = (call_key(node), weights, *map(str, _types(node)))
        if key not in rules and (pattern := _pattern(node)) is not None:
            rules[key] = node, pattern
    graph, gone = made.graph, set[Node]()
    for one, pattern in sorted(rules.values(), key=lambda rule: -len(rule[1])):
        last = pattern.output_node().args[0]
        for node in list(graph.find_nodes(op="call_function", target=last.target)):
            if node in gone:
                continue
            bound: dict[Node, Node] = {}
            found = _match(last, node, bound, made, pattern)
            given = dict(zip(_inputs(one), (bound.get(p) for p in pattern.placeholders)))
            if not found or not all(_fits(n, given[n], like, made, paths) for n in given):
                continue
            args = map_nodes(one.args, given.__getitem__)
            with graph.inserting_before(node), graph.with_origin(node):
                new = graph.create_node("call_function", one.target, args, one.kwargs)
            node.replace_all_uses_with(new)
            gone |= _erase(node, {n for p, n in bound.items() if p.op == "call_function"})
    return made


def _erase(node: Node, parts: set[Node]) -> set[Node]:
    """Erase a node that nobody reads, and what only it has read, among some; returns them."""
    work, gone = [node], set[Node]()
    while work:
        last = work.pop()
        if last in parts and not last.users:
            work += last.all_input_nodes
            last.graph.erase_node(last)
            gone.add(last)
            parts.discard(last)
    return gone


def _inputs(node: Node) -> list[Node]:
    return list(dict.fromkeys(nodes_in((node.args, node.kwargs))))


def _types(node: Node) -> list[Any]:
    return [n.type for n in (*_inputs(node), node)]


def _pattern(node: Node) -> Graph | None:
    """What the text of one call traces to; None where that is the call, or where it has no text."""
    types = _types(node)
    is_typed = all(isinstance(type, TensorType) for type in types)
    if not is_typed or isinstance(node.target, ForeignOp) or node.is_impure():
        return None
    graph = Graph()
    given = {n: graph.placeholder(f"x{i}", n.type) for i, n in enumerate(_inputs(node))}
    args = map_nodes(node.args, given.__getitem__)
    graph.output(graph.create_node("call_function", node.target, args, node.kwargs))
    try:
        source = python_source(GraphModule({}, graph, "Call"), dialect="numpy")
        names: dict[str, Any] = {"__name__": "call", "__file__": "call.py"}
        exec(source, names)
        program = names["Call"]()
        for name, value in names.items():  # the text is what fxlite writes
            if isinstance(value, FunctionType) and value.__name__ in NumpyText.library.text:
                names[name] = _traced(value.__name__, value)
            elif value is np:
                names[name] = _Numpy()
        inputs = {str(n.target): n.type for n in graph.placeholders}
        found = symbolic_trace(program.__call__, inputs=inputs).graph
    except (FxliteError, AttributeError, LookupError, NameError, TypeError, ValueError):
        return None
    calls = [n for n in found.nodes if n.op == "call_function"]
    is_whole = isinstance(found.output_node().args[0], Node) and bool(calls)
    is_same = len(calls) == 1 and call_key(calls[0]) == call_key(node)
    return None if is_same or not is_whole or calls[-1] is not found.output_node().args[0] else found


def _match(one: Node, node: Node, bound: dict[Node, Node], made: GraphModule, pattern: Graph) -> bool:
    """Whether a node computes what one of the pattern does; ``bound``: its inputs, and the rest."""
    if one in bound:
        return bound[one] is node
    bound[one] = node
    if one.op == "placeholder":
        return types_equal(one.type, node.type)
    if one.op == "get_attr":
        owner = pattern.owning_module
        return node.op == "get_attr" and _equal(owner, one, made, node)
    read, others = operands(one), operands(node)
    if call_key(one) != call_key(node) or len(read) != len(others):
        return False
    return all(_match(p, q, bound, made, pattern) for p, q in zip(read, others))


def _fits(one: Node, node: Node | None, like: GraphModule, made: GraphModule, paths: Mapping[str, str]) -> bool:
    """Whether a weight stands where ``like`` reads that weight."""
    if node is None or one.op != "get_attr":
        return node is not None
    if node.op != "get_attr":
        return False
    return paths.get(node.target, node.target) == one.target or _equal(like, one, made, node)


def _equal(owner: Any, one: Node, made: GraphModule, node: Node) -> bool:
    values = [np.asarray(m.get_attribute(n.target)) for m, n in ((owner, one), (made, node))]
    return values[0].dtype == values[1].dtype and values[0].tobytes() == values[1].tobytes()
