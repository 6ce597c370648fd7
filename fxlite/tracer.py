"""The tracer: runs a program on proxies and records its ops as a graph.

In: a module or a function over NumPy arrays, and (optionally) input types. Out: a
:class:`~fxlite.graph_module.GraphModule` that shares the program's weights.
"""

from __future__ import annotations

import inspect
import types as python_types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fxlite import dtypes
from fxlite.errors import ArgumentError, FxliteError, TraceError
from fxlite.graph import Graph, Node
from fxlite.graph_module import GraphModule
from fxlite.location import Location, Scope, here
from fxlite.nn.module import Module, Parameter
from fxlite.op import Op
from fxlite.proxy import Proxy
from fxlite.state import active_tracer
from fxlite.types import type_of


class Tracer:
    """Records a program. Subclass it to decide what is a leaf or to change how nodes are made."""

    def __init__(self, leaf: Iterable[Any] = ()) -> None:
        self.leaves = tuple(leaf)
        self.graph = Graph()
        self.root: Module = Module()
        self._paths: dict[int, str] = {}
        self._scopes: list[Scope] = []
        self._definition: Location | None = None  # where the program's inputs are declared
        self._attributes: dict[int, tuple[Node, Any]] = {}

    # -- to override ---------------------------------------------------------------------------
    def is_leaf_module(self, module: Module, path: str) -> bool:
        """True if a call of the module stays one ``call_module`` node."""
        for leaf in self.leaves:
            if (
                leaf is module
                or leaf == path
                or (isinstance(leaf, type) and isinstance(module, leaf))
            ):
                return True
        return False

    def to_bool(self, proxy: Proxy) -> bool:
        """``if x``: refused unless a subclass decides."""
        raise self.error(
            f"if, while, and, or need the value of {proxy.node.name}, which does not exist while "
            f"tracing",
            "use np.where(condition, a, b), or decide before tracing",
            proxy.node,
        )

    def iter(self, proxy: Proxy) -> Any:
        """``for v in x`` where the length is unknown: refused unless a subclass decides."""
        raise self.error(
            f"iterating over {proxy.node.name} needs its length",
            "trace with input types, or loop over indices",
            proxy.node,
        )

    def create_proxy(
        self, op: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any],
        name: str | None = None, type: Any = None,
    ) -> Proxy:  # fmt: skip
        """Make a node and its proxy."""
        scope = self._scopes[-1] if self._scopes else None
        location = self._definition if op == "placeholder" else here(2)
        self.graph.current_origin = (scope, location)
        try:
            node = self.graph.create_node(op, target, args, kwargs, name, type)
        except FxliteError as error:
            if isinstance(error, TraceError):
                raise
            raise self._located(error, location) from None
        finally:
            self.graph.current_origin = None
        return Proxy(node, self)

    def create_arg(self, value: Any) -> Any:
        """A value of the program as a node's argument: proxies become nodes, arrays constants."""
        if isinstance(value, Proxy):
            if value.tracer is not self:
                raise self.error(
                    f"{value.node.name} comes from another trace", "trace the whole program at once"
                )
            return value.node
        if isinstance(value, (np.ndarray, np.generic)):
            return self._constant(np.asarray(value))
        if value is None or isinstance(value, (bool, int, float)):
            return value
        from fxlite import shapes

        if isinstance(value, shapes.NamedDim):
            return self._size_as_tensor(value, dtypes.int64)
        if isinstance(value, (tuple, list)):
            mapped = [self.create_arg(v) for v in value]
            return type(value)(*mapped) if hasattr(value, "_fields") else type(value)(mapped)
        if isinstance(value, dict):
            return {k: self.create_arg(v) for k, v in value.items()}
        raise self.error(
            f"a {type(value).__name__} cannot be used as a tensor", "use arrays and numbers"
        )

    def path_of_module(self, module: Module) -> str | None:
        """Path of a module in the traced root; None for one made inside the program."""
        return self._paths.get(id(module))

    def call_module(
        self,
        module: Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A module is called in the program: record a leaf, or go inside with its scope."""
        path = self.path_of_module(module)
        if path is not None and path != "" and self.is_leaf_module(module, path):
            node_args = tuple(self.create_arg(a) for a in args)
            node_kwargs = {k: self.create_arg(v) for k, v in kwargs.items()}
            leaf_type = _leaf_type(module, node_args, node_kwargs)
            return self.create_proxy("call_module", path, node_args, node_kwargs, None, leaf_type)
        outer = self._scopes[-1].path if self._scopes else ""
        self._scopes.append(Scope(outer if path is None else path, type(module).__name__))
        try:
            return forward(*args, **kwargs)
        finally:
            self._scopes.pop()

    # -- recording -----------------------------------------------------------------------------
    def record(self, op: Op, bound: dict[str, Any]) -> Any:
        """Record a call of an op; called by ops and proxies."""
        bound = self._weak_sizes(op, bound)
        nodes = op.map_tensors(self.create_arg, bound)
        args, kwargs = op.split_arguments(nodes)
        proxy = self.create_proxy("call_function", op, args, kwargs)
        if isinstance(proxy.node.type, tuple):
            getitem = self._op("getitem")
            return [
                self.create_proxy("call_function", getitem, (proxy.node,), {"index": i})
                for i in range(len(proxy.node.type))
            ]
        if op.shares_memory:
            for value in op.tensors(bound):
                if isinstance(value, Proxy):
                    proxy.made_view_of(value)
        return proxy

    def _weak_sizes(self, op: Op, bound: dict[str, Any]) -> dict[str, Any]:
        """A named size among the operands is a Python int when the program runs: it takes the dtype
        of the tensors beside it, as in ``x / x.shape[0]``."""
        from fxlite.shapes import NamedDim

        operands = list(op.tensors(bound))
        if not any(isinstance(v, NamedDim) for v in operands):
            return bound
        strong = [
            v.type.dtype if isinstance(v, Proxy) else dtypes.of_value(v)
            for v in operands
            if isinstance(v, (Proxy, np.ndarray, np.generic))
        ]
        dtype = dtypes.result_type(*strong, 1) if strong else dtypes.int64

        def convert(value: Any) -> Any:
            if isinstance(value, NamedDim):
                return Proxy(self._size_as_tensor(value, dtype), self)
            return value

        return op.map_tensors(convert, bound)

    def _size_as_tensor(self, value: Any, dtype: dtypes.DType) -> Node:
        attributes = {"shape": (), "value": value.expr, "dtype": dtype}
        return self.create_proxy("call_function", self._op("full"), (), attributes).node

    @staticmethod
    def _op(name: str) -> Op:
        from fxlite.op import lookup

        return lookup(name)

    def attribute(self, module: Module, name: str, value: np.ndarray[Any, Any]) -> Proxy:
        """A parameter or buffer is read: a get_attr node, one for each array."""
        known = self._attributes.get(id(value))
        if known is None:
            path = self.path_of_module(module)
            if path is None:
                target = self._adopt(value, name, isinstance(value, Parameter))
            else:
                target = f"{path}.{name}" if path else name
            known = self._attributes[id(value)] = (self._get_attr(target, value), value)
        return Proxy(known[0], self)

    def _get_attr(self, target: str, value: Any) -> Node:
        """get_attr nodes stand together right behind the inputs' nodes, in order of first use."""
        proxy = self.create_proxy("get_attr", target, (), {}, None, type_of(value))
        return proxy.node

    def _adopt(self, value: np.ndarray[Any, Any], wish: str, is_parameter: bool) -> str:
        """Keep an array that no module of the root owns, under a new name on the root."""
        number = 0
        while f"{wish}_{number}" in self._adopted.__dict__["_buffers"] or hasattr(
            self.root, f"{wish}_{number}"
        ):
            number += 1
        name = f"{wish}_{number}"
        self._adopted.register_buffer(name, value)
        return name

    def _constant(self, value: np.ndarray[Any, Any]) -> Node:
        known = self._attributes.get(id(value))
        if known is not None:
            return known[0]
        node = self._get_attr(self._adopt(value.copy(), "constant", False), value)
        self._attributes[id(value)] = (node, value)
        return node

    # -- errors --------------------------------------------------------------------------------
    def error(
        self, problem: str, instead: str = "", origin: Node | None = None,
        kind: type[Exception] | None = None,
    ) -> TraceError:  # fmt: skip
        """A TraceError that names the user's line, the expression, the value's origin and a way
        out."""
        location = here(2)
        lines = [problem]
        if location is not None:
            lines.append(f"  at {location}: {location.expression}")
        if origin is not None and origin.loc is not None and origin.op != "placeholder":
            lines.append(f"  {origin.name} was made at {origin.loc}: {origin.loc.expression}")
        if instead:
            lines.append(f"  instead: {instead}")
        message = "\n".join(lines)
        if kind is AttributeError:
            return TraceAttributeError(message)
        return TraceError(message)

    @staticmethod
    def _located(error: FxliteError, location: Location | None) -> FxliteError:
        if location is None:
            return error
        return type(error)(f"{error}\n  at {location}: {location.expression}")

    # -- the whole ------------------------------------------------------------------------------
    def trace(
        self,
        root: Module | Callable[..., Any],
        inputs: Mapping[str, Any] | None = None,
        concrete_args: Mapping[str, Any] | None = None,
    ) -> Graph:
        """Run the program on proxies; returns the graph. ``inputs`` maps parameter names to
        types."""
        self._adopted = Module()
        if isinstance(root, Module):
            self.root, function = root, root.forward
            self._paths = {id(m): p for p, m in root.named_modules()}
        else:
            self.root, function = Module(), root
        self.graph = Graph(self.root)
        code = getattr(function, "__code__", None)
        if code is not None:
            place = (code.co_filename, code.co_firstlineno, code.co_name, "")
            self._definition = Location(resolved=place)
        arguments, keywords = self._make_inputs(
            function, dict(inputs or {}), dict(concrete_args or {})
        )
        token = active_tracer.set(self)
        try:
            if isinstance(root, Module):
                result = self.call_module(root, function, tuple(arguments), keywords)
            else:
                result = function(*arguments, **keywords)
        finally:
            active_tracer.reset(token)
        value = self.create_arg(_plain(result, self))
        self.graph.current_origin = (None, None)  # a result belongs to the whole program
        self.graph.output(value)
        self.graph.current_origin = None
        self._remove_unused_attributes()
        return self.graph

    def module(self, name: str = "GraphModule") -> GraphModule:
        """The traced graph with the weights it reads."""
        holder: dict[str, Any] = {}
        for node in self.graph.nodes:
            if node.op == "get_attr" and node.target in self._adopted._buffers:
                holder[node.target] = self._adopted._buffers[node.target]
            elif node.op in ("get_attr", "call_module"):
                holder[node.target] = self.root.get_attribute(node.target)
        made = GraphModule(holder, self.graph, name)
        made.training = self.root.training
        return made

    def _make_inputs(
        self, function: Callable[..., Any], inputs: dict[str, Any], concrete: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        signature = inspect.signature(function)
        known = set(signature.parameters)
        for name in (*inputs, *concrete):
            if name not in known:
                raise ArgumentError(
                    f"{getattr(function, '__qualname__', function)}{signature} has no parameter "
                    f"{name!r}"
                )
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            name = parameter.name
            if name in concrete:
                value = concrete[name]
            elif name in inputs and inputs[name] is not None:
                value = self.create_proxy("placeholder", name, (), {}, name, type_of(inputs[name]))
            elif name in inputs:
                value = None
            elif parameter.default is not parameter.empty:
                value = parameter.default  # not given: the program's own default, a constant
            elif inputs:
                raise ArgumentError(
                    f"{getattr(function, '__qualname__', function)}: input {name!r} has no type; "
                    f'give {name}="f32[...]"'
                )
            else:
                value = self.create_proxy("placeholder", name, (), {}, name)
            if parameter.kind is parameter.KEYWORD_ONLY:
                keywords[name] = value
            else:
                arguments.append(value)
        return arguments, keywords

    def _remove_unused_attributes(self) -> None:
        for node in self.graph.nodes:
            if node.op == "get_attr" and not node.users:
                self.graph.erase_node(node)


class TraceAttributeError(TraceError, AttributeError):
    """A traced value lacks an attribute; also an AttributeError, so that ``hasattr`` works."""


def _plain(result: Any, tracer: Tracer) -> Any:
    """The program's result with numbers as constants of rank 0."""
    if isinstance(result, (bool, int, float)):
        return np.asarray(result)
    if isinstance(result, (tuple, list)):
        mapped = [_plain(r, tracer) for r in result]
        return type(result)(*mapped) if hasattr(result, "_fields") else type(result)(mapped)
    if isinstance(result, dict):
        return {k: _plain(v, tracer) for k, v in result.items()}
    if result is None:
        raise tracer.error("the program returns None", "return the arrays it computes")
    return result


def _leaf_type(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Result type of a leaf module, if it says so by a method ``infer(*types)``."""
    infer = getattr(module, "infer", None)
    if infer is None:
        return None

    def type_or_value(value: Any) -> Any:
        return value.type if isinstance(value, Node) else value

    types = [type_or_value(a) for a in args]
    return infer(*types, **{k: type_or_value(v) for k, v in kwargs.items()})


def symbolic_trace(
    root: Module | Callable[..., Any],
    *types: Any,
    concrete_args: Mapping[str, Any] | None = None,
    leaf: Iterable[Any] = (),
    inputs: Mapping[str, Any] | None = None,
    **named: Any,
) -> GraphModule:
    """Trace a module or function: ``symbolic_trace(model, x="f32[B,3,224,224]")``.

    Inputs are types, type text or example arrays, by position or by the names of ``forward``'s
    parameters; one whose name is also an option goes into ``inputs={...}``. Without any, the graph
    has no types. ``concrete_args`` are baked in; modules that match ``leaf`` (object, class, path)
    stay one node.

    Raises TraceError for what cannot be traced, ArgumentError for wrong input names, ShapeError and
    DTypeError for a program that does not fit the types, all naming file and line."""
    from fxlite.serialize import load_if_saved

    root = load_if_saved(root)
    if isinstance(root, GraphModule) and not (types or named or inputs):
        return root.copy()
    function = root.forward if isinstance(root, Module) else root
    declared = dict(inputs or {}) | named
    names = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and p.name not in (concrete_args or {})
    ]
    if len(types) > len(names):
        raise ArgumentError(f"{len(types)} input types for {len(names)} parameters")
    for name, value in zip(names, types):
        if name in declared:
            raise ArgumentError(f"input {name!r} is given twice")
        declared[name] = value
    tracer = Tracer(leaf)
    tracer.trace(root, declared, concrete_args)
    return tracer.module(_name_of(root))


def _name_of(root: Any) -> str:
    if isinstance(root, python_types.FunctionType):
        return root.__name__ if root.__name__ != "<lambda>" else "function"
    return getattr(root, "name", None) or type(root).__name__
