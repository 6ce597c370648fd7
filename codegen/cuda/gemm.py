"""CUDA C text of one matrix product: C[m, n] = sum over k of A[m, k] * B[k, n], with its epilogue.

In: a :class:`CudaGemmSpec`, with sizes and addresses as C expressions and a callback that prints
what happens to a finished element. Out: a :class:`RenderedKernel`: one kernel that needs only
``prelude.cuh``, and the launch it wants. :func:`render_gemm` tiles through shared memory,
:func:`render_gemm_naive` is its twin with one thread per element and no shared memory.

A block of 256 threads computes 64 x 64 elements, each thread 4 x 4 of them in registers. A and B
pass through shared memory in slices of 16 along k, read in the order in which their elements are
adjacent in memory. Sums run over ascending k, so a result does not depend on the launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.cuda.printer import kernel_head, line_comment
from fxlite.codegen.text import wrap

__all__ = [
    "RESERVED",
    "CudaGemmSpec",
    "Operand",
    "RenderedKernel",
    "render_gemm",
    "render_gemm_naive",
]

TILE = 64  # rows and columns of C per block
SLICE = 16  # elements along k per turn
MICRO = 4  # rows and columns of C per thread
THREADS = (TILE // MICRO) ** 2
PITCH = TILE + 4  # of a row of a tile; the padding spreads the stores over the memory banks
MAX_GRID_Z = 65535

RESERVED = frozenset(
    re.findall(
        r"\w+",
        "a_tile b_tile a_part b_part batch block_col block_row col e i j k k_begin row sum sums "
        "thread thread_col thread_row tile_k",
    )
)
"""Names that a spec's parameters and batch variables must leave to the kernel."""


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
        terms = [self.offset, _times(row, self.row_stride), _times(column, self.col_stride)]
        index = " + ".join(term for term in terms if term != "0") or "0"
        return f"{_atom(self.pointer)}[{index}]"


@dataclass(frozen=True)
class CudaGemmSpec:
    """One product.

    Args:
        name: of the kernel.
        ctype: ``"float"`` or ``"double"``, in which the products are summed.
        parameters: the kernel's parameter list, C text.
        batch: (variable, extent) of the products, outermost first; a single one may be ``batch``.
        m, n, k: C expressions, which must also read as Python (names, ``+ - *``); each may be 0.
        a, b: A is [m, k], B is [k, n].
        epilogue: (sum, row, column) -> C statements that consume one element; they use the
            batch variables too.
        prologue_a: (row, k) -> C expression of A's element in place of a load of `a`, whose
            strides still say in which direction neighbours are adjacent.
        prologue_b: (k, column) -> the same for B.
        comment: what is computed, shapes, origin.
    """

    name: str
    ctype: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: str
    k: str
    a: Operand
    b: Operand
    epilogue: Callable[[str, str, str], str]
    comment: str = ""
    prologue_a: Callable[[str, str], str] | None = None
    prologue_b: Callable[[str, str], str] | None = None


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


def render_gemm(spec: CudaGemmSpec) -> RenderedKernel:
    """The tiled kernel.

    Raises:
        ValueError: `ctype` is not a float type, or a name of the spec is in :data:`RESERVED`.
    """
    _check(spec)
    t = spec.ctype
    m, n, k = _atom(spec.m), _atom(spec.n), _atom(spec.k)
    a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
    b = spec.prologue_b("k", "col") if spec.prologue_b else spec.b.at("k", "col")
    product = [
        f"{t} sums[{MICRO}][{MICRO}] = {{}};",
        f"for (int64_t k_begin = 0; k_begin < {k}; k_begin += {SLICE}) {{",
        *_load("a_tile", "row", m, k, a, along_k=spec.a.row_stride != "1"),
        *_load("b_tile", "col", n, k, b, along_k=spec.b.col_stride != "1"),
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
        "}",
        "#pragma unroll",
        f"for (int i = 0; i < {MICRO}; ++i) {{",
        "#pragma unroll",
        f"    for (int j = 0; j < {MICRO}; ++j) {{",
        "        const int64_t row = block_row + thread_row + i;",
        "        const int64_t col = block_col + thread_col + j;",
        f"        if (row >= {m} || col >= {n}) continue;",
        *_indented(spec.epilogue("sums[i][j]", "row", "col"), 2),
        "    }",
        "}",
    ]
    body = [
        f"__shared__ __align__(16) {t} a_tile[{SLICE}][{PITCH}];  // [k][row]",
        f"__shared__ __align__(16) {t} b_tile[{SLICE}][{PITCH}];  // [k][column]",
        "const int thread = threadIdx.x;",
        f"const int thread_row = thread / {TILE // MICRO} * {MICRO};",
        f"const int thread_col = thread % {TILE // MICRO} * {MICRO};",
        f"const int64_t block_row = (int64_t)blockIdx.x * {TILE};",
        f"const int64_t block_col = (int64_t)blockIdx.y * {TILE};",
        *_over_batch(spec, product),
    ]
    grid = (_tiles(spec.m, TILE), _tiles(spec.n, TILE), _batch_blocks(spec))
    return RenderedKernel(_kernel(spec, THREADS, body), grid, (THREADS, 1, 1), 0)


def render_gemm_naive(spec: CudaGemmSpec) -> RenderedKernel:
    """The same product with one thread per element: slow, and plain to see that it is right.

    Raises:
        ValueError: as :func:`render_gemm`.
    """
    _check(spec)
    a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
    b = spec.prologue_b("k", "col") if spec.prologue_b else spec.b.at("k", "col")
    body = [
        "const int64_t row = (int64_t)blockIdx.x * 16 + threadIdx.y;",
        "const int64_t col = (int64_t)blockIdx.y * 16 + threadIdx.x;",
        f"if (row >= {_atom(spec.m)} || col >= {_atom(spec.n)}) return;",
        *_over_batch(
            spec,
            [
                f"{spec.ctype} sum = 0;",
                f"for (int64_t k = 0; k < {_atom(spec.k)}; ++k)",
                f"    sum += {a} * {b};",
                *spec.epilogue("sum", "row", "col").splitlines(),
            ],
        ),
    ]
    grid = (_tiles(spec.m, 16), _tiles(spec.n, 16), _batch_blocks(spec))
    return RenderedKernel(_kernel(spec, 256, body), grid, (16, 16, 1), 0)


def _check(spec: CudaGemmSpec) -> None:
    if spec.ctype not in ("float", "double"):
        raise ValueError(f"{spec.name}: ctype {spec.ctype!r} is neither 'float' nor 'double'")
    parameters = re.findall(r"(\w+)\s*(?:,|$)", spec.parameters)
    variables = [variable for variable, _ in spec.batch]
    for name in (*parameters, *([] if variables == ["batch"] else variables)):
        if name in RESERVED:
            raise ValueError(f"{spec.name}: the name {name!r} is used inside the kernel; rename it")


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


def _over_batch(spec: CudaGemmSpec, product: list[str]) -> list[str]:
    """`product` in a loop over this block's share of the batch, if there is a batch."""
    if not spec.batch:
        return product
    lines = [f"for (int64_t batch = blockIdx.z; batch < {_extent(spec)}; batch += gridDim.z) {{"]
    inner = ""  # the number of products below one step of the variable
    positions = []
    for position, (variable, extent) in reversed(list(enumerate(spec.batch))):
        index = f"batch / {inner}" if " " not in inner else f"batch / ({inner})"
        index = index if inner else "batch"
        positions.append((variable, index if position == 0 else f"{index} % {_atom(extent)}"))
        inner = f"{_atom(extent)} * {inner}" if inner else _atom(extent)
    lines += [
        f"    const int64_t {variable} = {index};"
        for variable, index in positions[::-1]
        if variable != index
    ]
    return [*lines, *_indented("\n".join(product), 1), "}"]


def _extent(spec: CudaGemmSpec) -> str:
    return " * ".join(_atom(extent) for _, extent in spec.batch)


def _batch_blocks(spec: CudaGemmSpec) -> str:
    extent = _extent(spec)
    if not spec.batch or extent.isdecimal():
        return str(min(int(extent or 1), MAX_GRID_Z))
    return f"min({extent}, {MAX_GRID_Z})"


def _tiles(expression: str, size: int) -> str:
    """`expression` divided by a power of two, rounded up, in Python and C alike."""
    if expression.isdecimal():
        return str(-(-int(expression) // size))
    return f"({expression} + {size - 1}) >> {size.bit_length() - 1}"


def _kernel(spec: CudaGemmSpec, threads: int, body: list[str]) -> str:
    head = kernel_head(spec.name, re.split(r"\s*,\s*", spec.parameters.strip()), threads)
    lines = [part for text in _indented("\n".join(body), 1) for part in wrap(text)]
    return "\n".join([line_comment(spec.comment), *head, *lines, "}"]) + "\n"


def _indented(text: str, levels: int) -> list[str]:
    """The lines of `text`, each moved right; directives stay at the margin."""
    prefix = "    " * levels
    return [line if not line or line[0] == "#" else prefix + line for line in text.splitlines()]


def _atom(expression: str) -> str:
    """The expression, in parentheses unless it is a name or a number."""
    return expression if re.fullmatch(r"\w+", expression) else f"({expression})"


def _times(variable: str, stride: str) -> str:
    if stride == "0":
        return "0"
    return variable if stride == "1" else f"{variable} * {_atom(stride)}"
