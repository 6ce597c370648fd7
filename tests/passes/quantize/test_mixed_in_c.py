"""Mixed precision in C: float products whose results are quantized in the same kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.codegen.c.selftest import compiled_chain, rounds_computed_floats
from fxlite.passes import quantize as q


class Three(nn.Module):
    """Three layers with relu between them."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.first, self.second, self.third = layer(), layer(), layer()

    def forward(self, x: Any) -> Any:
        return self.third(F.relu(self.second(F.relu(self.first(x)))))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(40, 40), (7, 40)),
        (lambda: nn.Conv2d(6, 6, 3, padding=1), (2, 6, 12, 12)),
        (lambda: nn.Conv2d(40, 40, 1), (2, 40, 5, 5)),
    ],
    ids=["linear", "conv 3x3", "conv 1x1"],
)
def test_a_float_product_whose_result_is_quantized(layer: Any, shape: tuple[int, ...]) -> None:
    # its sums and its packed weight are floats though the kernel writes u8
    model = Three(layer).eval()
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    gm = fx.symbolic_trace(model, x=f"f32[{','.join(map(str, shape))}]")
    mapping = q.QConfigMapping().set_global(q.static_int8()).set_module_name("second", None)
    mixed = q.convert(_calibrated(gm, mapping, x))
    compiled = fx.compile(mixed)
    names = [[node.target.name for node in kernel.nodes] for kernel in compiled.kernels]
    assert any({"linear", "conv2d"} & set(found) and "quantize" in found for found in names)
    expected = mixed(x)
    step = np.abs(expected).max() / 127  # a value near a half may be rounded the other way
    np.testing.assert_allclose(compiled(x), expected, atol=step)
    assert np.mean(np.abs(compiled(x) - expected) < 1e-5) > 0.9


def test_what_may_be_rounded_the_other_way_is_known() -> None:
    gm = fx.symbolic_trace(Three(lambda: nn.Linear(8, 8)).eval(), x="f32[4,8]")
    x = np.ones((4, 8), np.float32)
    static = q.QConfigMapping().set_global(q.static_int8())
    dynamic = q.QConfigMapping().set_global(q.dynamic_int8())
    for mapping in (static, dynamic):
        assert not rounds_computed_floats(q.convert(_calibrated(gm, mapping, x)).graph)
    mixed = q.convert(_calibrated(gm, static.set_module_name("second", None), x))
    assert rounds_computed_floats(mixed.graph)
    assert compiled_chain(mixed.graph, [{}]).precision == "int8"
    assert compiled_chain(gm.graph, [{}], "medium").precision == "medium"


def _calibrated(gm: fx.GraphModule, mapping: q.QConfigMapping, x: Any) -> fx.GraphModule:
    prepared = q.prepare(gm, mapping)
    prepared(x)
    return prepared
