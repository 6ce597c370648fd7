"""The right operand of a product with integer weights, for CUDA's template of float products.

In: a linear_weight_only. Out: C text that reads its weights. They stay integers in memory and are
unpacked and scaled in registers, on the way to the tile in shared memory: 32 bits at a time (four
i8 or eight int4) where rows and groups are made of whole words, else one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxlite.codegen.cuda.gemm import SLICE
from fxlite.codegen.cuda.gemm_text import THREADS, TILE, atom


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
