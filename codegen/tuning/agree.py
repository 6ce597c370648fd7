"""Whether the candidates of a kernel compute the same value.

In: a kernel's candidates, built. Out: nothing, or an error that names the one that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxlite.base.errors import CodegenError
from fxlite.codegen.tuning.harness import Harness
from fxlite.codegen.tuning.result import Option
from fxlite.types.agreement import USUAL, compare

#: The part of the elements that may differ by more than the bound: where rounding decides, as in
#: floor(x), a few do.
ODD_ELEMENTS = 1e-3


def check_outputs(
    harness: Harness, options: Sequence[Option], matmul_precision: str, odd: float = ODD_ELEMENTS
) -> None:
    """Raise CodegenError, naming the kernel and the candidate, unless all compute the same."""
    chain = replace(harness.chain.at_least(USUAL), precision=matmul_precision)
    for number, option in enumerate(options[1:], start=1):
        found = compare(harness.output(0), harness.output(number), chain=chain)
        if found.wrong > odd * found.size:
            raise CodegenError(
                f"{harness.result.describe()}: autotune: {option.name} computes another value than "
                f"the model's choice: {found}; one of the two is wrong: please report it, and "
                "compile without autotune= meanwhile"
            )
