"""Whether the candidates of a kernel compute the same value.

In: a kernel's candidates, built. Out: nothing, or an error that names the one that differs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxlite.codegen.c.weights import Array
from fxlite.codegen.tuning.harness import Harness
from fxlite.codegen.tuning.result import Option
from fxlite.errors import CodegenError

#: Largest difference between candidates, as a part of the largest value, by dtype; and the part of
#: the elements that may differ by more: where rounding decides, as in floor(x), a few do.
TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 2e-2}
ODD_ELEMENTS = 1e-3


def check_outputs(
    harness: Harness, options: Sequence[Option], matmul_precision: str, odd: float = ODD_ELEMENTS
) -> None:
    """Raise CodegenError, naming the kernel and the candidate, unless all compute the same."""
    node = harness.result
    limit = TOLERANCE.get(node.type.dtype.name, 0)
    limit = max(limit, 2e-2) if matmul_precision == "medium" and limit else limit
    expected = harness.output(0).astype(np.float64)
    for number, option in enumerate(options[1:], start=1):
        found = harness.output(number).astype(np.float64)
        wrong = int(np.sum(_differs(expected, found, limit)))
        if wrong > odd * expected.size:
            raise CodegenError(
                f"{node.describe()}: autotune: {option.name} computes another value than the "
                f"model's choice in {wrong} of {expected.size} elements; one of the two is wrong: "
                "please report it, and compile without autotune= meanwhile"
            )


def _differs(expected: Array, found: Array, limit: float) -> Array:
    """Where numbers differ by more than ``limit`` times the largest, or only one is finite."""
    finite = np.isfinite(expected)
    scale = np.max(np.abs(expected[finite]), initial=0)
    with np.errstate(invalid="ignore"):
        same = (expected == found) | (np.isnan(expected) & np.isnan(found))
        return np.asarray(~(same | (np.abs(expected - found) <= limit * scale)))
