"""What the matrix-product templates of CUDA share: the description of a product, and the parts of a
kernel around its tiles.

In: a :class:`ProductSpec`, with sizes as C expressions and a callback that prints what happens to a
finished element. Out: the head and launch of a kernel, and loops over batches. All kernels compute
tiles of 64 x 64 elements with blocks of 256 threads, each thread 4 x 4 of them in registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.cuda.printer import kernel_head, line_comment
from fxlite.codegen.kernel.text import wrap

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
