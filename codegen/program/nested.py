"""Nested arguments and results of compiled functions, whose C and CUDA code knows arrays only.

In: the traced module, and arguments in the program's structure or results as a flat tuple. Out:
arrays in order of the graph's inputs, and results in the program's structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fxlite.codegen.program.value_sizes import is_counted, value_of
from fxlite.codegen.runtime.abi import HollowCall
from fxlite.codegen.runtime.sizes import count_values
from fxlite.graph.graph import Node, map_nodes
from fxlite.graph.graph_module import GraphModule


def flat_arguments(
    module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arrays inside nested arguments, in order of the graph's inputs; other arguments as they
    are. Raises ArgumentError naming the path of what does not fit."""
    if module.graph.interface is None:
        return args, kwargs
    values = module.flatten_inputs(module.bind(args, kwargs).arguments)
    return tuple([values[p.target] for p in module.graph.placeholders]), {}


def restructure(module: GraphModule) -> Callable[[Any], Any] | None:
    """How flat results become the program's nested result; None where they are the same."""
    structure = module.graph.output_node().args[0]
    interface = module.graph.interface
    if isinstance(structure, Node):
        return None
    if interface is not None and interface.result is not None:
        return lambda flat: module.rebuild_result(_nested(structure, flat))
    if type(structure) is tuple and all(isinstance(s, Node) for s in structure):
        return None

    return lambda flat: _nested(structure, flat)


def call_nested(
    module: GraphModule,
    run: Callable[[Sequence[Any]], Sequence[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """What a call gives where ``run`` computes flat results from the arrays of all inputs."""
    values = module.flatten_inputs(module.bind(args, kwargs).arguments)
    flat = tuple(run([values[p.target] for p in module.graph.placeholders]))
    is_single = isinstance(module.graph.output_node().args[0], Node)
    rebuild = restructure(module)
    result = flat[0] if is_single else flat
    return result if rebuild is None else rebuild(result)


def run_hollow(module: GraphModule, call: HollowCall) -> Any:
    """The flat result of a call that compiled code leaves to NumPy, which stores every value.
    Raises MemoryLimitError where one of them is larger than the call's limit."""
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


def _nested(structure: Any, flat: Any) -> Any:
    """The results of a compiled function in the places of the nodes of ``structure``."""
    values = iter(flat if isinstance(flat, tuple) else (flat,))
    return map_nodes(structure, lambda node: next(values))
