"""The zoo under static int8: whatever a program does, what is prepared converts and is close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fxlite.passes import quantize as q
from fxlite.types.agreement import compare, sqnr
from tests.oracle import flatten
from tests.passes.quantize.helpers import everything
from tests.zoo import ZOO, Program


@pytest.mark.parametrize("prepare", [q.prepare, q.prepare_qat])
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_static_int8(program: Program, prepare: Any) -> None:
    gm, eager, inputs = program.trace()
    prepared = prepare(gm, everything(q.static_int8("minmax")))
    prepared(*inputs)
    made = q.convert(prepared)
    made.graph.lint(full=True)
    expected, actual = flatten(eager(*inputs)), flatten(made(*inputs))
    assert [a.dtype for a in actual] == [e.dtype for e in expected]
    floats = [i for i, e in enumerate(expected) if e.dtype.kind == "f" and np.any(e)]
    for i in floats:
        assert compare(expected[i], actual[i], sqnr(20)).agrees
    products = ("linear", "conv1d", "conv2d", "matmul")
    left = [k for k in q.report(made).kept if k.op in products]
    assert all("float32" in k.reason or "computed in the graph" in k.reason for k in left)
