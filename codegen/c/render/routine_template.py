"""Routines: ops that C computes by a function of its own for each row or matrix: sorting, matrix
factorizations and random bits.

In: a group that is one such op. Out: a loop over rows or matrices, which threads share, around a call of
a tile (``sorting.h``, ``factor.h`` and ``orthogonal.h`` in ``tiles/numeric``); for a single matrix the
threads share the tile's own loops. Scratch belongs to a thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.c.render.template_parts import TemplateFunction, workspace_arguments
from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.c.weights import Array, PackedWeight
from fxlite.codegen.kernel.builder import Body, Pointer, bare, rendered, round_up, symbol
from fxlite.codegen.kernel.lower import NEEDED, buffer_name
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.schedule import document
from fxlite.codegen.kernel.text import comment, signature, wrap
from fxlite.graph.graph import Node
from fxlite.ops.numeric.complex_numbers import roots_of_unity
from fxlite.ops.op import normalize_axis
from fxlite.passes.group import Group
from fxlite.scalar.index import Index, product
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import Dim

Sizes = Mapping[str, Index]

#: Words of random bits that one call of the tile makes, and below which there is none.
WORDS = constant("numeric/philox", "RANDOM_WORDS")
FEW_WORDS = 64
#: Rows of at most so many elements are sorted side by side, as many as fill so many bytes.
MOST_IN_LANES = constant("numeric/sorting", "MOST_IN_LANES")
LANE_BYTES = constant("numeric/sorting", "LANE_BYTES")
#: They are padded to a multiple of so many.
BLOCK_ROWS = constant("numeric/sorting", "BLOCK_ROWS")
#: The largest prime for which the passes of a Fourier transform are written out.
MOST_UNROLLED = constant("numeric/fourier", "MOST_UNROLLED")


@dataclass(frozen=True)
class Routine:
    """How a tile is called. ``sizes`` gives the sizes of a node, with the number of calls under ``items``;
    ``call`` is the call, given sizes, the item's number and scratch; ``scratch`` is the number of scratch bytes
    for one call, if it needs any; ``failure`` is the error text if the tile returns a column; ``rows`` is a
    tile for several short rows."""

    sizes: Callable[[Node], dict[str, Dim]]
    call: Callable[[Node, Sizes, Index, str, str], str]
    scratch: Callable[[Mapping[str, Any], int], Any] | None = None
    failure: str = ""
    rows: str = ""


def ctype_of(dtype: DType) -> str:
    """The name of a dtype's type in the names of tiles."""
    return "uint8_t" if dtype.is_bool else dtype.c_name


def declines_numbers(node: Node) -> str:
    """The template computes all dtypes except half types."""
    kind = node.args[0].type.dtype
    return "" if kind.compute is kind else f"it takes no {kind}: cast to {kind.compute}"


def declines_inexact(node: Node) -> str:
    """The template computes float32, float64 and complex numbers."""
    kind = node.args[0].type.dtype
    return "" if kind.is_complex or kind.name in ("f32", "f64") else f"it takes f32, f64 or complex numbers, not {kind}"


def declines_matrices(node: Node) -> str:
    """The template computes float32 and float64; results without elements are left to loops."""
    kind = node.args[0].type.dtype
    if kind.name not in ("f32", "f64"):
        return f"it takes f32 or f64, not {kind}"
    return "" if node.type.size != 0 else "there are no elements"


# -- rows ------------------------------------------------------------------------------------------
def _row_sizes(node: Node) -> dict[str, Dim]:
    shape = node.type.shape
    axis = normalize_axis(node.bound["axis"], len(shape))
    return {"items": shapes.product(shape[:axis]), "n": shape[axis], "stride": shapes.product(shape[axis + 1 :])}


def _row_call(tile: str) -> Callable[[Node, Sizes, Index, str, str], str]:
    def call(node: Node, sizes: Sizes, item: Index, threads: str, scratch: str) -> str:
        n, stride = sizes["n"], sizes["stride"]
        start = item // stride * stride * n + item % stride
        x, y = Pointer("x") + start, Pointer("y") + start
        name = f"{tile}_{ctype_of(node.args[0].type.dtype)}"
        return f"{name}({bare(n)}, {bare(stride)}, {x}, {y}, {scratch})"

    return call


def _top_sizes(node: Node) -> dict[str, Dim]:
    axis = normalize_axis(node.bound["axis"], node.type.rank)
    sizes = _row_sizes(node)
    return {**sizes, "n": node.args[0].type.shape[axis], "k": node.type.shape[axis]}


def _top(node: Node, sizes: Sizes, item: Index, threads: str, scratch: str) -> str:
    n, k, stride = sizes["n"], sizes["k"], sizes["stride"]
    row, column = item // stride * stride, item % stride
    x, y = Pointer("x") + (row * n + column), Pointer("y") + (row * k + column)
    name = f"top_positions_{ctype_of(node.args[0].type.dtype)}"
    largest = int(node.bound["largest"])
    return f"{name}({bare(n)}, {bare(k)}, {bare(stride)}, {largest}, {x}, {y}, {scratch})"


def _search_sizes(node: Node) -> dict[str, Dim]:
    return {"items": node.type.size, "n": node.args[0].type.shape[0]}


def _search(node: Node, sizes: Sizes, item: Index, threads: str, scratch: str) -> str:
    behind = int(node.bound["side"] == "right")
    name = f"search_sorted_{ctype_of(node.args[0].type.dtype)}"
    place = bare(item)
    return f"y[{place}] = {name}({bare(sizes['n'])}, x, values[{place}], {behind})"


def _mask_sizes(node: Node) -> dict[str, Dim]:
    return {"items": 1, "n": node.args[0].type.shape[0], "size": node.type.shape[0]}


def _places(node: Node, sizes: Sizes, item: Index, threads: str, scratch: str) -> str:
    name = f"true_positions_{ctype_of(node.args[0].type.dtype)}"
    return f"{name}({bare(sizes['n'])}, {bare(sizes['size'])}, x, y)"


# -- random bits -----------------------------------------------------------------------------------
def declines_words(node: Node) -> str:
    """The template computes many random bits; if there are few words, each reader computes its own."""
    size = node.type.size
    return f"of {size} words, each reader computes its own" if type(size) is int and size < FEW_WORDS else ""


def _word_sizes(node: Node) -> dict[str, Dim]:
    size = node.type.size
    parts = shapes.floordiv(size + WORDS - 1, WORDS)
    return {"items": shapes.normalize(parts), "count": size}


def _words(node: Node, sizes: Sizes, item: Index, threads: str, scratch: str) -> str:
    start = node.arguments["start"]
    first = "*start" if isinstance(start, Node) else str(start)
    return f"random_words({bare(item)}, {bare(sizes['count'])}, key, {first}, {node.bound['stream']}u, y)"


# -- matrices --------------------------------------------------------------------------------------
def _matrix_sizes(node: Node) -> dict[str, Dim]:
    shape = node.args[0].type.shape
    return {"items": shapes.product(shape[:-2]), "n": shape[-1]}


def _solve_sizes(node: Node) -> dict[str, Dim]:
    return {**_matrix_sizes(node), "k": node.type.shape[-1]}


def _row_matrix_sizes(node: Node) -> dict[str, Dim]:
    m, n = node.args[0].type.shape[-2:]
    k, width = node.type.shape[-2:]
    return {"items": shapes.product(node.type.shape[:-2]), "m": m, "n": n, "k": k, "width": width}


def _matrix_call(tile: str, **parts: str) -> Callable[[Node, Sizes, Index, str, str], str]:
    """A call of a tile with threads, sizes, the item's parts of operands and result, and scratch. ``parts``
    gives the extents of each part, as names of sizes and numbers."""

    def call(node: Node, sizes: Sizes, item: Index, threads: str, scratch: str) -> str:
        dtype = node.type.dtype
        kind = f"fx_{dtype.name}" if dtype.is_complex else dtype.c_name
        given = [f"{tile}_{kind}({threads}", *map(bare, sizes.values())]
        for name, extents in parts.items():
            elements = Index.of(1)
            for size in extents.split():
                elements = elements * (int(size) if size.isdigit() else sizes[size])
            given.append(str(Pointer(name) + item * elements))
        return f"{', '.join([*given, scratch])})"

    return call


def _names(node: Node) -> list[str]:
    return [*node.target.tensor_kinds][: len(node.args)]


def _block(n: Any) -> int:
    """Bytes of the rows of n elements that are sorted together."""
    known = n if type(n) is int else n.constant if isinstance(n, Index) else None
    length = MOST_IN_LANES if known is None else known if known <= MOST_IN_LANES else 0
    return -(-length // BLOCK_ROWS) * BLOCK_ROWS * LANE_BYTES


SORT = Routine(
    _row_sizes, _row_call("sort_row"), lambda s, item: s["n"] * (2 * item) + _block(s["n"]), rows="sort_rows"
)
ARGSORT = Routine(
    _row_sizes,
    _row_call("sort_positions"),
    lambda s, item: s["n"] * (16 + 2 * item) + _block(s["n"]) * (1 + max(4 // item, 1)),  # with places of 4 or 8 bytes
    rows="sort_positions_of_rows",
)
ARGTOPK = Routine(_top_sizes, _top, lambda s, item: (s["k"] + 64) * 64)
SEARCHSORTED = Routine(_search_sizes, _search)
FLATNONZERO = Routine(_mask_sizes, _places)
PHILOX = Routine(_word_sizes, _words)
CHOLESKY = Routine(
    _matrix_sizes,
    _matrix_call("cholesky", x="n n", y="n n"),
    lambda s, item: s["n"] * (64 * item),
    "the matrix is not positive definite",
)
SOLVE = Routine(
    _solve_sizes,
    _matrix_call("solve", x="n n", b="n k", y="n k"),
    lambda s, item: s["n"] * (s["n"] + s["k"]) * item,
    "the matrix is singular",
)
SLOGDET = Routine(
    _matrix_sizes, _matrix_call("log_determinant", x="n n", y="2"), lambda s, item: s["n"] * s["n"] * item
)
QR = Routine(_row_matrix_sizes, _matrix_call("qr", x="m n", y="k width"), lambda s, item: (s["m"] + 1) * s["n"] * item)
EIGH = Routine(
    _row_matrix_sizes, _matrix_call("eigh", x="m n", y="k width"), lambda s, item: s["n"] * (s["n"] + 4) * item
)
SVD = Routine(
    _row_matrix_sizes,
    _matrix_call("svd", x="m n", y="k width"),
    lambda s, item: ((s["m"] + s["n"] + 4) * s["k"] + s["m"] + s["n"]) * item,
)


def render_routine(
    routine: Routine, group: Group, name: str, weights: dict[Node, Any], locations: list[str]
) -> TemplateFunction:
    """The loop around the tile."""
    node = group.root
    known = routine.sizes(node)
    variable = {n for n, d in known.items() if type(d) is not int} | ({"n"} if group.needed else set())
    sizes = {n: symbol(n) if n in variable else Index.of(d) for n, d in known.items()}
    count = sizes.pop("items")
    if "stride" in sizes:
        count = count * sizes["stride"]
    body, rows, lanes = Body(), count, Index.of(1)
    if routine.rows:
        lanes = _lanes(body, sizes["n"], rows, node.args[0].type.dtype.itemsize)
        count = rows if lanes.constant == 1 else (rows + lanes - 1) // lanes
    parameters = [
        (f"const {ctype_of(v.type.dtype)} *restrict {n}", buffer_name(v))
        for n, v in zip(_names(node), node.args)
        if isinstance(v, Node)
    ]
    parameters.append((f"{ctype_of(node.type.dtype)} *restrict y", buffer_name(node)))
    named = {n: d for n, d in known.items() if n in variable}
    for n, d in named.items():
        parameters.append((f"int64_t {n}", NEEDED if n == "n" and group.needed else bare(Index.of(d))))
    if routine.failure:
        parameters.append(("fx_error *error", "error"))
    single = count.constant == 1
    share: Any = Index.of(0)
    if routine.scratch is not None:
        share = round_up(routine.scratch(sizes, node.args[0].type.dtype.itemsize), 64)
    directive = "" if single else "omp parallel for"
    clauses = " num_threads(n_threads) if (n_threads > 1)"
    with body.shared([("item", count)], directive, clauses) as (item,):
        scratch = ""
        if routine.scratch is not None:
            kind = ctype_of((node if routine in (ARGSORT, ARGTOPK) else node.args[0]).type.dtype)
            at = "workspace" if single else f"(char *)workspace + this_thread()*{_atom(share)}"
            body.pointer(kind, "memory", f"({kind} *)({at})" if not single else at)
            scratch = "memory"
        threads = "n_threads" if single else "1"
        call = routine.call(node, sizes, item, threads, scratch)
        if lanes.constant != 1:
            kind = ctype_of(node.args[0].type.dtype)
            given = ", ".join(map(bare, (item, lanes, rows, sizes["n"], sizes["stride"])))
            call = f"{routine.rows}_{kind}({given}, x, y, {scratch})"
        if not routine.failure:
            body.put(f"{call};")
        else:
            place = len(locations)
            locations.append(f"{routine.failure}: {node.describe()}")
            body.assign("const int64_t failed", call)
            n = bare(sizes["n"])
            body.put(f"if (failed >= 0) no_factors(failed, {n}, {place}, error);")
    threads_total = Index.of(1) if single else symbol("n_threads")
    made = rendered(
        name, ", ".join(text for text, _ in parameters), [document(group)], body.lines(), threads_total * share
    )
    workspace = made.workspace.substitute({sizes[n].single_atom: Index.of(d) for n, d in named.items() if n in sizes})
    arguments = tuple(a for _, a in parameters) + workspace_arguments(made.extra_parameters)
    return TemplateFunction(name, made.text, arguments, {}, bare(workspace))


def _lanes(body: Body, n: Index, rows: Index, itemsize: int) -> Index:
    """How many rows of n elements one call sorts."""
    most = LANE_BYTES // itemsize
    if n.constant is not None:
        few = rows.constant is not None and rows.constant < 3
        return Index.of(1 if few or n.constant > MOST_IN_LANES else most)
    body.assign("const int64_t lanes", f"{bare(n)} <= {MOST_IN_LANES} ? {most} : 1")
    return symbol("lanes")


def _atom(size: Index) -> str:
    text = bare(size)
    return text if text.isalnum() else f"({text})"


# -- discrete Fourier transforms -------------------------------------------------------------------
# In and out as in :mod:`fxlite.codegen.c.templates`.


def declines_fourier(node: Node) -> str:
    """The template computes transforms of at least two points."""
    points = int(node.type.shape[_axis(node)])
    return "" if 1 < points <= 2**26 else f"it takes 2 to 2**26 points, not {points}"


def _axis(node: Node) -> int:
    return normalize_axis(node.bound["axis"], node.type.rank)


def radices(size: int) -> list[int]:
    """The radices of the passes: first fours, whose loops are designed for few transforms, then a two,
    threes, fives and other primes."""
    found: list[int] = []
    for radix in (4, 2, 3, 5):
        while size % radix == 0:
            found.append(radix)
            size //= radix
    prime = 7
    while size > 1:
        while size % prime == 0:
            found.append(prime)
            size //= prime
        prime = prime + 2 if prime * prime <= size else max(size, prime + 2)
    return found


@functools.cache
def chirp_length(size: int) -> int | None:
    """The number of points of the transforms by which one of ``size`` is computed as a convolution; None if
    its own passes take less time."""
    least = 1 << (2 * size - 2).bit_length()
    found = min((n for n in (least, least // 4 * 3, least // 8 * 5) if n >= 2 * size - 1), key=_steps)
    return found if _steps(size) > 2 * _steps(found) + 8 * found else None


def _steps(size: int) -> int:
    """The cost of the passes of a transform: about ``radix`` steps for each point, and twice as many where a
    pass of the radix is not written out (measured)."""
    return sum(size * radix * (1 if radix <= MOST_UNROLLED else 2) for radix in radices(size))


def _rows_together(size: int, itemsize: int, apart: bool) -> int:
    """How many transforms of so many points are computed side by side. Those whose first passes are fours are
    fast alone, unless they are short or their points ``apart`` in memory."""
    alone = size * itemsize > 131072 or (size % 16 == 0 and size * itemsize >= 1024)
    return 1 if alone and not apart else 16


def chirp(size: int, length: int, dtype: np.dtype[Any]) -> Array:
    """``exp(-pi i k k / size)``, and the transform over ``length`` points of its conjugate followed by zeros
    and its reversal: real parts, then imaginary parts, of each."""
    k = np.arange(size, dtype=np.int64)
    own = roots_of_unity(2 * size, "complex128")[k * k % (2 * size)]
    filtering = np.zeros(length, np.complex128)
    filtering[:size] = own.conj()
    filtering[length - size + 1 :] = own[:0:-1].conj()
    filtering = np.fft.fft(filtering) / length
    return np.concatenate([own.real, own.imag, filtering.real, filtering.imag]).astype(dtype)


def factors(size: int, dtype: np.dtype[Any]) -> Array:
    """The factors of the passes, one after another: for each pass ``exp(-2 pi i p k / length)``, first real
    parts, then imaginary parts; for a prime above 5 followed by its roots of unity."""
    parts: list[Array] = []
    length = size
    for radix in radices(size):
        roots, m = roots_of_unity(length, "complex128"), length // radix
        powers = roots[np.outer(np.arange(1, radix), np.arange(m)).ravel() % length]
        parts += [powers.real, powers.imag]
        if radix % 2:
            own = roots_of_unity(radix, "complex128")
            parts += [own.real, own.imag]
        length = m
    return np.concatenate(parts).astype(dtype)


def render_fourier_node(group: Group, name: str, weights: dict[Node, Any], locations: list[str]) -> TemplateFunction:
    """The function of a transform."""
    node = group.root
    x, inverse = node.args[0], int(node.arguments.get("inverse", False))
    shape, axis, kind = node.type.shape, _axis(node), node.type.dtype.real
    size, ctype, complex_type = int(shape[axis]), kind.c_name, node.type.dtype.c_name
    own = derived(buffer_name(node), "factors")

    longer = chirp_length(size)
    length = size if longer is None else longer
    lanes = _rows_together(length, kind.itemsize, axis != len(shape) - 1)
    steps, place = radices(length), len(factors(length, kind.numpy))

    def pack(memory: Array, array: None) -> None:
        memory[:place] = factors(length, kind.numpy)
        if longer is not None:
            memory[place:] = chirp(size, longer, kind.numpy)

    parameters = [
        f"const {complex_type} *restrict x",
        f"const {ctype} *restrict factors",
        f"{complex_type} *restrict y",
        "int64_t rows",
        "int64_t stride",
        "void *restrict workspace",
        "int n_threads",
    ]
    passes = [f"fourier_pass_{r}_{ctype}" if r <= MOST_UNROLLED else f"fourier_pass_{ctype}" for r in steps]
    ends = f"radices, passes, {inverse}, workspace, n_threads"
    given = f"({ctype} *)y, rows, {size}, stride, {lanes}"
    if longer is None:
        call = f"fourier_rows_{ctype}((const {ctype} *)x, factors, {given}, {ends})"
    else:
        table = f"factors, factors + {place}"
        call = f"fourier_chirp_rows_{ctype}((const {ctype} *)x, {table}, {given}, {length}, {ends})"
    lines = [
        *wrap(f"    const int radices[] = {{{', '.join(map(str, [*steps, 0]))}}};"),
        *wrap(f"    fourier_pass_of_{ctype} *const passes[] = {{{', '.join(passes)}}};"),
        *wrap(f"    {call};"),
    ]
    text = "\n".join([comment(document(group)), *signature(name, parameters), *lines, "}"])
    stride = product(Index.of(d) for d in shape[axis + 1 :])
    rows = product(Index.of(d) for d in shape[:axis]) * stride
    arguments = (buffer_name(x), own, buffer_name(node), bare(rows), bare(stride), "scratch", "n_threads")
    whole = place + (0 if longer is None else 2 * (size + longer))
    packed = {own: PackedWeight(("fourier", size, kind.name), kind.numpy, whole, pack)}
    share = 4 * length * lanes * kind.itemsize
    return TemplateFunction(name, text, arguments, packed, f"{share} * n_threads")
