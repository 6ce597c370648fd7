"""The C function that counts the values of a call before anything is computed.

In: the values to count (:mod:`fxlite.codegen.program.value_sizes`). Out: ``NAME_largest_bytes``,
which callers of a model may ask and which its other functions ask themselves. It computes in
double, which does not wrap; that a size near 2^53 is rounded does not matter beside powers of two.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxlite.codegen.kernel.text import wrap
from fxlite.codegen.program.names import dim_name
from fxlite.codegen.runtime.abi import Dim
from fxlite.codegen.runtime.sizes import ANY_VALUE, HOLLOW, STORED_VALUE, ValueSize


def _hexadecimal(power: int) -> str:
    """A power of two as a literal of C."""
    return f"0x1p{power.bit_length() - 1}"


SIZES_PREAMBLE = f"""\
/* Quotient and remainder of sizes, rounded down; NaN, which fits nowhere, for a divisor of 0. */
static inline double fx_size_div(double a, double b) {{ return b > 0 ? floor(a / b) : NAN; }}
static inline double fx_size_mod(double a, double b) {{ return a - fx_size_div(a, b) * b; }}

/* Enter the bytes of a value in those of the largest. False if there cannot be one: a size is
   negative, its bytes cannot be counted, or it has no elements but axes to loop over for hours. */
static bool fx_count(double *largest, bool stored, double bytes, int rank, const double *shape) {{
    double counted = bytes; /* with empty axes as one element */
    bool empty = false;
    for (int axis = 0; axis < rank; axis++) {{
        if (!(shape[axis] >= 0)) return false;
        if (shape[axis] >= 1) counted *= shape[axis];
        else empty = true;
    }}
    if (empty) return counted <= {_hexadecimal(HOLLOW)};
    if (counted > (stored ? {_hexadecimal(STORED_VALUE)} : {_hexadecimal(ANY_VALUE)})) return false;
    if (stored && counted > *largest) *largest = counted;
    return true;
}}
"""

SIZE_DOCUMENTATION = """\
/* Bytes of the largest value that a call with these sizes stores; -1 if no such call is possible,
   since a size is negative, or one has more than 2^47 bytes (2^56 where it is not stored). */"""


def size_signature(name: str, dims: Sequence[str]) -> str:
    """The function's head, without what follows it."""
    parameters = ", ".join(f"int64_t {dim_name(d)}" for d in dims)
    return f"int64_t {name}_largest_bytes({parameters or 'void'})"


def size_function(name: str, dims: Sequence[str], values: Sequence[ValueSize]) -> list[str]:
    """The function; nothing where no value has to be counted."""
    if not values:
        return []
    lines = [f"{size_signature(name, dims)} {{", "    double fx_largest = 0;"]
    for value in values:
        shape = ", ".join(map(_real, value.shape))
        stored = "true" if value.stored else "false"
        given = f"&fx_largest, {stored}, {value.itemsize}, {len(value.shape)}"
        call = f"fx_count({given}, (const double[]){{{shape}}})"
        lines += wrap(f"    if (!{call}) return -1;")
    return [*lines, "    return (int64_t)fx_largest;", "}", ""]


def size_check(name: str, dims: Sequence[str], values: Sequence[ValueSize], then: str) -> list[str]:
    """What begins a function that must not run at impossible sizes."""
    if not values:
        return []
    return [f"    if ({name}_largest_bytes({', '.join(map(dim_name, dims))}) < 0) {then};"]


def _real(dim: Dim) -> str:
    """A dim as C over doubles."""
    return str(dim) if isinstance(dim, int) else dim.real_c(dim_name)
