"""Sensitivities: against converted models with one layer quantized, and how they print."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.passes import quantize as q
from tests import models
from tests.passes.quantize.helpers import draw
from tests.roofs import ROOFS
from tests.zoo.registry import by_name, fill
from tutorials import digits

IMAGES = [np.random.default_rng(i).uniform(0, 1, (8, 1, 8, 8)).astype(np.float32) for i in (0, 1)]


@pytest.fixture(scope="module")
def traced() -> fx.GraphModule:
    return fx.symbolic_trace(digits.trained(), x="f32[B,1,8,8]")


@pytest.fixture(scope="module")
def bert() -> tuple[fx.GraphModule, list[Any]]:
    gm = fx.symbolic_trace(fill(models.Bert(1, 32, 2)), tokens="i64[B,T]", mask="i64[B,T]")
    tokens = np.random.default_rng(0).integers(0, 1000, (3, 9))
    return gm, [(tokens, np.ones((3, 9), np.int64))]


def test_digits_print(traced: fx.GraphModule) -> None:
    found = q.sensitivity(traced, IMAGES, roofs=ROOFS)
    assert str(found) == DIGITS


DIGITS = """\
layer  ops     static_int8  dynamic_int8  weight_only_int8  weight_only_int4
conv1  conv2d      43.4 dB       41.2 dB           44.4 dB           20.7 dB
conv2  conv2d      40.1 dB       40.7 dB           42.0 dB           19.5 dB
fc     linear      46.6 dB       46.8 dB           47.6 dB           29.3 dB
SQNR of each layer's result, with that layer alone quantized

all float: 39,720 bytes, at least 5.46 µs
all static_int8: 10,336 bytes, at least 1.37 µs
all dynamic_int8: 10,336 bytes, at least 1.86 µs
all weight_only_int8: 10,336 bytes, at least 5.31 µs
all weight_only_int4: 6,520 bytes, at least 5.29 µs
times: what the measured rates of made up allow, 2 threads, B=8"""


def check_against_converted(gm: fx.GraphModule, batches: list[Any], found: q.Sensitivity) -> int:
    """Each ratio is that of the converted model in which that layer alone is quantized, and so are
    the bytes. Returns how many were compared."""
    count = 0
    for layer in found.layers:
        for scheme, config in found.schemes.items():
            if scheme not in layer.choices or not layer.path:
                continue
            mapping = q.QConfigMapping()
            for other in found.layers:  # also those inside the layer
                mapping.set_module_name(other.path, config if other is layer else None)
            made = q.quantize(gm, mapping, batches)
            expected = q.results_sqnr(gm, made, batches)
            assert layer.choices[scheme].sqnr == pytest.approx(expected, abs=0.2)
            saved = layer.choices["float"].bytes - layer.choices[scheme].bytes
            report = q.report(made)
            assert report.bytes_before - report.bytes_after == saved
            count += 1
    return count


def test_of_digits_output(traced: fx.GraphModule) -> None:
    found = q.sensitivity(traced, IMAGES, of="output", roofs=ROOFS)
    assert check_against_converted(traced, IMAGES, found) == 12


def test_of_a_transformers_output(bert: tuple[fx.GraphModule, list[Any]]) -> None:
    gm, batches = bert
    schemes = ("dynamic_int8", "static_int8", "weight_only_int4")
    found = q.sensitivity(gm, batches, schemes, of="output", roofs=ROOFS)
    assert check_against_converted(gm, batches, found) > 20


def test_of_layers(bert: tuple[fx.GraphModule, list[Any]]) -> None:
    """All layers and schemes from one run: the first layers' ratios are the same as of the results
    of a model that ends there, and what stays float is named with the reason."""
    gm, batches = bert
    found = q.sensitivity(gm, batches, roofs=ROOFS)
    assert [layer.path for layer in found.layers] == [
        "words",
        "layers.0.query",
        "layers.0.key",
        "layers.0.value",
        "layers.0",
        "layers.0.dense",
        "layers.0.up",
        "layers.0.down",
    ]
    attention = found.layers[4]
    assert set(attention.choices) == {"float", "static_int8"} and attention.ops == ("matmul",)
    assert "static_int8 quantizes" in attention.refused["weight_only_int4"]
    for layer in found.layers:
        ratios = [choice.sqnr for choice in layer.choices.values()]
        assert ratios[0] == math.inf and all(20 < ratio < 60 for ratio in ratios[1:])
        if len(layer.ops) == 1 and layer.ops[0] == "linear":
            static, _, weights8, weights4 = ratios[1:]
            assert static < weights8 + 0.5 and weights4 < weights8 - 15
    first = next(iter(found.sqnr("static_int8").items()))
    assert first == ("words", found.layers[0].choices["static_int8"].sqnr)
    for method in (found.sqnr, found.bytes, found.seconds):
        with pytest.raises(q.QConfigError, match="did you mean static_int8"):
            method("static_int")


def test_costs(traced: fx.GraphModule) -> None:
    """Bytes are those of integers and scales, times those of the roofs for the first batch."""
    fc = q.sensitivity(traced, IMAGES, roofs=ROOFS).layers[-1]
    weights = 10 * 512
    assert {scheme: choice.bytes for scheme, choice in fc.choices.items()} == {
        "float": 4 * weights,
        "static_int8": weights + 40,
        "dynamic_int8": weights + 40,
        "weight_only_int8": weights + 40,
        "weight_only_int4": weights // 2 + 4 * weights // 32,
    }
    x, result, rate = 8 * 512, 8 * 10, 1e11  # elements, and bytes a second of the made-up cache
    assert fc.choices["float"].seconds == pytest.approx((4 * (x + weights + 10 + result)) / rate, rel=1e-6)
    assert fc.choices["static_int8"].seconds == pytest.approx((x + weights + 40 + result) / rate)
    assert fc.choices["dynamic_int8"].seconds == pytest.approx((x + 4 * x + x + weights + 40 + 4 * result) / rate)


def test_several_static_schemes(traced: fx.GraphModule) -> None:
    """Each has ranges of its own."""
    schemes = {"all": q.static_int8("minmax"), "most": q.static_int8("percentile", percentile=80)}
    found = q.sensitivity(traced, IMAGES, schemes, roofs=ROOFS)
    for layer in found.layers:
        assert layer.choices["all"].sqnr > layer.choices["most"].sqnr + 10


def test_integers_that_are_handed_on() -> None:
    """The scale of what a split, a permute and a factor hand on, in the model's own forward."""
    gm, _, inputs = by_name("transformer_block").trace()
    found = q.sensitivity(gm, [inputs], ("static_int8",), roofs=ROOFS)
    assert [layer.path for layer in found.layers] == ["qkv", "", "out", "up", "down"]
    assert all(layer.choices["static_int8"].sqnr > 25 for layer in found.layers)


def test_a_layer_that_gives_zeros() -> None:
    class Zeros(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(32, 4, bias=False)
            self.fc.weight[:] = 0

        def forward(self, x: Any) -> Any:
            return self.fc(x)

    gm = fx.symbolic_trace(Zeros().eval(), x="f32[B,32]")
    (layer,) = q.sensitivity(gm, [draw((3, 32))], roofs=ROOFS).layers
    assert all(choice.sqnr == math.inf for choice in layer.choices.values())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batches": []}, q.QuantizationError, "there are no batches"),
        ({"batches": IMAGES[0]}, q.QuantizationError, r"not one array: give \[array\]"),
        ({"schemes": ("static_int",)}, q.QConfigError, "did you mean static_int8"),
        ({"schemes": ()}, q.QConfigError, "there are no schemes"),
        ({"schemes": ("bf16",)}, q.QConfigError, "bf16 is a cast"),
        ({"schemes": {"float": "static_int8"}}, q.QConfigError, "two schemes are called 'float'"),
        ({"schemes": (q.weight_only_int4(32), q.weight_only_int4(64))}, q.QConfigError, "a dict"),
        ({"of": "model"}, q.QConfigError, 'of is "layer" or "output"'),
    ],
)
def test_what_is_refused(
    traced: fx.GraphModule, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        q.sensitivity(traced, **{"batches": IMAGES, "roofs": ROOFS, **arguments})


def test_a_report_is_coloured_by_it(traced: fx.GraphModule) -> None:
    found = fx.report(traced, profile=False, backend="python", sqnr={"conv1": 44.2, "fc": 27.6})
    page = found.to_html()
    assert '"SQNR"' in page and "27.6 dB" in page
    assert '"SQNR"' not in fx.report(traced, profile=False, backend="python").to_html()


def test_weights_that_are_no_numbers(traced: fx.GraphModule) -> None:
    gm = traced.copy()
    weight = np.array(gm.get_attribute("fc.weight"))
    weight[0, 0] = np.nan
    gm.set_attribute("fc.weight", weight)
    with pytest.raises(q.QuantizationError, match=r"the weight fc\.weight holds 1 numbers"):
        q.sensitivity(gm, IMAGES, roofs=ROOFS)


def test_a_program_without_products() -> None:
    gm = fx.symbolic_trace(lambda x: np.tanh(x), x="f32[B,4]")
    with pytest.raises(q.QuantizationError, match="has no products"):
        q.sensitivity(gm, [draw((2, 4))], roofs=ROOFS)
