"""``fx.to_onnx``: write a graph as an ONNX model.

In: a GraphModule with types. Out: a ModelProto that ONNX's checker accepts with full shape inference, and the
file, with large weights beside it. Names, scopes and places of the program are kept as names of nodes and as
metadata.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.console import write_whole
from fxlite.base.errors import ArgumentError, FxliteError, ModelExportError, expect
from fxlite.codegen.onnx import arrays, control, elementwise, layers, products, quantized, scalars
from fxlite.codegen.onnx.builder import TABLE, Builder, Value, symbols
from fxlite.codegen.onnx.value_types import with_types
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import types_of
from fxlite.graph.pytree import result_leaves
from fxlite.passes import decompose, remove_dropout
from fxlite.passes.rules.complex_parts import without_complex
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType

#: The modules whose import fills the table.
FAMILIES = (arrays, control, elementwise, layers, products, quantized)
#: The oldest opset that is written: its reductions and splits take what this module gives them.
OLDEST = 18
#: Bytes of weights from which they go into a file of their own: messages have 2 GB at most.
_MOST_INSIDE = 1 << 30
#: Where a weight begins in that file.
_ALIGNMENT = 4096
#: Bytes from which a weight is external there.
_LEAST_OUTSIDE = 1024


@checked
def to_onnx(gm: GraphModule, path: Any = None, opset: int = 21, external_data: bool | None = None) -> Any:
    """The graph as an ONNX model (``onnx.ModelProto``), which is also written to ``path`` if given.

    Inputs, weights and results keep their names, named sizes are ``dim_param``s, and each value has its shape. A
    state that the program changes is an input and, after the results, an output. Ops become those of ONNX that
    ``opset`` (18 or later) has, or else the ops they are made of; quantized values become QuantizeLinear and
    DequantizeLinear with the same integers; conditions and loops become If and Loop. Nodes are named by scope and
    value, and their ``metadata_props`` give the modules and the line of the program, as torch's exporter does.
    With ``external_data=True`` weights go into ``PATH.data`` beside the model; by default they do if they take more
    than a gigabyte.

    Raises ModelExportError, which names the node and its place, for calls that ONNX cannot compute, and
    ArgumentError for an opset that does not exist."""
    expect(gm, GraphModule, "what is exported", "trace it: fx.symbolic_trace(...)")
    onnx = Builder(opset, {}).onnx
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise ArgumentError(f"opset={opset}: {OLDEST} to {newest} are written (onnx {onnx.__version__})")
    writer = _Writer(_prepared(gm, opset), opset)
    graph = writer.graph()
    outside = external_data
    if outside is None:
        outside = sum(a.nbytes for a in writer.b.weights.values()) > _MOST_INSIDE
    if outside and path is None:
        raise ArgumentError("external_data=True needs a path, beside which the weights go")
    data = None if not outside else Path(f"{os.fspath(path)}.data")
    graph.initializer.extend(_initializers(onnx, writer.b.weights, data))
    model = onnx.helper.make_model(
        graph,
        producer_name="fxlite",
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=max(10, onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])),
    )
    if path is not None:
        write_whole(path, model.SerializeToString())
    try:
        onnx.checker.check_model(model if data is None else os.fspath(path), full_check=True)
    except Exception as error:  # onnx's ValidationError and InferenceError
        raise ModelExportError(f"ONNX's checker refuses {gm.name}: {error}") from error
    return model


def _prepared(gm: GraphModule, opset: int) -> GraphModule:
    """A copy in which each call is one that can be written; others are decomposed."""
    made = decompose.with_options(keep=lambda node: _is_written(node, opset))(
        without_complex(remove_dropout(gm), "a model in ONNX", ModelExportError, pairs=True)
    )
    made.graph.eliminate_dead_code()
    missing: dict[str, Node] = {}
    for node in _calls(made.graph.nodes):
        if not _is_written(node, opset):
            missing.setdefault(node.target.name, node)
    if missing:
        first = next(iter(missing.values()))
        raise ModelExportError(
            f"ONNX has no op for {', '.join(missing)}; the first of them is {first.describe()}\n"
            "  instead: export the part of the program without them, fx.passes.extract_subgraph, or compile it to C"
        )
    return made


def _calls(nodes: Any) -> Iterator[Node]:
    """The calls of ops, including those in bodies."""
    for node in nodes:
        if node.op == "call_module":
            raise ModelExportError(f"ONNX: {node.describe()} calls a module that was not traced")
        if node.op == "call_function":
            yield node
            for value in node.kwargs.values():
                if hasattr(value, "calls"):
                    yield from _calls(value.calls)


def _is_written(node: Node, opset: int) -> bool:
    if node.target.name == "getitem":
        return True
    row = TABLE.get(node.target.name)
    if row is not None and row.takes(node, opset):
        return True
    return scalars.is_pointwise(node.target)


class _Writer:
    """One graph while it is written."""

    def __init__(self, gm: GraphModule, opset: int) -> None:
        self.gm = gm
        inputs = {p: str(p.meta.get("original_name", p.target)) for p in gm.graph.placeholders}
        sizes: dict[str, tuple[str, int, int, int]] = {}
        for node, name in inputs.items():
            if not isinstance(node.type, TensorType):
                raise ModelExportError(f"the input {name} has no type; trace with types of inputs")
            for axis, dim, factor, addend in symbols(node.type):
                if dim not in sizes or (factor, addend) == (1, 0) != sizes[dim][2:]:
                    sizes[dim] = (name, axis, factor, addend)
        self.b = Builder(opset, sizes)
        self.b.write = lambda nodes: write(self.b, nodes)
        self.inputs = inputs

    def graph(self) -> Any:
        """The GraphProto, without its weights."""
        b, gm = self.b, self.gm
        for node, name in self.inputs.items():
            b.values[node] = b.fresh(name)
        order = list(gm.graph.nodes)
        for node in order:
            if node.op == "get_attr":
                b.values[node] = b.weight(node.target, gm.get_attribute(node.target))
        nodes = write(b, order)
        results = self._results()
        read = _names_read(nodes)
        b.weights = {name: array for name, array in b.weights.items() if name in read}
        taken = [b.info(name, type) for name, type in results]
        named = {name for name, _ in results}
        inner = [b.info(n, t) for n, t in b.types.items() if n not in named]
        given = [b.info(b.values[n], n.type) for n in self.inputs]
        made = b.onnx.helper.make_graph(nodes, gm.name, given, taken, value_info=inner)
        made.doc_string = f"{gm.name}, written by fxlite."
        return with_types(b, made)

    def _results(self) -> list[tuple[str, TensorType]]:
        """The name and type of each result; inputs, weights and values returned twice are copied."""
        b, found = self.b, list[tuple[str, TensorType]]()
        seen = {b.values[n] for n in self.inputs} | b.weights.keys()
        for value, cuts in result_leaves(self.gm.graph):
            if isinstance(value, Node) and cuts:  # only the first elements are the result
                name, type = b.values[value], value.type
                for axis, count in cuts:
                    b.result = f"{value.name}_first"
                    end = b.reshape(b.operand(Value(b.values[count], count.type), dtypes.int64), (1,))
                    name = b.op("Slice", name, b.integers(0), end, b.integers(axis))
                    size = shapes.parse(f"{name}_size")
                    type = TensorType((*type.shape[:axis], size, *type.shape[axis + 1 :]), type.dtype)
            elif isinstance(value, Node):
                name, type = b.values[value], value.type
            else:
                array = np.asarray(value)
                name, type = b.constant(array), TensorType(array.shape, _dtype(array))
                seen.add(name)
            if name in seen:
                b.result = "result"
                name = b.op("Identity", name)
            seen.add(name)
            found.append((name, type))
        return found


def _dtype(array: Any) -> Any:
    from fxlite.types.dtypes import dtype

    return dtype(array.dtype)


def _names_read(nodes: Any) -> set[str]:
    """The names that nodes read, including those in bodies."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _names_read(attribute.g.node) | {o.name for o in attribute.g.output}
    return found


def write(b: Builder, nodes: Any) -> list[Any]:
    """Write the calls among these nodes; returns the list that holds them."""
    for node in nodes:
        if node.op != "call_function":
            continue
        start = len(b.nodes)
        b.result = node.name
        try:
            found = _call(b, node)
        except FxliteError as error:
            if isinstance(error, ModelExportError) and "\n  at " in str(error):
                raise
            raise ModelExportError(f"{error}\n  at {node.describe()}") from error
        b.values[node] = _named(b, node, found, b.nodes[start:])
        _note(b, node, b.nodes[start:])
    return b.nodes


def _call(b: Builder, node: Node) -> Any:
    op = node.target
    if any(t.dtype.is_complex for n in (node, *node.all_input_nodes) for t in types_of(n)):  # in a body
        raise ModelExportError("ONNX's ops do not compute with complex numbers")
    if op.name == "getitem":
        return b.values[node.args[0]][node.bound["index"]]

    def operand(value: Any) -> Any:
        if isinstance(value, NamedDim):
            raise ModelExportError(f"the size {value} is an operand")
        if not isinstance(value, Node):
            return value
        found = b.values[value]
        return Value(found, value.type) if isinstance(found, str) else found

    bound = op.map_tensors(operand, node.bound)
    row = TABLE.get(op.name)
    if row is not None and row.takes(node, b.opset):
        b.kind = row.kind
        return row.function(b, node.type, **bound)
    return scalars.pointwise(b, op, op.map_tensors(operand, node.arguments), node.type)


def _named(b: Builder, node: Node, found: Any, made: list[Any]) -> Any:
    """The value of a node, under the node's name if one of the new nodes of the model computes it."""
    if isinstance(found, str):
        return _renamed(b, found, node.name, node.type, made)
    readers = {u.bound["index"]: u.name for u in node.users if u.op == "call_function" and u.target.name == "getitem"}
    return [
        _renamed(b, name, readers.get(i, f"{node.name}_{i}"), type, made)
        for i, (name, type) in enumerate(zip(found, node.type))
    ]


def _renamed(b: Builder, name: str, wish: str, type: Any, made: list[Any]) -> str:
    if not any(name in proto.output for proto in made):
        return name
    new = b.fresh(wish)
    for proto in made:
        for names in (proto.input, proto.output):
            for position, text in enumerate(names):
                if text == name:
                    names[position] = new
    b.types[new] = type
    return new


def _note(b: Builder, node: Node, made: list[Any]) -> None:
    """Record scope and place of a node as torch's exporter does."""
    scope, loc = node.scope, node.loc
    path = scope.path if scope is not None else ""
    notes = {"fxlite.op": node.target.name}
    if scope is not None:
        parts = path.split(".") if path else []
        paths = [".".join(parts[: i + 1]) for i in range(len(parts))]
        classes = ["" for _ in paths[:-1]] + [scope.class_name]
        notes["pkg.torch.onnx.name_scopes"] = repr(["", *paths, node.name])
        notes["pkg.torch.onnx.class_hierarchy"] = repr([*([""] if paths else []), *classes, node.target.name])
    if loc is not None and loc.file:
        line = (loc.expression.splitlines() or [""])[0]
        place = f'File "{loc.file}", line {loc.line}, in {loc.function or "forward"}'
        notes["pkg.torch.onnx.stack_trace"] = f"{place}\n    {line}"
    for proto in made:
        proto.name = b.fresh("/".join(["", *filter(None, [path.replace(".", "/")]), f"{node.name}/{proto.op_type}"]))
        for key, text in notes.items():
            proto.metadata_props.add(key=key, value=text)


def _initializers(onnx: Any, weights: Mapping[str, np.ndarray[Any, Any]], data: Path | None) -> Iterator[Any]:
    """The weights as messages; with ``data`` large ones are written to that file, one after the other."""
    if data is None:
        for name, array in weights.items():
            yield onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return
    from fxlite.importing.onnx.proto import NUMBER_OF

    draft = data.with_name(f".{data.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            for name, array in weights.items():
                if array.nbytes < _LEAST_OUTSIDE:
                    yield onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
                    continue
                file.write(b"\0" * (-file.tell() % _ALIGNMENT))
                made = onnx.TensorProto(name=name, dims=array.shape, data_type=NUMBER_OF[array.dtype], data_location=1)
                for key, value in (("location", data.name), ("offset", file.tell()), ("length", array.nbytes)):
                    made.external_data.add(key=key, value=str(value))
                file.write(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
                yield made
        os.replace(draft, data)
    finally:
        draft.unlink(missing_ok=True)
