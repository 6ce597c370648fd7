"""The weights of a program in C: one aligned block of memory, and where in it each array lies.

In: the arrays of a module, and the packed weights that templates want. Out: the blob. Packing is
put off until the blob is there and writes into it, so that no weight is in memory a third time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.program.arena import ALIGNMENT
from fxlite.codegen.runtime.load import aligned_empty
from fxlite.codegen.runtime.toolchain import usable_cpus
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.types import dtypes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PackedWeight:
    """A weight in the order in which a template reads it: ``size`` elements, which ``fill`` writes
    into a flat array; of floats ``fill(memory, other)`` writes those of another array of the
    weight's shape. Those with the same ``key`` (the weight, or a name for what is none, and how it
    is packed) hold the same."""

    key: tuple[Any, ...]
    dtype: np.dtype[Any]
    size: int
    fill: Callable[..., None] = field(compare=False, repr=False)


#: Packed weights by their names in C.
Packed = dict[str, PackedWeight]


@dataclass(frozen=True)
class Blob:
    """``data``: the bytes, from an address that is a multiple of 64; ``places``: the name of an
    array -> (its first byte, its C type)."""

    data: Array
    places: Mapping[str, tuple[int, str]]


def c_type(dtype: np.dtype[Any]) -> str:
    """C type of the elements of a packed weight."""
    return dtypes.dtype(dtype).c_stored


def module_arrays(module: GraphModule) -> dict[Node, Array]:
    """The arrays that the graph of a module reads, by node."""
    return {n: np.asarray(module.get_attribute(n.target)) for n in module.graph.nodes if n.op == "get_attr"}


def make_blob(
    used: Iterable[str],
    packed: Packed,
    arrays: Mapping[Node, Array],
    data: Array | None = None,
    more: Mapping[str, tuple[Node, Array]] = MappingProxyType({}),
) -> Blob:
    """The arrays of those names in C, one after another; names that are no weights are left out.
    Each starts at a multiple of 64 bytes. ``data``: the blob, if it was made before; ``more``:
    further arrays by name."""
    by_name = {**{buffer_name(n): (n, a) for n, a in arrays.items()}, **more}
    places: dict[str, tuple[int, str]] = {}
    jobs: list[tuple[int, int, Callable[[Array], None]]] = []
    position = 0
    for name in dict.fromkeys(used):
        if weight := packed.get(name):
            size, ctype = weight.size * weight.dtype.itemsize, c_type(weight.dtype)
            write = _packing(weight)
        elif name in by_name:
            node, array = by_name[name]
            size, ctype = array.nbytes, node.type.dtype.c_stored
            write = _copying(array)
        else:
            continue
        places[name] = position, ctype
        jobs.append((position, size, write))
        position += -(-size // ALIGNMENT) * ALIGNMENT
    if data is not None:
        return Blob(data, places)
    data = aligned_empty(position)

    def run(job: tuple[int, int, Callable[[Array], None]]) -> None:
        start, size, write = job
        write(data[start : start + size])
        data[start + size : start + -(-size // ALIGNMENT) * ALIGNMENT] = 0

    with ThreadPoolExecutor(usable_cpus()) as pool:  # NumPy copies without the GIL
        list(pool.map(run, jobs))
    return Blob(data, places)


def _packing(weight: PackedWeight) -> Callable[[Array], None]:
    return lambda memory: weight.fill(memory.view(weight.dtype))


def _copying(array: Array) -> Callable[[Array], None]:
    def write(memory: Array) -> None:
        memory.view(array.dtype).reshape(array.shape)[...] = array

    return write


FACTOR = 0x9E3779B97F4A7C15
"""Of the digest: odd, so that no bit of a weight is lost."""


def digest_of(data: Array) -> int:
    """The value of the polynomial in :data:`FACTOR`, modulo 2^64, whose coefficients are the 64-bit
    words of a blob."""
    words = data.view(np.uint64)
    powers = np.ones(min(len(words), 1 << 16), np.uint64)
    powers[1:] = FACTOR
    powers = np.cumprod(powers)[::-1]
    digest = 0
    for start in range(0, len(words), len(powers) or 1):
        part = words[start : start + len(powers)]
        value = int((part * powers[len(powers) - len(part) :]).sum(dtype=np.uint64))
        digest = (digest * pow(FACTOR, len(part), 1 << 64) + value) % (1 << 64)
    return digest
