"""Match contraction groups to CUDA's templates.

In: a group anchored at an op that a template :func:`claims`. Out: its kernel, with operand
addresses and epilogue printed from the group's expressions, and its launch. Weights stay as they
are: the kernels read any strides.

The integer weights of a linear_weight_only stay integers in memory, too, and are
unpacked and scaled in registers, on the way to the tile in shared memory: 32 bits at a time (four
i8 or eight int4) where rows and groups are made of whole words, else one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxlite.codegen.cuda.gemm import (
    SLICE,
    THREADS,
    TILE,
    CudaGemmSpec,
    Operand,
    RenderedKernel,
    atom,
    render_gemm,
)
from fxlite.codegen.cuda.gemv import is_single_row, render_gemv
from fxlite.codegen.cuda.integer_products import is_integer_product, render_integer_product
from fxlite.codegen.cuda.printer import CudaPrinter
from fxlite.codegen.kernel.contraction import (
    Epilogue,
    is_matrix_product,
    matrix_product,
    require_some,
    strides,
)
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.lower import Contraction, buffer_name, buffer_of, lower_contraction
from fxlite.codegen.kernel.schedule import document
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Index, Var


# -- integer weights -------------------------------------------------------------------------------
@dataclass(frozen=True)
class IntegerWeight:
    """Weights [n, k] of ``bits`` (4 or 8) with scales [n], or [n, k / group_size], rounded up.

    Args:
        weight, scale: names of the arrays.
        n, k: C expressions of the sizes.
        group_size: weights along k that share a scale; 0: all of a row.
    """

    weight: str
    scale: str
    n: str
    k: str
    bits: int
    group_size: int

    @property
    def in_words(self) -> bool:
        """Whether 32 bits from every word's beginning are of one row and one group."""
        count = 32 // self.bits
        return self.k.isdecimal() and int(self.k) % count == 0 == self.group_size % count

    def _place(self, k: str) -> tuple[str, str]:
        """C expressions of where (``col``, k) is stored, and its scale."""
        groups, group = "", ""
        if self.group_size:
            groups = f" * {_divide_up(self.k, self.group_size)}"
            group = f" + {k} / {self.group_size}"
        row, at = (_divide_up(self.k, 2), f"{k} / 2") if self.bits == 4 else (atom(self.k), k)
        return f"{self.weight}[col * {row} + {at}]", f"{self.scale}[col{groups}{group}]"

    def element(self, k: str, column: str) -> str:
        """C expression of one weight."""
        place, scale = self._place(k)
        if self.bits == 4:  # the half that is wanted to the top, and back, which repeats its sign
            place = f"((int)((uint32_t){place} << (28 - 4 * ({k} % 2))) >> 28)"
        return f"(float){place} * {scale}"

    def fill(self) -> tuple[str, ...]:
        """Lines that fill ``b_tile`` word by word; none where words are not whole."""
        if not self.in_words:
            return ()
        count = 32 // self.bits
        words = SLICE // count
        place, scale = self._place("k")
        return (
            f"    for (int e = thread; e < {TILE * words}; e += {THREADS}) {{  // {count} at once",
            f"        const int i = e / {words}, j = e % {words} * {count};",
            "        const int64_t col = block_col + i, k = k_begin + j;",
            f"        const bool inside = col < {atom(self.n)} && k < {self.k};",
            f"        const uint32_t quad = inside ? (uint32_t)fx_quad(&{place}) : 0;",
            f"        const float scale_of_quad = inside ? {scale} : 0;",
            "#pragma unroll",
            f"        for (int lane = 0; lane < {count}; ++lane)",
            f"            b_tile[j + lane][i] = {self._part('lane')};",
            "    }",
        )

    def share(self, a: str) -> tuple[str, ...]:
        """Lines that add a lane's share of column ``col`` to ``sums``, word by word; ``a`` is the
        row's element at ``k + j``. None where words are not whole."""
        if not self.in_words:
            return ()
        count = 32 // self.bits
        place, scale = self._place("k")
        return (
            f"for (int64_t k = {count} * lane; k < {self.k}; k += {32 * count}) {{",
            f"    const uint32_t quad = (uint32_t)fx_quad(&{place});",
            f"    const float scale_of_quad = {scale};",
            "#pragma unroll",
            f"    for (int j = 0; j < {count}; ++j)",
            f"        sums += {a} * ({self._part('j')});",
            "}",
        )

    def _part(self, number: str) -> str:
        """C expression of one of the weights in ``quad``."""
        top = 32 - self.bits
        return f"(float)((int)(quad << ({top} - {self.bits} * {number})) >> {top}) * scale_of_quad"


def _divide_up(size: str, by: int) -> str:
    """C expression of a size over a number, rounded up."""
    if size.isdecimal():
        return str(-(-int(size) // by))
    return f"(({size} + {by - 1}) / {by})"


# -- templates -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CudaTemplate:
    """A rendered template and the names of the buffers and dims it takes."""

    rendered: RenderedKernel
    arguments: tuple[str, ...]


def claims(node: Node) -> bool:
    """True for nodes that a template computes."""
    is_product = is_matrix_product(node) or node.target.name == "linear_weight_only"
    return is_product or is_integer_product(node)


def render(group: Group, name: str, locations: list[str]) -> CudaTemplate:
    """The group's kernel. Raises CodegenError where the group fits no template after all."""
    assert group.anchor is not None
    require_some(group)
    if is_integer_product(group.anchor):
        rendered, parameters = render_integer_product(group, name, locations)
        return CudaTemplate(rendered, tuple(argument for _, argument in parameters))
    return _render_gemm(group, name, locations)


def _render_gemm(group: Group, name: str, locations: list[str]) -> CudaTemplate:
    c = lower_contraction(group)
    output = buffer_of(c.root, is_output=True)
    p = matrix_product(c, output)
    m, n, k, batch = p.m, p.n, p.k, p.batch_index
    printer = CudaPrinter((*c.buffers, output), locations)
    epilogue = Epilogue(c, output, p.value, p.store, printer)

    def operand(load: Load, row: Var | None, column: Var | None) -> Operand:
        buffer: Buffer = c.buffer(load.buffer)
        return Operand(load.buffer, *map(printer.index, strides(load, buffer, row, column, batch)))

    def finish(total: str, row: str, column: str) -> str:
        return epilogue.print(total, p.named_place(row, column))

    columns, depth = printer.index(n.extent), printer.index(k.extent)
    weight = _integer_weight(c, columns, depth)
    if weight is None:
        b, right = operand(p.b, k, n), [p.b.buffer]
    else:
        b, right = Operand(weight.weight, "0", "1", weight.k), [weight.weight, weight.scale]
    parameters = epilogue.parameters([p.a.buffer], right)
    a = operand(p.a, m, k)
    spec = CudaGemmSpec(
        name=name,
        ctype=c.anchor.type.dtype.c_name,
        parameters=", ".join(text for text, _ in parameters),
        batch=tuple((p.batch_names[v], printer.index(v.extent)) for v in p.batch),
        m=printer.index(Index.of(1) if m is None else m.extent),
        n=columns,
        k=depth,
        a=a,
        b=b,
        prologue_b=weight.element if weight else None,
        fill_b=weight.fill() if weight else (),
        share_b=weight.share(a.at("row", "(k + j)")) if weight else (),
        epilogue=finish,
        comment=document(group),
    )
    rendered = render_gemv(spec) if is_single_row(spec) else render_gemm(spec)
    return CudaTemplate(rendered, tuple(argument for _, argument in parameters))


def _integer_weight(c: Contraction, n: str, k: str) -> IntegerWeight | None:
    """The weights of a linear_weight_only, which are integers and scales; None for other ops."""
    if c.anchor.target.name != "linear_weight_only":
        return None
    weight, scale = (buffer_name(node) for node in c.anchor.args[1:3])
    attributes = c.anchor.arguments
    group_size = attributes.get("group_size") or 0
    return IntegerWeight(weight, scale, n, k, attributes.get("bits", 8), group_size)
