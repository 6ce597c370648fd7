"""C text of one linear layer with integer weights and float activations, and its epilogue over each
finished tile.

In goes a `WeightOnlySpec`, out comes a `Rendered`, as in `gemm.py`; the arithmetic is in
`tiles/weight_only.h`. Rows of activations that fit one tile are read in place and multiply integers
in registers; panels of weights are the tasks of the threads. More rows are a product of `gemm.py`,
whose right operand threads widen panel by panel. The number of rows decides when the program runs,
so results do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fxlite.codegen.c.product.gemm import render_product
from fxlite.codegen.c.product.gemm_spec import GemmSpec, Operand, ProductSpec, WidenedOperand, at_most
from fxlite.codegen.c.product.gemm_walk import FEW_ROWS, Place, Product, Tile
from fxlite.codegen.c.product.packed_operands import PANEL_COLUMNS, WORD, words_of
from fxlite.codegen.kernel.builder import (
    Argument,
    Pointer,
    Rendered,
    bare,
    parameter_names,
    spelled_argument,
    symbol,
    text_of,
)
from fxlite.scalar.index import Index

MANY = 12
"""Rows that are more than one tile on every target."""


@dataclass(frozen=True, kw_only=True)
class WeightOnlySpec(ProductSpec):
    """One product; m is not known to be 0, n and k are known, and not 0.

    a           the left operand; elements of a row are adjacent
    bits        8 or 4, of a weight
    group_size  weights along k that have one scale: k, or whole words of 4 bytes; the last group
                may be shorter
    weight      what `pack_integers` made of it
    scale       [k / group_size (rounded up), n] as `pack_b` packs it
    """

    a: Operand
    bits: int
    group_size: int
    weight: str
    scale: str

    @property
    def depth(self) -> int:
        """Steps of K."""
        assert self.k.constant is not None
        return self.k.constant

    @property
    def groups(self) -> int:
        """Groups of a row."""
        return -(-self.depth // self.group_size)

    def panel(self, of: str, number: Index) -> Pointer:
        """The weights, or scales, of a panel, which have ``panel_sizes``."""
        return Pointer(of) + number * symbol("panel_words" if of == self.weight else "panel_scales")

    @property
    def panel_sizes(self) -> dict[str, str]:
        """Names of the numbers of a panel, in C."""
        return {
            "panel_words": f"{words_of(self.depth, self.bits)}*{PANEL_COLUMNS}",
            "panel_scales": f"{self.groups}*{PANEL_COLUMNS}".removeprefix("1*"),
        }

    def repair(self, scaled: int, at: Place, tile: Pointer) -> str:
        """The call that mends what overflowed before it was scaled."""
        given: tuple[Argument, ...] = (
            scaled,
            at.rows,
            at.columns,
            self.k,
            self.group_size,
            self.a.start(at.row_0),
            self.a.row_stride,
            self.panel(self.weight, at.panel),
            self.panel(self.scale, at.panel),
            tile,
        )
        return f"repair_int{self.bits}({', '.join(map(spelled_argument, given))})"

    def about(self) -> str:
        """What the weight is, for the comment of a function."""
        grouped = f", one scale for each {self.group_size} of a row" if self.groups > 1 else ""
        return f"The weight has {self.bits} bits{grouped}."


def render_gemm_weight_only(spec: WeightOnlySpec) -> Rendered:
    """Print the function of one product, and before it the one for many rows where it may be."""
    if spec.m.constant is not None and spec.m.constant >= MANY:
        return _render_many(spec, spec.name)
    if at_most(spec.m, FEW_ROWS):
        return _FewRows(spec, None).render()
    return _FewRows(spec, _render_many(spec, f"{spec.name}_of_many_rows")).render()


def _render_many(spec: WeightOnlySpec, name: str) -> Rendered:
    """The product of floats. One scale for a column is multiplied with its sum, those of groups
    with the weights."""

    def finish(product: Product, at: Place) -> None:
        repaired = spec.repair(int(spec.groups > 1), at, at.sums)
        if spec.groups > 1:
            product.body.put(f"{repaired};")
            product.finish_rows(at, spec.epilogue)
            return
        product.body.put(f"const float *const factor = {repaired};")
        product.finish_rows(at, spec.epilogue, lambda i, j: f"({at.sum(i, j)} * factor[{bare(j)}])")

    def widen(panel: Index, k_0: Index, depth: Index, target: Pointer) -> str:
        scales = "0" if spec.groups == 1 else str(spec.panel(spec.scale, panel))
        given: tuple[Argument, ...] = (k_0, depth, spec.group_size, spec.panel(spec.weight, panel), scales, target)
        return f"widen_panel_int{spec.bits}({', '.join(map(spelled_argument, given))})"

    margin = 2 * (8 * WORD // spec.bits - 1)
    return render_product(
        GemmSpec(
            name=name,
            ctype="float",
            parameters=spec.parameters,
            batch=spec.batch,
            m=spec.m,
            n=spec.n,
            k=spec.k,
            a=spec.a,
            b=WidenedOperand(widen, margin, spec.panel_sizes),
            epilogue=spec.epilogue,
            comment=f"{spec.comment}\n{spec.about()}",
        ),
        finish,
    )


class _FewRows(Product):
    """One tile of rows; if there are more, ``many`` is called."""

    one_tile = True
    height = "up to TILE_ROWS rows"

    def __init__(self, spec: WeightOnlySpec, many: Rendered | None) -> None:
        super().__init__(spec, Tile("float", "float", 4))
        self.spec, self.many = spec, many
        if many is not None:
            self.workspace = many.workspace
            self.threads = "n_threads" in many.extra_parameters

    def declare(self) -> None:
        spec = self.spec
        for name, size in spec.panel_sizes.items():
            self.body.let(name, size)
        if self.many is not None:
            extra = self.many.extra_parameters
            given = ", ".join([*parameter_names(spec.parameters), *extra])
            with self.body.block(f"if ({text_of(spec.m)} > TILE_ROWS)"):
                self.body.put(f"{spec.name}_of_many_rows({given});")
                self.body.put("return;")

    def multiply(self, at: Place) -> None:
        spec = self.spec
        panels = spec.panel(spec.weight, at.panel), spec.panel(spec.scale, at.panel)
        at = replace(at, rows=self.body.let("rows", at.rows, "int"))
        rows = at.rows, at.columns, spec.k, spec.group_size, spec.a.start(), spec.a.row_stride
        self.body.call(f"multiply_scaled_int{spec.bits}", *rows, *panels, at.sums)
        self.body.put(f"{spec.repair(1, at, at.sums)};")

    def functions(self) -> list[str]:
        return []

    def function(self, before: list[str]) -> Rendered:
        made = super().function(before)
        if self.many is None:
            return made
        return Rendered(f"{self.many.text}\n{made.text}", made.workspace, made.extra_parameters)

    def about(self) -> list[str]:
        return [f"{self.spec.about()} It is packed in panels of {self.width} columns."]
