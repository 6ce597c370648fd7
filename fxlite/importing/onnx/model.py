"""``fx.from_onnx``: imports an ONNX model as a GraphModule.

In: a file or ModelProto, and facts about its sizes. Out: a graph with the model's names, scopes and weights, and with
named sizes in its types; or a ModelImportError that names the node.
"""

from __future__ import annotations

import difflib
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import sympy

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, FxliteError, ModelImportError
from fxlite.base.state import is_traced
from fxlite.graph.graph_module import GraphModule
from fxlite.importing import narrow
from fxlite.importing.importer import Importer, Names, valid_name
from fxlite.importing.onnx import (
    arrays,
    control,
    elementwise,
    images,
    indexing,
    layers,
    normalization,
    products,
    proto,
    quantized,
    reductions,
)
from fxlite.importing.onnx.registry import TABLE
from fxlite.importing.onnx.walk import Walk
from fxlite.types import shapes
from fxlite.types.dtypes import dtype
from fxlite.types.tensor_type import TensorType, type_of

#: The modules whose import fills the table.
FAMILIES = (arrays, control, elementwise, images, indexing, layers, normalization, products, quantized, reductions)
#: The oldest and the newest opset of the standard ops that is read.
OLDEST, NEWEST = 1, 28


@checked
def from_onnx(model: Any, sizes: Mapping[str, Any] | None = None, name: str = "") -> GraphModule:
    """Import an ONNX model: ``fx.from_onnx("bert.onnx", sizes={"batch": "B", "seq": 128})``. Returns a GraphModule.

    ``model`` is a path, the bytes of a file, or an ``onnx.ModelProto``. ``sizes`` gives facts about it, by name: for a
    dim, a number, or another name, possibly with facts (``"T"``, ``fx.dims("T", max=512)``); for an input, its type
    (``"f32[B,3,224,224]"``), or its value, an array, if the model needs to know it (such as a shape that is an input).
    Other dims keep their names, or the nearest ones that Python allows; dims without a name are named by input and
    axis (``x_0``).

    Inputs, weights and modules keep their names as far as Python allows. If a name is changed, the entry
    ``original_name`` of a node's meta has the original, and ``meta["imported_from"]`` of the module lists all changes.
    Weights are not copied: external data stays in its file, which is mapped. Nothing in a file is executed, and only
    files in its folder are read.

    Raises ModelImportError, which names op, node and opset, for a model that is damaged or cannot be represented, and
    ArgumentError for names in ``sizes`` that the model does not have."""
    read, folder, source = proto.load(model)
    importer = Importer("ONNX", source, name or _model_name(source, read))
    tensors = proto.Tensors(folder)
    opsets = _opsets(read)
    given = dict(sizes or {})
    held = {t.name: t for t in read.graph.initializer}
    inputs = [i for i in read.graph.input if i.name not in held]
    dims = _Dims(inputs, given)
    for value in inputs:
        _declare(importer, value, given.get(value.name), value.name in given, dims)
    dims.check(given, [i.name for i in inputs])
    env = {t.name: _weight(importer, tensors, t) for t in read.graph.initializer}
    if read.graph.sparse_initializer:
        raise ModelImportError(f"ONNX: {source} holds sparse weights, which fxlite cannot represent")
    functions = {(proto.domain_of(f), f.name): f for f in read.functions}
    names = [i.name for i in inputs]
    outputs = [o.name for o in read.graph.output]

    def run(*values: Any) -> Any:
        walk = Walk(importer, tensors, functions, read.producer_name)
        walk.opsets = opsets
        order = dict(zip([*importer.inputs, *importer.known], values))
        own = {n: order[importer.names.of(n, "input")] for n in names}
        for value in inputs:
            stored = _element(value)
            if stored is not None and is_traced(own[value.name]) and stored != narrow.widened(stored):
                walk.stored_as(own[value.name], stored)
        results = walk.run(read.graph.node, outputs, ChainMap({**env, **own}))
        found = [_result(walk, v) for v in results]
        for value, text in zip(found, outputs):
            importer.name_result(value, text)
        return found[0] if len(found) == 1 else tuple(found)

    made = importer.trace(run, parts=len(read.graph.node))
    made.graph.eliminate_dead_code()
    renamed = {**importer.names.renamed, **dims.names.renamed}
    made.meta["imported_from"] |= {"opsets": dict(opsets), "outputs": outputs, "renamed": renamed}
    return made


def _model_name(source: str, model: Any) -> str:
    stem = PurePath(source).stem
    return stem if stem != "model" else model.graph.name or stem


def _opsets(model: Any) -> dict[str, int]:
    """The opset versions of a model. Raises ModelImportError for versions that are not supported."""
    found = proto.opsets_of(model)
    main = found.get("", NEWEST)
    if not OLDEST <= main <= NEWEST:
        raise ModelImportError(
            f"ONNX: the model is of opset {main}; {OLDEST} to {NEWEST} are read. "
            "onnx.version_converter.convert_version(model, 17) brings it there"
        )
    return {**found, "": main}


def _element(value: Any) -> np.dtype[Any] | None:
    """The dtype of an input that is a tensor."""
    number = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else 0
    return proto.ELEMENTS.get(number)


def _result(walk: Walk, value: Any) -> Any:
    if isinstance(value, list):
        return [_result(walk, v) for v in value]
    return None if value is None else walk.as_proxy(value)


def _weight(importer: Importer, tensors: proto.Tensors, tensor: Any) -> np.ndarray[Any, Any]:
    """A weight as the value that nodes read. If fxlite lacks its dtype, it is widened when it is first read."""
    array = tensors.read(tensor)
    if array.dtype.kind in "OUS" or narrow.widened(array.dtype) != array.dtype:
        return array
    return importer.weights.add(tensor.name or "weight", array)


# -- inputs ----------------------------------------------------------------------------------------
class _Dims:
    """The named sizes of a model's inputs. ``given``: the caller's facts about some of them."""

    def __init__(self, inputs: list[Any], given: Mapping[str, Any]) -> None:
        self.names = Names([i.name for i in inputs])
        self.given = given
        self.used: set[str] = set()
        self._texts = Counter(d.dim_param for i in inputs for d in i.type.tensor_type.shape.dim if d.dim_param)

    def of(self, dim: Any, value: str, axis: int) -> Any:
        """The size of an axis of an input, as a dim of fxlite."""
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return dim.dim_value
        text = dim.dim_param or f"{valid_name(value, 'input')}_{axis}"
        own = self.given.get(text, self.given.get(valid_name(text, "dim")))
        self.used |= {text, valid_name(text, "dim")}
        if own is not None:
            return self._given(text, own)
        return shapes.parse(self._expression(text) or self.names.of(text, "dim"))

    def _given(self, text: str, own: Any) -> Any:
        if isinstance(own, (str, sympy.Expr, shapes.NamedDim)):
            return shapes.parse(own) if isinstance(own, str) else shapes.normalize(getattr(own, "expr", own))
        if isinstance(own, (int, np.integer)) and not isinstance(own, bool) and own >= 0:
            return int(own)
        raise ArgumentError(f"sizes={{{text!r}: {own!r}}}: a size is a number from 0, or a name")

    def _expression(self, text: str) -> str | None:
        """A dim such as ``batch + 1``, if its names are dims of other axes, or ``2*half``, with which models state
        that it is even; None for a plain name."""
        try:
            found = shapes.parse(text)
        except FxliteError:
            return None
        names = shapes.names(found)
        if text in names or not names:
            return None
        none, one, two = (shapes.substitute(found, dict.fromkeys(names, n)) for n in (0, 1, 2))
        is_multiple = len(names) == 1 and none == 0 and one > 1 and two == 2 * one
        return text if is_multiple or all(n in self._texts for n in names) else None

    def check(self, given: Mapping[str, Any], inputs: list[str]) -> None:
        """Raise ArgumentError for names that belong to no dim and no input."""
        for name in given:
            if name not in self.used and name not in inputs:
                known = [*self.used, *inputs]
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
                raise ArgumentError(f"sizes: the model has no dim or input {name!r}; {hint}")


def _declare(importer: Importer, value: Any, given: Any, is_given: bool, dims: _Dims) -> None:
    """Make an input of the model an input of the graph, or a known value. A list of types stands for a sequence of that
    length, and None for an empty optional."""
    if isinstance(given, (list, tuple)) and all(isinstance(v, (str, TensorType)) for v in given):
        importer.add_input(value.name, [type_of(v) for v in given])
        return
    if given is None and is_given:
        importer.add_known(value.name, None)
        return
    if isinstance(given, (np.ndarray, np.generic, list, tuple)) or type(given) in (int, float, bool):
        stored = _element(value)
        array = np.asarray(given)
        importer.add_known(value.name, array.astype(stored) if stored is not None else array)
        return
    if given is not None:
        importer.add_input(value.name, type_of(given))
        return
    kind = value.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if not kind.HasField("tensor_type"):
        held = kind.WhichOneof("value") or "nothing"
        raise ModelImportError(
            f"ONNX: the input {value.name!r} is a {held.removesuffix('_type')}, whose length the model does not say; "
            f"give the types of its elements: sizes={{{value.name!r}: ['f32[3]', 'f32[3]']}}"
        )
    stored = proto.element(kind.tensor_type.elem_type, f"the input {value.name!r}")
    if not kind.tensor_type.HasField("shape"):
        raise ModelImportError(
            f"ONNX: the input {value.name!r} has no shape; give its type, sizes={{{value.name!r}: 'f32[B,3,224,224]'}}"
        )
    sizes = tuple(dims.of(d, value.name, axis) for axis, d in enumerate(kind.tensor_type.shape.dim))
    importer.add_input(value.name, TensorType(sizes, dtype(narrow.widened(stored))))


# -- coverage --------------------------------------------------------------------------------------
def coverage(model: Any) -> list[tuple[str, int, str]]:
    """Which ops of a model are supported, without importing it: (op, count, "supported", "partly: ..." or "not"), with
    unsupported ones first. Ops in bodies and functions are included. Raises ModelImportError for a damaged file."""
    read = proto.load(model)[0]
    opsets = proto.opsets_of(read)
    functions = {(proto.domain_of(f), f.name) for f in read.functions}
    counts: Counter[tuple[str, str]] = Counter()
    for nodes in (read.graph.node, *(f.node for f in read.functions)):
        counts.update(_ops(nodes))
    found = []
    for (domain, op), count in counts.items():
        if (domain, op) not in functions:
            title = f"{domain}.{op}" if domain else op
            found.append((title, count, _verdict(domain, op, opsets)))
    order = {"n": 0, "p": 1, "s": 2}
    return sorted(found, key=lambda row: (order[row[2][0]], -row[1], row[0]))


def _ops(nodes: Any) -> Iterator[tuple[str, str]]:
    for node in nodes:
        yield proto.domain_of(node), node.op_type
        for message in node.attribute:
            for graph in [message.g] if message.type == 5 else message.graphs:
                yield from _ops(graph.node)


def _verdict(domain: str, op: str, opsets: Mapping[str, int]) -> str:
    row = TABLE.get((domain, op))
    if row is not None:
        return f"partly: {row.partly}" if row.partly else "supported"
    try:
        schema = proto.onnx_library().defs.get_schema(op, opsets.get(domain, 1), domain)
    except Exception:  # onnx raises SchemaError for an op that it does not know
        return "not"
    return "supported" if schema.has_function or schema.has_context_dependent_function else "not"
