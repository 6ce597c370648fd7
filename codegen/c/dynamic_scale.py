"""Scales of values that are quantized by their own range, computed by the kernel that has the values
in registers or cache: the convolution that computes an image, or the loops that quantize a row.

In: the groups of a program. Out: :func:`join_scales` returns them with some groups that store a
``dynamic_scale`` in addition to their result; and for a template's group the C for it
(:class:`Beside`). A template reads each finished tile back from the first-level cache and raises the
image's largest magnitude to that of the tile. Threads may do so at the same time, because a maximum
does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fxlite.codegen.kernel.builder import Pointer, bare
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import Epilogue, buffer_name
from fxlite.graph.graph import Node
from fxlite.ops.integer.quantized import least_magnitude
from fxlite.ops.op import normalize_axes
from fxlite.passes.group import Group
from fxlite.scalar.expr import MultiIndex
from fxlite.scalar.index import Index, Var, flatten
from fxlite.types import dtypes


# -- which groups ----------------------------------------------------------------------------------
def join_scales(groups: Sequence[Group]) -> list[Group]:
    """The groups, without those of a single ``dynamic_scale`` if the group of a convolution that stores its
    operand, or loops that quantize the same rows, can store it as well."""
    by_root = {found.root: found for found in groups}
    readers: dict[Node, list[Group]] = {}
    for found in groups:
        for read in found.inputs:
            readers.setdefault(read, []).append(found)
    joined: set[Node] = set()
    for found in groups:
        if found.root.target.name != "dynamic_scale" or len(found.members) > 1:
            continue
        (x,) = found.inputs
        maker = by_root.get(x)
        if maker is not None and maker.beside is None and _computes_images(maker, found.root):
            maker.beside = found.root
            joined.add(found.root)
            continue
        first = readers.get(found.root, [None])[0]
        if first is not None and first.beside is None and _quantizes_rows(first, found.root):
            first.beside = found.root
            first.members = {found.root: None, **first.members}
            del first.reads[found.root]
            joined.add(found.root)
    return [found for found in groups if found.root not in joined]


def _computes_images(maker: Group, scale: Node) -> bool:
    """Whether a group is a channels-last convolution of integers followed by arithmetic that stores
    floats, and the scale is computed for each image of its result."""
    anchor, root = maker.anchor, maker.root
    if anchor is None or anchor.target.name != "int_conv2d" or 0 in root.type.shape:
        return False
    images = {anchor}  # the convolution's result, and values computed from it
    for member in maker.members:
        if not images.isdisjoint(member.all_input_nodes):
            if member.target.kind != "pointwise" or member.type.shape != anchor.type.shape:
                return False
            images.add(member)
    is_last = anchor.arguments.get("layout") == "NHWC"
    axes = normalize_axes(scale.arguments.get("axis"), root.type.rank)
    return is_last and root.type.dtype is dtypes.float32 and axes == (1, 2, 3)


def _quantizes_rows(reader: Group, scale: Node) -> bool:
    """Whether loops quantize the rows to which a scale belongs."""
    x, root = scale.args[0], reader.root
    if reader.kind != "loops" or root.target.name != "quantize" or root.args[:2] != (x, scale):
        return False
    if len(reader.members) > 1 or any(d in (0, 1) for d in x.type.shape[-1:]):
        return False
    axes = normalize_axes(scale.arguments.get("axis"), x.type.rank)
    return axes == (x.type.rank - 1,) and bool(scale.arguments.get("keepdims"))


# -- in a template ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Beside:
    """C for what a template computes in addition to its result: statements ``before`` and ``after``
    everything, and ``tile``, a function of a tile's numbers of rows and columns and of the position of its
    first element. ``parameter`` is the additional parameter, with its argument."""

    parameter: tuple[str, str]
    before: str
    after: str
    tile: Callable[[Index, Index, Sequence[Index]], str]


def beside_of(
    group: Group,
    emitter: Epilogue,
    output: Buffer,
    store: MultiIndex,
    axes: Sequence[Var],
    row: Var | None,
    image: str | None,
) -> Beside | None:
    """What a group stores in addition to its result, if anything. ``axes`` are the variables that give a
    tile's first element, whose rows lie along ``row``; ``image`` is the template's variable for the
    image, or None if rows belong to all images."""
    node = group.beside
    if node is None:
        return None
    name = buffer_name(node)
    address = flatten(store, output.shape)
    row_step = emitter.text((row and address.coefficient(row)) or Index.of(0))
    images, *inner = (emitter.text(extent) for extent in output.shape)
    qmax = node.bound["qmax"]
    least, factor = (f"{np.float32(v)!s}f" for v in (least_magnitude(qmax), 1 / qmax))

    def tile(rows: Index, columns: Index, first: Sequence[Index]) -> str:
        place = dict(zip(axes, first, strict=True))
        start = Pointer(output.name) + address.substitute(place)
        given = f"{bare(rows)}, {bare(columns)}, {start}, {row_step}"
        if image is not None or row is None:
            return f"raise_magnitude({given}, {name} + {image});"
        of_rows = f"{bare(place[row])}, {given}"
        return f"raise_magnitudes({of_rows}, {' * '.join(inner[:2])}, {name});"

    return Beside(
        (f"float *restrict {name}", name),
        f"fx_clear({name}, {images} * (int64_t)sizeof *{name});",
        f"finish_scales({images}, {least}, {factor}, {name});",
        tile,
    )
