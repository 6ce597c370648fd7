"""The weights of a program in C: one aligned block of memory with the position of each array in it; and
the file in which a program stores them. Weights that a quantized program has as integers and compiled
code reads as floats stay integers in the file, and become floats when it is loaded.

In: the arrays of a module, and the packed weights that templates need. Out: the blob. Packing is
deferred until the blob is allocated and writes directly into it, so that no weight is in memory a third
time.

In: an emitted program and the module it was traced from, whose passes recorded how they computed
weights. Out: :class:`StoredWeights`: the bytes of the file, and how each part becomes a part of the
blob. Integers are in the order of the floats, so that a float is an integer times a scale from a table
in the same order: no loop depends on the layout of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.progress import progress
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.program.memory import ALIGNMENT
from fxlite.codegen.runtime.load import aligned_empty
from fxlite.codegen.runtime.toolchain import usable_cpus
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.passes.derived import Derivation, derivations, sources_in
from fxlite.types import dtypes

if TYPE_CHECKING:
    from fxlite.codegen.c.emit import CProgram

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PackedWeight:
    """A weight in the order in which a template reads it: ``size`` elements. ``pack(memory, array)`` writes
    them into a flat array; the second argument is the weight's ``array``, or another one of its shape.
    Packed weights with the same ``key`` (the weight, or a name for something else, and the kind of packing)
    hold the same values."""

    key: tuple[Any, ...]
    dtype: np.dtype[Any]
    size: int
    pack: Callable[[Array, Any], None] = field(compare=False, repr=False)
    array: Array | None = field(default=None, compare=False, repr=False)

    def of(self, weight: Node, array: Array) -> PackedWeight:
        """Another weight of the same type, packed in the same way."""
        return replace(self, key=(weight, *self.key[1:]), array=array)


#: Packed weights by their names in C.
Packed = dict[str, PackedWeight]


@dataclass(frozen=True)
class Blob:
    """``data`` are the bytes, from an address that is a multiple of 64; ``places`` maps the name of an
    array to its first byte and its C type."""

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
    """The arrays with these names in C, one after another; names that are not weights are ignored. Each
    array starts at a multiple of 64 bytes. ``data`` is the blob if it exists already; ``more`` has
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

    with (
        progress("pack weights", len(jobs)) as work,
        ThreadPoolExecutor(usable_cpus()) as pool,  # NumPy releases the GIL while copying
    ):
        for _ in pool.map(run, jobs):
            work.advance()
    return Blob(data, places)


def _packing(weight: PackedWeight) -> Callable[[Array], None]:
    return lambda memory: weight.pack(memory.view(weight.dtype), weight.array)


def _copying(array: Array) -> Callable[[Array], None]:
    def write(memory: Array) -> None:
        memory.view(array.dtype).reshape(array.shape)[...] = array

    return write


FACTOR = 0x9E3779B97F4A7C15
"""The factor of the digest: odd, so that no bit of a weight is lost."""


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


# -- as the file of a program holds them -----------------------------------------------------------
#: A part is stored as integers where that takes at most so much of its floats' bytes.
MOST = 0.6
#: Widths of a row of scales: of one number, of vectors and panels.
WIDTHS = (1, 16, 32)


@dataclass(frozen=True)
class Part:
    """Bytes of the file from ``start`` on, for bytes of the blob from ``place`` on: ``size`` bytes as they
    are or, if there are ``bits``, ``size`` floats. The latter are stored as scales (rows of ``width``
    floats, each for ``run`` numbers) and integers (of 8 bits, or two 4-bit ones with the first in the
    lower half)."""

    start: int
    place: int
    size: int
    bits: int = 0
    run: int = 0
    width: int = 0


@dataclass(frozen=True)
class StoredWeights:
    """``data`` are the file's bytes; ``parts`` are in order."""

    data: Array
    parts: tuple[Part, ...]

    def expansion(self, name: str) -> list[str]:
        """The lines of C that make a model's blob from the file; none if they are the same."""
        lines: list[str] = []
        for p in self.parts if any(part.bits for part in self.parts) else ():
            if not p.bits:
                lines.append(f"memcpy(to + {p.place}, from + {p.start}, {p.size});")
                continue
            given = f"{p.start}, to + {p.place}, {p.bits}, {p.size}, {p.run}, {p.width}"
            lines.append(f"{name}_expand(from + {given});")
            if rest := -4 * p.size % ALIGNMENT:
                lines.append(f"memset(to + {p.place + 4 * p.size}, 0, {rest});")
        return lines


def stored_weights(program: CProgram, source: GraphModule) -> StoredWeights:
    """The file of a program; ``source`` is the traced module, which has the integers."""
    blob, module = program.weights, program.program.module
    noted = {result: d for d in derivations(module) for result in d.results}
    nodes = {buffer_name(n): n for n in module.graph.find_nodes(op="get_attr")}
    starts = sorted((place, name) for name, (place, _) in program.places.items())
    pieces: list[Array] = []
    parts: list[Part] = []
    at = 0
    for number, (place, name) in enumerate(starts):
        end = starts[number + 1][0] if number + 1 < len(starts) else blob.size
        packed = program.packed.get(name)
        node = packed.key[0] if packed is not None else nodes.get(name)  # None for an initial state
        found = None  # packed data that is no weight has no node
        is_weight = isinstance(node, Node) and node.target in noted
        if program.places[name][1] == "float" and isinstance(node, Node) and is_weight:
            size = (int(node.type.size) if packed is None else packed.size) * 4
            found = _as_integers(node, packed, blob[place : place + size], noted, source)
        if found is not None:
            table, integers, bits, run = found
            piece = np.concatenate([table.reshape(-1).view(np.uint8), integers.view(np.uint8)])
            parts.append(Part(at, place, size // 4, bits, run, table.shape[1]))
        else:
            piece = blob[place:end]
            if parts and not parts[-1].bits:  # extend the previous copy
                parts[-1] = Part(parts[-1].start, parts[-1].place, end - parts[-1].place)
            else:
                parts.append(Part(at, place, end - place))
        rest = -piece.size % ALIGNMENT
        pieces += [piece, np.zeros(rest, np.uint8)]
        at += piece.size + rest
    data = np.concatenate(pieces) if pieces else blob
    return StoredWeights(data, tuple(parts))


def _as_integers(
    node: Node, packed: Any, floats: Array, noted: Mapping[str, Derivation], source: GraphModule
) -> tuple[Array, Array, int, int] | None:
    """A table of scales, integers, their bits, and the number of integers for each row of scales; None for a
    weight that is not an integer times a scale."""
    chain = _chain(node.target, noted)
    expand = chain[0].function if chain else None
    if not isinstance(expand, Op) or expand.name != "dequantize_weight":
        return None
    first, *moves = chain
    paths = sources_in(first.arguments)
    integers, scale = (np.asarray(source.get_attribute(path)) for path in paths)
    options: dict[str, Any] = dict(first.options)
    shape, bits = options["shape"], options.pop("bits", 8)
    if floats.size // 4 >= 1 << 24:  # larger element numbers are not exact as floats
        return None
    ones = np.ones((shape[0], int(np.prod(shape[1:]))), np.int8)
    numbers = np.arange(1, scale.size + 1, dtype=np.float32).reshape(scale.shape)
    found = []
    for value in (
        expand.reference(integers, np.ones_like(scale), bits=bits, **options),
        expand.reference(ones, numbers, **options),
    ):
        arrays = {first.results[0]: value}
        for step in moves:
            arrays.update(zip(step.results, step.run(arrays)))
        made, value = np.zeros(floats.size // 4, np.float32), arrays[node.target]
        if packed is None:
            made[:] = value.reshape(-1)
        else:
            packed.pack(made, np.ascontiguousarray(value))
        found.append(made)
    values, rows = found
    whole = values.astype(np.int8)
    if not np.array_equal(whole, values):  # Winograd's points are not integers
        return None
    table, run = _table(rows.astype(np.int64), np.append(0, scale.reshape(-1)).astype(np.float32))
    parts = values.reshape(len(table), run // table.shape[1], table.shape[1]) * table[:, None]
    if not np.array_equal(parts.reshape(-1), floats.view(np.float32)):
        return None
    if bits == 4:
        pairs = np.append(whole, np.zeros(whole.size % 2, np.int8)).view(np.uint8)
        whole = ((pairs[::2] & 15) | pairs[1::2] << 4).view(np.int8)
    return (table, whole, bits, run) if table.nbytes + whole.nbytes < MOST * floats.size else None


def _chain(path: str, noted: Mapping[str, Derivation]) -> list[Derivation]:
    """The derivations from a weight that was not computed to this one, if each has only the result of the
    previous one as its input."""
    steps: list[Derivation] = []
    while (step := noted.get(path)) is not None:
        steps.insert(0, step)
        known = [s for s in sources_in(step.arguments) if s in noted]
        if len(known) > 1 or (known and len(sources_in(step.arguments)) > 1):
            return []
        if not known:
            break
        path = known[0]
    return steps


def _table(rows: Array, scales: Array) -> tuple[Array, int]:
    """The smallest table of the scales for these numbers (0 fits any scale), and how many numbers each of
    its rows is for."""
    best: tuple[Array, int] | None = None
    for width in {*WIDTHS, int(rows.max(initial=1))}:
        if rows.size % width:
            continue
        matrix = rows.reshape(-1, width)
        last = np.where(matrix != 0, np.arange(len(matrix))[:, None], 0)
        filled = np.take_along_axis(matrix, np.maximum.accumulate(last, axis=0), axis=0)
        changes = np.flatnonzero((filled[1:] != filled[:-1]).any(axis=1)) + 1
        step = int(np.gcd.reduce(np.append(changes, len(matrix))))
        table = scales[filled[step - 1 :: step]]
        if best is None or table.size < best[0].size:
            best = table, step * width
    assert best is not None
    return best
