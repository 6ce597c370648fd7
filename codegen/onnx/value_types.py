"""The types of all values of a model that is written: those of fxlite's nodes, which the builder knows, and those of
the nodes in between, which ONNX's inference finds.

In: a GraphProto without weights, and the builder that wrote it. Out: a GraphProto in which each value has an element
type and a shape. Inference makes up a name for a size that it cannot compute; it is replaced by the builder's formula,
or removed where the size depends on values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fxlite.codegen.onnx.builder import SHARED, Builder
from fxlite.types.dtypes import dtype
from fxlite.types.tensor_type import TensorType

#: What names begin with that inference makes up.
_MADE_UP = "unk__"


def with_types(b: Builder, graph: Any) -> Any:
    """The graph with a ValueInfoProto for each value, those in bodies included."""
    helper = b.onnx.helper
    for name, array in b.weights.items():
        if array.size <= SHARED:  # it may be a size
            graph.initializer.append(b.onnx.numpy_helper.from_array(array, name))
        else:
            graph.value_info.append(b.info(name, TensorType(array.shape, dtype(array.dtype))))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", b.opset)])
    found = b.onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    del found.initializer[:]
    others = [info for info in found.value_info if info.name not in b.weights]
    del found.value_info[:]
    found.value_info.extend(others)
    _replace_made_up(b, list(_infos(found)))
    return found


def _infos(graph: Any) -> Iterator[Any]:
    """The types of the values of a graph and of the bodies in it."""
    yield from graph.value_info
    yield from graph.output
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _infos(attribute.g)


def _replace_made_up(b: Builder, infos: list[Any]) -> None:
    sizes: dict[str, str | int] = {}
    for info in infos:
        for dim, known in zip(info.type.tensor_type.shape.dim, b.shapes.get(info.name, ())):
            if dim.dim_param.startswith(_MADE_UP):
                sizes[dim.dim_param] = known if isinstance(known, int) else str(known)
    for info in infos:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param.startswith(_MADE_UP):
                size = sizes.get(dim.dim_param)
                dim.Clear()
                if isinstance(size, int):
                    dim.dim_value = size
                elif size is not None:
                    dim.dim_param = size
