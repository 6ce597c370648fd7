"""The walk over an ONNX graph: for each node in order, the table's function is called with the values of its inputs.

In: a graph, and values of its inputs and weights. Out: the values of its outputs. A value is a proxy, a constant array
(small ones are folded while importing), an array of named sizes, a list (a sequence) or None (an empty optional).
Functions of the model, and ops that are not in the table but are defined in terms of other ops, are expanded.
"""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError, ModelImportError
from fxlite.base.location import Location, Scope
from fxlite.base.on_demand import is_expression
from fxlite.base.state import active_tracer, is_traced
from fxlite.graph.graph import Node
from fxlite.importing import narrow
from fxlite.importing.importer import Importer, scope_path
from fxlite.importing.onnx import proto
from fxlite.importing.onnx.registry import TABLE, Call, Row, is_sizes, settled
from fxlite.tracing.selections.masked import Masked
from fxlite.types import shapes
from fxlite.types.shapes import NamedDim

#: The most elements of constants with which a node is computed while importing. Weights are larger, and
#: computations on them stay in the graph.
_MOST_FOLDED = 4096
_DEEPEST = 60  # levels of functions inside functions

Env = MutableMapping[str, Any]


class Walk:
    """The walk over one model. ``functions`` are those of the model, by domain and name; ``producer`` is the program
    that wrote it."""

    def __init__(
        self, importer: Importer, tensors: proto.Tensors, functions: Mapping[tuple[str, str], Any], producer: str = ""
    ) -> None:
        self.importer, self.tensors, self.functions, self.producer = importer, tensors, functions, producer
        self.opsets: dict[str, int] = {}
        self.position = 0
        self._prefix = ""
        self._depth = 0
        self._storage: dict[Node, np.dtype[Any]] = {}
        self._short: dict[int, Any] = {}  # arrays of sizes that are int32 in ONNX, by id
        self._schemas: dict[tuple[str, str, int], Any] = {}
        self._references: list[Mapping[str, Any]] = []
        self.env: Env = ChainMap()

    # -- graphs -------------------------------------------------------------------------------
    def run(self, nodes: Iterable[Any], outputs: Sequence[str], env: Env) -> list[Any]:
        """Walk over nodes; returns the values of the outputs."""
        nodes = _ordered(list(nodes), env)
        read = {*outputs, *(name for node in nodes for name in _names_read(node))}
        before, self.env = self.env, env
        try:
            for node in nodes:
                self._node(node, env, read)
            missing = [name for name in outputs if name not in env]
            if missing:
                raise ModelImportError(f"ONNX: nothing computes the output {missing[0]!r} of the graph")
            return [env[name] for name in outputs]
        finally:
            self.env = before

    def body(self, graph: Any, values: Sequence[Any], env: Env) -> list[Any]:
        """Walk over the graph of an attribute, in which the surrounding values are visible."""
        inner: Env = ChainMap({}, *(env.maps if isinstance(env, ChainMap) else [env]))
        for tensor in graph.initializer:
            inner[tensor.name] = self.tensors.read(tensor)
        inner.update(zip((i.name for i in graph.input), values))
        return self.run(graph.node, [o.name for o in graph.output], inner)

    def _node(self, node: Any, env: Env, read: set[str]) -> None:
        self.position += 1
        domain = proto.domain_of(node)
        what = node.op_type if not domain else f"{domain}.{node.op_type}"
        opset = self.opsets.get(domain, self.opsets.get("", 0))
        what = f"{what}{f' ({node.name})' if node.name else ''}, opset {opset}"
        scope, loc = self._origin(node)
        missing = [name for name in node.input if name and name not in env]
        with self.importer.step(what, scope, loc):
            if missing:
                raise ModelImportError(
                    f"ONNX: it reads {missing[0]!r}, which nothing before it computes; the nodes of a graph are in "
                    "order and read each other in no circle"
                )
            values = [env[name] if name else None for name in node.input]
            results = self._results(node, domain, opset, values, env, read)
        names = list(node.output)
        if any(name in read for name in names[len(results) :]):
            with self.importer.step(what, scope, loc):
                raise ModelImportError(f"ONNX: {len(results)} of its {len(names)} results are computed")
        for name, value in zip(names, results):
            if name:
                env[name] = value

    def _results(
        self, node: Any, domain: str, opset: int, values: list[Any], env: Env, read: set[str]
    ) -> Sequence[Any]:
        own = self.functions.get((domain, node.op_type))
        attributes = self._attributes(node)
        if own is not None:
            return self._function(own, node, values, attributes)
        row = TABLE.get((domain, node.op_type))
        schema = self._schema(domain, node.op_type, opset)
        if row is None:
            expanded = _function_of(schema, node, self._types(values), opset)
            if expanded is not None:
                return self._function(expanded, node, values, {**_defaults(schema), **attributes})
            if schema is not None:
                raise ModelImportError("ONNX: fxlite has no op for it")
            if domain:
                raise ModelImportError(
                    f"ONNX: neither fxlite nor the model defines this op of the domain {domain}; if a tool fused or "
                    "rewrote ops for its own runtime, import the model from before that"
                )
            raise ModelImportError(f"ONNX: opset {opset} of ONNX has no such op")
        wanted = tuple(name in read for name in node.output)
        call = Call(self, node.op_type, node.name, opset, attributes, _defaults(schema), len(node.output), wanted, env)
        found = self._called(row, call, values)
        if schema and any(map(self.is_short, values)) and schema.inputs[0].type_str == schema.outputs[0].type_str:
            found = [self.stored_as(v, np.dtype(np.int32)) if isinstance(v, np.ndarray) else v for v in found]
        if found and found[0] is NotImplemented:
            expanded = _function_of(schema, node, self._types(values), opset)
            if expanded is None:
                raise ModelImportError("ONNX: fxlite has no op for it with these attributes and inputs")
            return self._function(expanded, node, values, {**call.defaults, **attributes})
        return found

    def _called(self, row: Row, call: Call, values: list[Any]) -> Sequence[Any]:
        arrays = [v for v in values if v is not None]
        plain = bool(arrays) and all(isinstance(v, np.ndarray) for v in arrays)
        if plain and row.folds and sum(v.size for v in arrays) <= _MOST_FOLDED:
            with_sizes = any(map(is_sizes, arrays))
            token = active_tracer.set(active_tracer.get() if with_sizes else None)
            try:
                with np.errstate(all="ignore"):
                    found = _as_values(row.function(call, *values))
                if sum(getattr(v, "size", 0) for v in found if isinstance(v, np.ndarray)) <= _MOST_FOLDED:
                    return found
            except (FxliteError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError):
                pass  # recording it as part of the graph raises the right error
            finally:
                active_tracer.reset(token)
        given = [self._operand(v, i in row.sizes) for i, v in enumerate(values)]
        if plain and not any(map(is_traced, given)):
            given = [v if v is None or i in row.sizes else self.as_proxy(v) for i, v in enumerate(given)]
        found = _as_values(row.function(call, *given))
        if row.moves and values and values[0] is not None and not isinstance(values[0], list):
            kept = self.dtype_of(values[0])
            if kept != narrow.widened(kept):
                for value in found:
                    self.stored_as(value, kept)
        return found

    def _operand(self, value: Any, may_be_sizes: bool) -> Any:
        """An input for an op that is recorded in the graph."""
        if isinstance(value, np.ndarray) and not may_be_sizes and (is_sizes(value) or _is_narrow(value)):
            return self.as_proxy(value)
        return value

    # -- functions ----------------------------------------------------------------------------
    def _function(self, function: Any, node: Any, values: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
        """Walk over a function of the model, or the definition of an op."""
        if self._depth > _DEEPEST:
            raise ModelImportError("ONNX: functions call each other too deeply, or in a circle")
        defaults = {a.name: proto.attribute(a, self.tensors) for a in function.attribute_proto}
        saved = self.opsets, self._prefix
        self.opsets = {**self.opsets, **proto.opsets_of(function)}
        if (node.domain, node.op_type) in self.functions and node.name:
            self._prefix = f"{self._prefix}{node.name}/"
        self._references.append({**defaults, **attributes})
        self._depth += 1
        try:
            env: Env = ChainMap(dict(zip(function.input, [*values, *[None] * len(function.input)])))
            outputs = dict(zip(function.output, node.output))
            wanted = [name for name, own in outputs.items() if own]
            found = dict(zip(wanted, self.run(function.node, wanted, env)))
            return [found.get(name) for name in function.output]
        finally:
            self._references.pop()
            self._depth -= 1
            self.opsets, self._prefix = saved

    def _attributes(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for message in node.attribute:
            if not message.ref_attr_name:
                found[message.name] = proto.attribute(message, self.tensors)
            elif self._references and message.ref_attr_name in self._references[-1]:
                found[message.name] = self._references[-1][message.ref_attr_name]
        return found

    def _schema(self, domain: str, op: str, opset: int) -> Any:
        key = domain, op, opset
        if key not in self._schemas:
            defs = proto.onnx_library().defs
            try:
                self._schemas[key] = defs.get_schema(op, opset, domain)
            except Exception:  # onnx raises SchemaError for an op that it does not know
                self._schemas[key] = None
        return self._schemas[key]

    def _types(self, values: Sequence[Any]) -> list[Any]:
        """The types of values, in the form that ONNX's definitions of ops need."""
        make = proto.onnx_library().helper.make_tensor_type_proto
        found = []
        for value in values:
            if value is None or isinstance(value, list):
                found.append(proto.onnx_library().TypeProto())
                continue
            sizes = [str(d) if isinstance(d, NamedDim) else int(d) for d in value.shape]
            found.append(make(proto.NUMBER_OF.get(self.dtype_of(value), 1), sizes))
        return found

    # -- places -------------------------------------------------------------------------------
    def _origin(self, node: Any) -> tuple[Scope | None, Location]:
        """The scope of a node, from its name or the exporter's metadata, and its place: that in the user's program if
        the exporter recorded it, else its number in the model."""
        notes = proto.texts(node.metadata_props)
        text = f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})"
        path, class_ = scope_path((self._prefix + node.name).rpartition("/")[0]), ""
        scopes = _listed(notes.get("pkg.torch.onnx.name_scopes", ""))
        classes = _listed(notes.get("pkg.torch.onnx.class_hierarchy", ""))
        if len(scopes) > 1:
            path = scope_path(scopes[-2])
            class_ = classes[-2].rpartition(".")[2] if len(classes) == len(scopes) else ""
        traces = re.findall(r'File "([^"\n]+)", line (\d+), in (\S+)\n\s*([^\n]*)', notes.get(_TRACE, ""))
        if traces:
            file, line, function, expression = traces[-1]
            loc = self.importer.place(int(line), function, expression.strip(), file)
        else:
            loc = self.importer.place(self.position, node.op_type, text)
        return self.importer.scope(path, class_), loc

    def sources_of(self, value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The inputs of the model from which a value is computed, by their original names, and the named sizes."""
        renamed, found, sizes = self.importer.names.renamed, set[str](), set[str]()
        seen: set[Node] = set()
        work = [value.node]
        while work:
            node = work.pop()
            if node in seen:
                continue
            seen.add(node)
            outside = self.importer.tracer.outside.get(node)
            if outside is not None:
                work.append(outside)
            elif node.op == "placeholder":
                if not node.graph.is_body:
                    found.add(renamed.get(node.target, node.target))
            else:
                sizes.update(*(shapes.names(v) for v in node.kwargs.values() if is_expression(v)))
                work += node.all_input_nodes
        return tuple(sorted(found)), tuple(sorted(sizes))

    # -- values -------------------------------------------------------------------------------
    def as_proxy(self, value: Any) -> Any:
        """A value as a traced value; if fxlite lacks its dtype, it is widened."""
        if self.is_short(value):
            return self.importer.as_proxy(value).astype(np.int32)
        if isinstance(value, np.ndarray) and _is_narrow(value):
            return self.stored_as(self.importer.as_proxy(value.astype(narrow.widened(value.dtype))), value.dtype)
        return self.importer.as_proxy(value)

    def dtype_of(self, value: Any) -> np.dtype[Any]:
        """The dtype of a value in ONNX."""
        if is_traced(value):
            return self._storage.get(value.node, value.dtype)
        if isinstance(value, Masked):
            return value.dtype
        if is_sizes(value):
            return np.dtype(np.int32 if self.is_short(value) else np.int64)
        return np.asarray(value).dtype

    def is_short(self, value: Any) -> bool:
        """Whether a value is an array of named sizes that is int32 in ONNX, as from converters of TensorFlow models."""
        return id(value) in self._short

    def stored_as(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """A value with the wider dtype, registered as one of ``dtype``."""
        if is_traced(value):
            self._storage[value.node] = dtype
            return value
        if is_sizes(value):
            self._short[id(value)] = value
            return value
        return np.asarray(value).astype(dtype)


_TRACE = "pkg.torch.onnx.stack_trace"


def _is_narrow(value: np.ndarray[Any, Any]) -> bool:
    return bool(narrow.widened(value.dtype) != value.dtype)


def _listed(text: str) -> list[str]:
    """The list of texts that a Python literal stands for; empty for any other text."""
    try:
        found = ast.literal_eval(text) if text.startswith("[") and len(text) < 10_000 else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return found if all(isinstance(v, str) for v in found) else []


def _as_values(result: Any) -> list[Any]:
    """The results of an op as values: NumPy numbers become arrays, and sizes become arrays of sizes."""
    found = []
    for value in result if isinstance(result, tuple) else (result,):
        if isinstance(value, NamedDim):
            held = np.empty((), dtype=object)
            held[()] = value
            found.append(held)
        elif is_sizes(value):
            found.append(settled(value))
        elif isinstance(value, (np.generic, int, float, bool)):
            found.append(np.asarray(value))
        else:
            found.append(value)
    return found


def _ordered(nodes: list[Any], env: Env) -> list[Any]:
    """Nodes in an order in which each comes after those that it reads. ONNX demands it of a file, but tools that
    convert models append nodes, and ONNX Runtime takes them. A circle stays as it is, and is refused at its first node.
    """
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = [{makers[name] for name in _names_read(node) if name in makers and name not in env} for node in nodes]
    if all(at > max(found, default=-1) for at, found in enumerate(needs)):
        return nodes
    try:
        return [nodes[at] for at in TopologicalSorter(dict(enumerate(needs))).static_order()]
    except CycleError:
        return nodes


def _names_read(node: Any) -> list[str]:
    """The names that a node reads, including those inside its graphs."""
    found = list(node.input)
    for message in node.attribute:
        for graph in [message.g] if message.type == 5 else message.graphs:
            found += [o.name for o in graph.output]
            for inner in graph.node:
                found += _names_read(inner)
    return found


def _defaults(schema: Any) -> dict[str, Any]:
    if schema is None:
        return {}
    tensors = proto.Tensors(None)
    return {
        name: proto.attribute(a.default_value, tensors)
        for name, a in schema.attributes.items()
        if a.default_value.name or a.default_value.type
    }


def _function_of(schema: Any, node: Any, types: Sequence[Any], opset: int) -> Any:
    """ONNX's definition of an op in terms of other ops; None if there is none."""
    if schema is None:
        return None
    onnx = proto.onnx_library()
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    text = schema.get_context_dependent_function(node.SerializeToString(), [t.SerializeToString() for t in types])
    made = onnx.FunctionProto()
    made.ParseFromString(text)
    return made if made.node else None
