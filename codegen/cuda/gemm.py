"""CUDA C text of one matrix product: C[m, n] = sum over k of A[m, k] * B[k, n], with its epilogue.

In: a :class:`CudaGemmSpec`, with sizes and addresses as C expressions and a callback that prints
what happens to a finished element. Out: a :class:`RenderedKernel`: one kernel that needs only
``prelude.cuh``, and the launch it wants. :func:`render_gemm` tiles through shared memory,
:func:`render_gemm_naive` is its twin with one thread per element and no shared memory.

A block of 256 threads computes 64 x 64 elements, each thread 4 x 4 of them in registers. A and B
pass through shared memory in slices of 16 along k, read in the order in which their elements are
adjacent in memory. Sums run over ascending k, so a result does not depend on the launch.

A :class:`ProductSpec`, the heads and launches of kernels, and loops over batches are shared with
the other templates of matrix products.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.cuda.printer import kernel_head, line_comment
from fxlite.codegen.kernel.text import wrap

# -- what the templates share ----------------------------------------------------------------------
TILE = 64  # rows and columns of C per block
MICRO = 4  # rows and columns of C per thread
THREADS = (TILE // MICRO) ** 2
PITCH = TILE + 4  # of a row of a tile; the padding spreads the stores over the memory banks
MAX_GRID_Y = MAX_GRID_Z = 65535


@dataclass(frozen=True, kw_only=True)
class ProductSpec:
    """One product C[m, n] = sum over k of A[m, k] * B[k, n], or a batch of them.

    Args:
        name: of the kernel.
        parameters: the kernel's parameter list, C text.
        batch: (variable, extent) of the products, outermost first; a single one may be ``batch``.
        m, n, k: C expressions, which must also read as Python (names, ``+ - *``); each may be 0.
        epilogue: (sum, row, column) -> C statements that consume one element; they use the
            batch variables too.
        comment: what is computed, shapes, origin.
    """

    name: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: str
    k: str
    epilogue: Callable[[str, str, str], str]
    comment: str = ""


@dataclass(frozen=True)
class RenderedKernel:
    """A kernel's text and its launch.

    `grid` holds integer expressions of the spec's sizes that read the same in Python and in C++
    (``min`` being in scope); a zero among them means that there is nothing to compute. `shmem` is
    in bytes of dynamic shared memory.
    """

    text: str
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    shmem: int


def in_tiles(
    spec: ProductSpec, shared: list[str], product: list[str], rows_adjacent: bool = False
) -> RenderedKernel:
    """A kernel of one block for each tile: the declarations of ``shared`` memory, where the thread
    is, and the ``product`` for each of the batch. Neighbouring threads have neighbouring columns,
    or rows for ``rows_adjacent``."""
    per_side = TILE // MICRO
    outer, inner = f"thread / {per_side} * {MICRO}", f"thread % {per_side} * {MICRO}"
    row, column = (inner, outer) if rows_adjacent else (outer, inner)
    position = block_position(spec, TILE)
    body = [
        *shared,
        "const int thread = threadIdx.x;",
        f"const int thread_row = {row};",
        f"const int thread_col = {column};",
        f"const int64_t block_row = {position.row} * {TILE};",
        f"const int64_t block_col = {position.column} * {TILE};",
        *over_batch(spec, product),
    ]
    grid = (*position.grid, batch_blocks(spec))
    text = kernel_text(spec, THREADS, body, f"One block for each tile of {TILE} x {TILE} elements.")
    return RenderedKernel(text, grid, (THREADS, 1, 1), 0)


@dataclass(frozen=True)
class BlockPosition:
    """Which tile a block computes: its row and column as C, and the grid's first two sizes."""

    row: str
    column: str
    grid: tuple[str, str]


def block_position(spec: ProductSpec, tile: int) -> BlockPosition:
    """Tiles along x and y of the grid, or all along x where those along y are more than a grid can
    have; neighbouring blocks have neighbouring rows either way."""
    rows, columns = tiles(spec.m, tile), tiles(spec.n, tile)
    if not columns.isdecimal() or int(columns) <= MAX_GRID_Y:  # named: dividing costs registers
        return BlockPosition("(int64_t)blockIdx.x", "(int64_t)blockIdx.y", (rows, columns))
    count = f"({rows})" if not rows.isdecimal() else rows
    whole = f"{count} * ({columns})"
    if count.isdecimal() and columns.isdecimal():
        whole = str(int(count) * int(columns))
    row, column = (f"(int64_t)(blockIdx.x {sign} (unsigned){count})" for sign in "%/")
    return BlockPosition(row, column, (whole, "1"))


def finish(spec: ProductSpec, total: list[str], name: str) -> list[str]:
    """The epilogue of each of a thread's elements; ``total`` are statements before it, which define
    ``name``."""
    return [
        "#pragma unroll",
        f"for (int i = 0; i < {MICRO}; ++i) {{",
        "#pragma unroll",
        f"    for (int j = 0; j < {MICRO}; ++j) {{",
        "        const int64_t row = block_row + thread_row + i;",
        "        const int64_t col = block_col + thread_col + j;",
        f"        if (row >= {atom(spec.m)} || col >= {atom(spec.n)}) continue;",
        *indented("\n".join([*total, spec.epilogue(name, "row", "col")]), 2),
        "    }",
        "}",
    ]


def over_batch(spec: ProductSpec, product: list[str]) -> list[str]:
    """`product` in a loop over this block's share of the batch, if there is a batch."""
    if not spec.batch:
        return product
    lines = [f"for (int64_t batch = blockIdx.z; batch < {_extent(spec)}; batch += gridDim.z) {{"]
    inner = ""  # the number of products below one step of the variable
    positions = []
    for position, (variable, extent) in reversed(list(enumerate(spec.batch))):
        index = f"batch / {inner}" if " " not in inner else f"batch / ({inner})"
        index = index if inner else "batch"
        positions.append((variable, index if position == 0 else f"{index} % {atom(extent)}"))
        inner = f"{atom(extent)} * {inner}" if inner else atom(extent)
    lines += [
        f"    const int64_t {variable} = {index};"
        for variable, index in positions[::-1]
        if variable != index
    ]
    return [*lines, *indented("\n".join(product), 1), "}"]


def _extent(spec: ProductSpec) -> str:
    return " * ".join(atom(extent) for _, extent in spec.batch)


def batch_blocks(spec: ProductSpec) -> str:
    """Blocks along the batch; each takes several products beyond that."""
    extent = _extent(spec)
    if not spec.batch or extent.isdecimal():
        return str(min(int(extent or 1), MAX_GRID_Z))
    return f"min({extent}, {MAX_GRID_Z})"


def tiles(expression: str, size: int) -> str:
    """`expression` divided by a power of two, rounded up, in Python and C alike."""
    if expression.isdecimal():
        return str(-(-int(expression) // size))
    return f"({expression} + {size - 1}) >> {size.bit_length() - 1}"


def kernel_text(spec: ProductSpec, threads: int, body: list[str], how: str) -> str:
    """The whole kernel: comment (what is computed, and ``how``), head and body."""
    head = kernel_head(spec.name, re.split(r"\s*,\s*", spec.parameters.strip()), threads)
    lines = [part for text in indented("\n".join(body), 1) for part in wrap(text)]
    comment = line_comment(f"{spec.comment}\n{how}")
    return "\n".join([comment, *head, *lines, "}"]) + "\n"


def indented(text: str, levels: int) -> list[str]:
    """The lines of `text`, each moved right; directives stay at the margin."""
    prefix = "    " * levels
    return [line if not line or line[0] == "#" else prefix + line for line in text.splitlines()]


def atom(expression: str) -> str:
    """The expression, in parentheses unless it is a name or a number."""
    return expression if re.fullmatch(r"\w+", expression) else f"({expression})"


def times(variable: str, stride: str) -> str:
    """The product of a variable and a stride."""
    if stride == "0":
        return "0"
    return variable if stride == "1" else f"{variable} * {atom(stride)}"


# -- products of floats ----------------------------------------------------------------------------
SLICE = 16  # elements along k per turn


@dataclass(frozen=True)
class Operand:
    """A strided matrix: element (row, column) is
    ``pointer[offset + row * row_stride + column * col_stride]``.

    All are C expressions; `offset` may use the batch variables.
    """

    pointer: str
    offset: str
    row_stride: str
    col_stride: str

    def at(self, row: str, column: str) -> str:
        """C expression of the element."""
        terms = [self.offset, times(row, self.row_stride), times(column, self.col_stride)]
        index = " + ".join(term for term in terms if term != "0") or "0"
        return f"{atom(self.pointer)}[{index}]"


@dataclass(frozen=True, kw_only=True)
class CudaGemmSpec(ProductSpec):
    """One product.

    Args:
        ctype: ``"float"`` or ``"double"``, in which the products are summed.
        a, b: A is [m, k], B is [k, n].
        prologue_a: (row, k) -> C expression of A's element in place of a load of `a`, whose
            strides still say in which direction neighbours are adjacent.
        prologue_b: (k, column) -> the same for B.
        fill_b: lines that fill ``b_tile`` from ``k_begin`` on, where several of B's elements are
            loaded at once; 0 beyond the matrix.
        share_b: lines that add a lane's share of one column to ``sums``, for a single row.
    """

    ctype: str
    a: Operand
    b: Operand
    prologue_a: Callable[[str, str], str] | None = None
    prologue_b: Callable[[str, str], str] | None = None
    fill_b: tuple[str, ...] = ()
    share_b: tuple[str, ...] = ()


BLOCK = 24 * SLICE
"""Products that a thread adds in a row, and then to the sum of such blocks before them."""

_TOTALS = f"T totals[{MICRO}][{MICRO}] = {{}};"

_ADD_BLOCK = f"""\
    if (k_begin % {BLOCK} == {BLOCK - SLICE}) {{  // a block of the sums
#pragma unroll
        for (int i = 0; i < {MICRO}; ++i) {{
#pragma unroll
            for (int j = 0; j < {MICRO}; ++j) {{
                totals[i][j] += sums[i][j];
                sums[i][j] = 0;
            }}
        }}
    }}
"""


def render_gemm(spec: CudaGemmSpec) -> RenderedKernel:
    """The tiled kernel.

    Raises:
        ValueError: `ctype` is not a float type.
    """
    _check(spec)
    t = spec.ctype
    m, n, k = atom(spec.m), atom(spec.n), atom(spec.k)
    a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
    b = spec.prologue_b("k", "col") if spec.prologue_b else spec.b.at("k", "col")
    fill_b = _load("b_tile", "col", n, k, b, along_k=spec.b.col_stride != "1")
    is_long = not k.isdecimal() or int(k) > BLOCK
    total = [f"const {t} sum = totals[i][j] + sums[i][j];"] if is_long else []
    product = [
        f"{t} sums[{MICRO}][{MICRO}] = {{}};",
        *(_TOTALS.replace("T ", f"{t} ").splitlines() if is_long else ()),
        f"for (int64_t k_begin = 0; k_begin < {k}; k_begin += {SLICE}) {{",
        *_load("a_tile", "row", m, k, a, along_k=spec.a.row_stride != "1"),
        *(spec.fill_b or fill_b),
        "    __syncthreads();",
        "#pragma unroll",
        f"    for (int tile_k = 0; tile_k < {SLICE}; ++tile_k) {{",
        f"        {t} a_part[{MICRO}], b_part[{MICRO}];",
        "#pragma unroll",
        f"        for (int i = 0; i < {MICRO}; ++i) {{",
        "            a_part[i] = a_tile[tile_k][thread_row + i];",
        "            b_part[i] = b_tile[tile_k][thread_col + i];",
        "        }",
        "#pragma unroll",
        f"        for (int i = 0; i < {MICRO}; ++i)",
        "#pragma unroll",
        f"            for (int j = 0; j < {MICRO}; ++j) sums[i][j] += a_part[i] * b_part[j];",
        "    }",
        "    __syncthreads();  // the tiles are overwritten next",
        *(_ADD_BLOCK.replace("T ", f"{t} ").splitlines() if is_long else ()),
        "}",
        *finish(spec, total, "sum" if is_long else "sums[i][j]"),
    ]
    shared = [
        f"__shared__ __align__(16) {t} a_tile[{SLICE}][{PITCH}];  // [k][row]",
        f"__shared__ __align__(16) {t} b_tile[{SLICE}][{PITCH}];  // [k][column]",
    ]
    return in_tiles(spec, shared, product)


def render_gemm_naive(spec: CudaGemmSpec) -> RenderedKernel:
    """The same product with one thread per element: slow, and plain to see that it is right.

    Raises:
        ValueError: as :func:`render_gemm`.
    """
    _check(spec)
    a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
    b = spec.prologue_b("k", "col") if spec.prologue_b else spec.b.at("k", "col")
    position = block_position(spec, 16)
    body = [
        f"const int64_t row = {position.row} * 16 + threadIdx.y;",
        f"const int64_t col = {position.column} * 16 + threadIdx.x;",
        f"if (row >= {atom(spec.m)} || col >= {atom(spec.n)}) return;",
        *over_batch(
            spec,
            [
                f"{spec.ctype} sum = 0;",
                f"for (int64_t k = 0; k < {atom(spec.k)}; ++k)",
                f"    sum += {a} * {b};",
                *spec.epilogue("sum", "row", "col").splitlines(),
            ],
        ),
    ]
    grid = (*position.grid, batch_blocks(spec))
    text = kernel_text(spec, 256, body, "One thread for each element.")
    return RenderedKernel(text, grid, (16, 16, 1), 0)


def _check(spec: CudaGemmSpec) -> None:
    if spec.ctype not in ("float", "double"):
        raise ValueError(f"{spec.name}: ctype {spec.ctype!r} is neither 'float' nor 'double'")


def _load(tile: str, line: str, extent: str, k: str, element: str, along_k: bool) -> list[str]:
    """Fill a tile, 0 beyond the matrix; neighbouring threads load along k, or across it."""
    if along_k:
        position = [f"const int i = e / {SLICE}, j = e % {SLICE};  // neighbours along k"]
    else:
        position = [f"const int i = e % {TILE}, j = e / {TILE};  // neighbours along {line}s"]
    return [
        "#pragma unroll",
        f"    for (int e = thread; e < {TILE * SLICE}; e += {THREADS}) {{",
        *(f"        {text}" for text in position),
        f"        const int64_t {line} = block_{line} + i, k = k_begin + j;",
        f"        {tile}[j][i] = {line} < {extent} && k < {k} ? {element} : 0;",
        "    }",
    ]
