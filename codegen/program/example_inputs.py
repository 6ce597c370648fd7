"""Example inputs, with which a compiled model is checked, timed and shipped.

In: a traced module, sizes for its named dims and, if available, real arrays. Out: :class:`Case`
objects: values of the dims and one array for each input. Random inputs are the same in every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.backend import Case
from fxlite.base.errors import ArgumentError, ShapeError, did_you_mean
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.types import shapes
from fxlite.types.guards import fitting_sizes
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


def named_dims(module: GraphModule) -> list[str]:
    """Names of the dims of a module's inputs, in order of appearance."""
    found: dict[str, None] = {}
    for node in module.graph.placeholders:
        for dim in node.type.shape:
            found.update(dict.fromkeys(sorted(shapes.names(dim))))
    return list(found)


def usual_sizes(names: Sequence[str]) -> list[dict[str, int]]:
    """Sizes to try: every dim 1; small and all different; larger and all different."""
    if not names:
        return [{}]
    return [
        dict.fromkeys(names, 1),
        {name: 3 + 2 * i for i, name in enumerate(names)},
        {name: 8 * 2**i for i, name in enumerate(names)},
    ]


def make_cases(
    module: GraphModule, sizes: Mapping[str, int] | None = None, data: Mapping[str, Array] | None = None
) -> list[Case]:
    """Cases for checking a module; the last one is the largest and is used to measure time.

    ``data`` are real arrays for some or all inputs; they determine the dims in their shapes. ``sizes``
    determine others in the last case. Raises ArgumentError for unknown names and ShapeError for data
    that does not fit."""
    names = named_dims(module)
    sizes, data = dict(sizes or {}), dict(data or {})
    check_names(names, sizes, "named dim")
    check_names([n.target for n in module.graph.placeholders], data, "input")
    fixed = _dims_of_data(module, data)
    for name, size in sizes.items():
        if fixed.get(name, size) != size:
            raise ArgumentError(f"--size {name}={size}: the data given has {name}={fixed[name]}")
    generator = np.random.default_rng(0)
    tried = usual_sizes(names)
    tried[-1].update(sizes)
    graph = module.graph
    near = [fitting_sizes(graph.declared_dims, graph.guards, dims) for dims in tried]
    last = tried[-1] if sizes or near[-1] is None else near[-1]  # sizes that are given are final
    tried = [*(dims for dims in near[:-1] if dims is not None), last]
    cases = [_case(module, dims, {}, generator) for dims in tried]
    if data:
        dims = {**tried[-1], **fixed}
        cases.append(_case(module, dims, data, generator))
    unique: dict[str, Case] = {}
    for case in cases:  # a repeated size is checked only once, at its last place
        unique.pop(repr(case), None)
        unique[repr(case)] = case
    return [*unique.values()]


def load_data(pairs: Mapping[str, str]) -> dict[str, Array]:
    """The arrays of ``.npy`` files, by input. Raises ArgumentError naming the file."""
    arrays: dict[str, Array] = {}
    for name, path in pairs.items():
        if not Path(path).is_file():
            raise ArgumentError(f"--data {name}: there is no file {path}")
        try:
            found = np.load(path, allow_pickle=False)
        except (ValueError, EOFError):
            found = None
        if not isinstance(found, np.ndarray):
            raise ArgumentError(f"--data {name}: {path} is not a .npy file of numbers")
        arrays[name] = found
    return arrays


def check_names(known: Sequence[str], given: Mapping[str, Any], what: str) -> None:
    """Raise ArgumentError for a name that is not one of these, and suggest the nearest."""
    for name in given:
        if name not in known:
            listed = f"they are {', '.join(known)}" if known else f"the model has no {what}"
            hint = did_you_mean(name, known, 1) or f"; {listed}"
            raise ArgumentError(f"there is no {what} {name!r}{hint}")


def _dims_of_data(module: GraphModule, data: Mapping[str, Array]) -> dict[str, int]:
    given = [n for n in module.graph.placeholders if n.target in data]
    return check_inputs(module.name, given, dict(data))


def _case(
    module: GraphModule, dims: Mapping[str, int], data: Mapping[str, Array], generator: np.random.Generator
) -> Case:
    inputs: dict[str, Array] = {}
    for node in module.graph.placeholders:
        given = data.get(node.target)
        inputs[node.target] = _random(node, dims, generator) if given is None else given
    return Case({n: dims[n] for n in named_dims(module)}, inputs, is_random=not data)


def _random(node: Node, dims: Mapping[str, int], generator: np.random.Generator) -> Array:
    """Standard normal floats, and the same for parts of complex numbers; valid positions for integers
    that are used in look-ups; zeros and ones otherwise."""
    declared: TensorType = node.type
    shape = shapes.substitute(declared.shape, dims)
    if any(type(size) is not int or size < 0 for size in shape):
        raise ShapeError(f"{node.target}: {declared} has no shape for {dict(dims)}")
    dtype = declared.dtype
    if dtype.is_float:
        return np.asarray(generator.standard_normal(shape), dtype.numpy)
    if dtype.is_complex:
        parts = generator.standard_normal((*shape, 2))
        return np.asarray(parts.view(np.complex128)[..., 0], dtype.numpy)
    limit = 2
    if dtype.is_integer:
        limit = max(2, min(_positions(node, dims), np.iinfo(dtype.numpy).max))
    return np.asarray(generator.integers(0, limit, shape), dtype.numpy)


def _positions(node: Node, dims: Mapping[str, int]) -> int:
    """How many positions an integer input may name: the size of the smallest axis in which it is used for
    a look-up, or 0 if it is not used so. Looks through views and casts."""
    smallest = 0
    seen = {node}
    work = [node]
    while work:
        current = work.pop()
        for user in current.users:
            if user.op != "call_function":
                continue
            size = _looked_up(user, current)
            if size is not None:
                count = int(shapes.substitute(size, dims))
                smallest = min(smallest, count) if smallest else count
            elif (user.target.kind == "view" or user.target.name == "cast") and user not in seen:
                seen.add(user)
                work.append(user)
    return smallest


def _looked_up(user: Node, index: Node) -> Any:
    """Size of the axis in which ``user`` looks up ``index``; None if it does not."""
    rule = user.target.looks_up
    if rule is None:
        return None
    parameter, table, axis = rule
    arguments = user.arguments
    source = arguments.get(table)
    if arguments.get(parameter) is not index or not isinstance(source, Node):
        return None
    where = arguments.get("axis", 0) if axis is None else axis
    return source.type.shape[where]
