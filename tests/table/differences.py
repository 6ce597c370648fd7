"""Where fxlite is documented to differ from NumPy: one table, with a reason each.

A :class:`Difference` names rows and problems by regular expressions. tests/test_table.py runs the
example of each entry, and fails for one that no longer differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.table.rows import Row


@dataclass(frozen=True)
class Difference:
    """``rows`` is searched in a row's label, ``problem`` in ``rung: what differs``; ``example`` is
    one such row."""

    rows: str
    problem: str
    reason: str
    example: Row

    def explains(self, label: str, problem: str) -> bool:
        """Whether it says why this row has this problem."""
        return bool(re.search(self.rows, label) and re.search(self.problem, problem))


def _row(function: str, text: str, *types: str, roles: str = "hard", size: int = 9) -> Row:
    return Row(function, text, types, tuple(roles.split()), (size,))


KNOWN: tuple[Difference, ...] = (
    Difference(
        r"2\*\*(63|70).*=bool",
        r"too large to convert to C long",
        "any number but 0 is True; NumPy has ints beyond int64 for no array of bools",
        _row("full_like", "np.full_like(a, 2**70)", "bool[N]"),
    ),
    Difference(
        r"\[(a|b)=bf16|=bf16\[",
        r"expected number, got int|'positive' did not contain",
        "ml_dtypes refuses an int beyond int64 beside bfloat16; it is a float here",
        _row("add", "np.add(a, 2**70)", "bf16[N]"),
    ),
    Difference(
        r"maximum|minimum|clip|max\(|min\(|relu",
        r"values differ: at \d+, \S*-?0\.0\)? where NumPy has \S*-?0\.0\)?$",
        "which of two zeros of different sign is larger is open; NumPy differs between dtypes",
        _row("clip", "np.clip(a, None, -0.0)", "f16[N]"),
    ),
    Difference(
        r"full_like\(",
        r"^trace: refused.*does not fit",
        "a float out of an integer's range has no value; NumPy leaves it to the processor",
        _row("full_like", "np.full_like(a, np.nan)", "u8[N]"),
    ),
    Difference(
        r"pad\(.*(nan|inf|1e)",
        r"^trace: refused.*does not fit",
        "a float out of an integer's range has no value; NumPy leaves it to the processor",
        _row("pad", "np.pad(a, 2, constant_values=np.nan)", "u8[N]"),
    ),
    Difference(
        r"cumsum\(",
        r"b?f(loat)?16|values differ",
        "sums of 16-bit floats are float32, rounded once; NumPy's cumsum rounds at each step",
        _row("cumsum", "np.cumsum(a)", "f16[N]", roles="mild", size=1037),
    ),
    Difference(
        r"(sum|prod|var|std|mean|norm|dot|einsum|matmul|multiply.reduce|@).*(bf16|f16|float16)",
        r"values differ",
        "sums of 16-bit floats are float32, rounded once; NumPy rounds more often",
        _row("sum", "np.sum(a)", "bf16[1000]", roles="mild"),
    ),
    Difference(
        r"np.u?int8\(\d+\)",
        r"^trace: refused.*(writing into a part|copyto).*does not fit",
        "a NumPy number that does not fit is refused by every write; some of NumPy's wrap it",
        _row("copyto", "y = a.copy()\nnp.copyto(y, np.uint8(200))\ny", "i8[N]"),
    ),
    Difference(
        r"(norm|round)\(.*bf16",
        r"dtype (bfloat16|float32), NumPy has (float64|bfloat16)",
        "NumPy's norm and round do not take bfloat16 for a float",
        _row("norm", "np.linalg.norm(a)", "bf16[7]", roles="mild"),
    ),
    Difference(
        r"dot\(.*bf16",
        r"dtype float32, NumPy has bfloat16",
        "products of bfloat16 are float32, as NumPy's matmul has them; its dot rounds them",
        _row("dot", "np.dot(a, a)", "bf16[7]", roles="mild"),
    ),
    Difference(
        r"einsum\(.*bf16",
        r"invalid data type for einsum",
        "NumPy's einsum does not know bfloat16",
        _row("einsum", "np.einsum('i,i', a, b)", "bf16[7]", "i8[7]", roles="mild mild"),
    ),
    Difference(
        r"einsum\(",
        r"values differ: at \d+, \S*-?0\.0\)? where NumPy has \S*-?0\.0\)?$",
        "NumPy's einsum adds each product to 0, which turns -0.0 into 0.0",
        _row("einsum", "np.einsum('i,i->i', a, b)", "bool[7]", "f64[7]", roles="mild mild"),
    ),
    Difference(
        r"power\(|\*\*",
        r"^(kernel|c|cuda): computes int\d+, where NumPy raises ValueError: Integers to negative",
        "NumPy refuses negative exponents by their values; compiled code has 0, 1 or -1 for them",
        _row("power", "np.power(a, b)", "i8[4]", "i8[4]", roles="mild mild"),
    ),
    Difference(
        r"einsum\(.*dtype=|(var|std)\(.*dtype=np\.(u?int|bool)",
        r"^trace: refused",
        "einsum with dtype= and variances in integers are not traced",
        _row("einsum", "np.einsum('ij', a, dtype=np.float64)", "f32[5,5]", roles="mild"),
    ),
    Difference(
        r"(matmul|concatenate|stack|where|dot|einsum|clip).*bf16",
        r"^trace: refused.*no common dtype",
        "NumPy and ml_dtypes have no common dtype of bfloat16 and this one, but for ufuncs",
        _row("matmul", "np.matmul(a, b)", "bf16[7]", "i32[7]", roles="mild mild"),
    ),
)


def reason_of(label: str, problem: str) -> Difference | None:
    """The entry that explains a problem, or None."""
    return next((d for d in KNOWN if d.explains(label, problem)), None)
