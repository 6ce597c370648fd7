"""The calls of a compiled program: the values whose sizes must be checked before a call
(:mod:`.runtime.sizes`), and nested arguments and results.

In: a :class:`~fxlite.codegen.program.program.Program`. Out: one :class:`ValueSize` for each value that
may become too large at some sizes of the named dims; those that are never larger than another one are
left out. Values whose sizes are numbers are checked here, so that they need no check in a call.

C and CUDA code only handles arrays. In: the traced module, and arguments in the program's structure or
results as a flat tuple. Out: arrays in the order of the graph's inputs, and results in the program's
structure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.codegen.program.data_sizes import DataSize, largest_type
from fxlite.codegen.runtime.abi import DimText, HollowCall
from fxlite.codegen.runtime.sizes import CONSTANT, HOLLOW, STORED_VALUE, ValueSize, count_values
from fxlite.graph import pytree
from fxlite.graph.graph import Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.scalar.index import Index, to_text
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.codegen.program.program import Program


def dim_data(dim: Dim) -> int | DimText:
    """A dim in the form in which descriptions of compiled programs store it."""
    if type(dim) is int:
        return dim
    return DimText(to_text(Index.of(dim)))


def value_sizes(program: Program) -> tuple[ValueSize, ...]:
    """The values to check in a call, in program order.

    Raises MemoryLimitError naming a value whose sizes are numbers and that no machine can hold."""
    values = list(_values(program))
    title = program.module.name
    numbers = [v for v in values if all(isinstance(d, int) for d in v.shape)]
    count_values(numbers, {}, STORED_VALUE, title)
    kept: dict[int, tuple[ValueSize, Counter[str]]] = {}
    # those that cover others come first: they have many known bytes and, for equal bytes, are stored
    for value in sorted(filter(_is_open, values), key=lambda v: (v.known_bytes, v.stored), reverse=True):
        named = Counter(str(d) for d in value.shape if not isinstance(d, int))
        if not any(_covers(*other, value, named) for other in kept.values()):
            kept[id(value)] = value, named
    return tuple(v for v in values if id(v) in kept)


def _values(program: Program) -> Iterator[ValueSize]:
    held = {n for found in program.groups for n in found.stored} | set(program.results)
    seen: set[tuple[object, ...]] = set()
    for node in program.module.graph.nodes:
        if is_counted(node):
            stored = node in held and node.op == "call_function"
            if (key := (node.type, stored)) not in seen:
                seen.add(key)
                yield value_of(node, stored, program.data_sizes)


def is_counted(node: Node) -> bool:
    """Whether a node is a single array that is given to a call or computed by it."""
    return node.op in ("placeholder", "call_function") and isinstance(node.type, TensorType)


def value_of(node: Node, stored: bool, data_sizes: Mapping[str, DataSize] = MappingProxyType({})) -> ValueSize:
    """A node's value as a :class:`ValueSize`."""
    dtype, shape = node.type.dtype, tuple(map(dim_data, largest_type(node.type, data_sizes).shape))
    takes_memory = stored and 0 not in shape
    return ValueSize(node.name, dtype.name, dtype.itemsize, shape, node.origin, takes_memory)


def _is_open(value: ValueSize) -> bool:
    """Whether it has to be checked in each call."""
    if any(not isinstance(d, int) for d in value.shape):
        return True
    counted = value.known_bytes
    return counted > (HOLLOW if 0 in value.shape else CONSTANT if value.stored else counted)


def _covers(one: ValueSize, mine: Counter[str], other: ValueSize, its: Counter[str]) -> bool:
    """Whether ``other``, which has no more known bytes, can be too large only if ``one`` is, too; ``mine``
    and ``its`` count how often each named axis occurs in them."""
    if 0 in other.shape and 0 not in one.shape:
        return False  # only ``other`` may be hollow
    if not other.stored:
        return its <= mine
    return its == mine and one.stored


# -- nested arguments and results ------------------------------------------------------------------
def restructure(module: GraphModule) -> Callable[[Any], Any] | None:
    """A function that gives a compiled function's flat results the structure of the output node; None if
    they have it already."""
    structure = module.graph.output_node().args[0]
    if isinstance(structure, Node):
        return None
    if type(structure) is tuple and all(isinstance(s, Node) for s in structure):
        return None
    return lambda flat: nested(structure, flat)


def finisher(module: GraphModule) -> Callable[[Any], Any]:
    """A function from the flat results to the program's result, without the new values of inputs that it writes."""
    interface, structure = module.graph.interface, module.graph.output_node().args[0]
    classes = None if interface is None else interface.result
    form = structure[0] if interface is not None and interface.writes else structure
    if classes is not None and classes.has_class and pytree.fits(classes, form):
        return lambda flat: pytree.rebuild(classes, nested(form, flat))
    if form is structure and isinstance(form, Node):
        return lambda flat: flat
    return lambda flat: nested(form, tuple(flat) if isinstance(flat, list) else flat)


def call_nested(
    module: GraphModule,
    run: Callable[[Sequence[Any]], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    direct: Callable[[Sequence[Any]], Any] = lambda arrays: NotImplemented,
) -> Any:
    """The result of a call of the program, where ``run`` computes flat results (or the only one) from the
    arrays of all inputs; ``direct`` returns the program's own result, or NotImplemented. Raises
    ArgumentError naming the path of an argument that does not fit."""
    values = module.flatten_inputs(module.bind(args, kwargs).arguments)
    result = direct([values[p.target] for p in module.graph.placeholders])
    if result is not NotImplemented:
        return result
    structure = module.graph.output_node().args[0]

    def call(arrays: Sequence[Any]) -> Any:
        flat = run(arrays)
        return nested(structure, tuple(flat) if isinstance(flat, list) else flat)

    return module.call_flat(values, call)


def run_hollow(module: GraphModule, call: HollowCall) -> Any:
    """The flat result of a call that compiled code leaves to NumPy, which stores every value. Raises
    MemoryLimitError if one of them exceeds the call's limit."""
    values = [value_of(n, stored=True) for n in module.graph.nodes if is_counted(n)]
    count_values(values, call.dims, call.most, f"{module.name}()")
    targets = [p.target for p in module.graph.placeholders]
    result = module.run_flat(dict(zip(targets, call.arrays, strict=True)))
    flat = tuple(_arrays(result))
    return flat[0] if isinstance(module.graph.output_node().args[0], Node) else flat


def _arrays(result: Any) -> Iterator[Any]:
    """The arrays of a nested result, in the order of its nodes."""
    if isinstance(result, (tuple, list, dict)):
        for part in result.values() if isinstance(result, dict) else result:
            yield from _arrays(part)
    elif result is not None:
        yield np.asarray(result)


def nested(structure: Any, flat: Any) -> Any:
    """The results of a compiled function, put in the places of the nodes of ``structure``."""
    values = iter(flat if isinstance(flat, tuple) else (flat,))
    return map_nodes(structure, lambda node: next(values))
