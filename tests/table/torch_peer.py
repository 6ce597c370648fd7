"""Rows of float32 and int64 of :mod:`tests.table.functional` beside torch.nn.functional's results.

In: rows. Out: counts and findings, as of any rung; the rung is "torch". A peer, no reference: what
is known to differ stands in :data:`KNOWN`, with a reason each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.table.bounds import difference
from tests.table.check import Case, Counts, Finding, prepare
from tests.table.functional import functions
from tests.table.rows import Row

#: Arguments that torch's function does not have, and functions that torch does not have.
_OURS = r"layout=|attention_weights|causal_mask|np\.|functional\.(dropout|one_hot|embedding\(.*2)"
#: Where results differ and may: what is searched in "label: difference", and why.
KNOWN = {
    r"gelu\(.*inf\)": "torch's gelu of infinity is NaN on some vector units",
    r"hardswish\(": "torch multiplies by 6 before it divides, and overflows",
    r"(layer_norm|group_norm)\(.*where NumPy has \S*nan": "torch's statistics of 3.4e38 are NaN",
    r"functional.normalize\(a\).*\[7,1\]": "torch's norm of one number does not square it",
    r"softmax\(a, -1\).*f32\[\]": "an axis of a 0-d array is refused, as NumPy does",
    r"pool1d\(a, 2\)  \[a=f32\[3,9\]": "pooling takes batches",
    r"pad\(a, \(-1, 2\)\)": "padding by negative numbers is refused: slices say it",
    r"f32\[2,0,9\]": "torch returns no channels where there are none to add up",
    r"b=f32\[2,0,4\]": "torch's attention to no keys is NaN; sums of nothing are 0",
    r"torch refuses": "torch takes fewer types and sizes",
}


def rows() -> Iterator[Row]:
    """The rows that torch has, too."""
    for row in functions():
        kinds = " ".join(row.types)
        is_both = "f32" in kinds and not re.search("f16|f64|u[136]", kinds)
        if is_both and not re.search(_OURS, row.text):
            yield row


def check(given: Iterable[Row], counts: Counts) -> None:
    """Compare eager results with torch's, adding to ``counts``."""
    for row in given:
        case = prepare(row)
        counts.rows += 1
        for arrays, ours in zip(case.inputs, case.expected):
            problem = _problem(case, arrays, ours)
            counts.compared["torch"] += 1
            if problem is None:
                continue
            text = f"{row.label}: {problem}"
            known = next((r for p, r in KNOWN.items() if re.search(p, text)), None)
            if known is None:
                counts.findings.append(Finding(row, "torch", problem))
            else:
                counts.documented[known] += 1


def _torch_text(text: str) -> str:
    """The call as torch takes it."""
    return text.replace('gelu(a, "tanh")', 'gelu(a, approximate="tanh")').replace("norm(a, 1037", "norm(a, (1037,)")


def _problem(case: Case, arrays: list[Any], ours: Any) -> str | None:
    import torch
    import torch.nn.functional as functional

    elsewhere = ("flatten", "unflatten", "tanh", "sigmoid", "topk")
    space = {**vars(functional), **{name: getattr(torch, name) for name in elsewhere}}
    space = {"functional": SimpleNamespace(**space)}
    names = dict(zip("abcdefgh", (torch.from_numpy(np.array(a)) for a in arrays)))
    try:
        with np.errstate(all="ignore"):
            result = eval(_torch_text(case.row.text), {**space, **names})
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        if isinstance(ours, Exception):
            return None
        return f"torch refuses: {type(error).__name__}: {str(error).splitlines()[0]}"
    if isinstance(ours, Exception):
        return f"torch computes: {ours}"
    return difference(ours, result.numpy(), case.row.function)
