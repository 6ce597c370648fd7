"""The C function that counts the values of a call before anything is computed.

In: the values to count (:mod:`fxlite.codegen.program.value_sizes`). Out: ``NAME_largest_bytes``,
which callers of a model may ask and which its other functions ask themselves. It computes in
double, which does not wrap; that a size near 2^53 is rounded does not matter beside powers of two.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.text import wrap
from fxlite.codegen.runtime.abi import Dim
from fxlite.codegen.runtime.sizes import ValueSize

SIZE_DOCUMENTATION = """\
/** Bytes of the largest value that a call with these sizes stores; -1 if no such call is possible,
 * since a size is negative, or one has more than 2^47 bytes (2^56 where it is not stored). */"""


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
        shape = ", ".join(map(real_c, value.shape))
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


def real_c(dim: Dim) -> str:
    """A dim as C over doubles."""
    return str(dim) if isinstance(dim, int) else dim.real_c(dim_name)


def divisors(dim: Dim) -> tuple[Dim, ...]:
    """What a dim divides by, which has to be positive, inner ones first."""
    return () if isinstance(dim, int) else dim.divisors
