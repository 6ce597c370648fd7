"""QConfigMapping and the presets: precedence, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.passes import quantize as q
from fxlite.passes.quantize.schemes.mapping import resolve
from tests.graphs import ops_of
from tests.passes.quantize.helpers import draw, everything, quantized


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return np.tanh(self.fc(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Inner()
        self.second = Inner()
        self.out = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.out(self.second(np.maximum(self.first(x), 0)))


def traced() -> fx.GraphModule:
    return fx.symbolic_trace(Net().eval(), x="f32[B,8]")


STATIC, DYNAMIC, WEIGHTS = q.static_int8("minmax"), q.dynamic_int8(), q.weight_only_int8()


def chosen(mapping: q.QConfigMapping) -> dict[str, str]:
    """Module path -> name of the config of its linear layer."""
    gm = traced()
    found = resolve(mapping, gm.graph).qconfigs
    return {
        n.scope.path: qconfig.name if qconfig is not None else "float"
        for n, qconfig in found.items()
        if n.target.name == "linear" and n.scope is not None
    }


def test_later_kinds_of_rules_are_stronger() -> None:
    mapping = q.QConfigMapping().set_global(STATIC)
    assert set(chosen(mapping).values()) == {"static_int8"}
    mapping.set_object_type(nn.Linear, DYNAMIC)
    assert set(chosen(mapping).values()) == {"dynamic_int8"}
    mapping.set_module_name_regex(r"first\..*|second\.fc", WEIGHTS)
    assert chosen(mapping) == {"first.fc": "weight_only_int8", "second.fc": "weight_only_int8", "out": "dynamic_int8"}
    mapping.set_module_name("second", None)
    assert chosen(mapping)["second.fc"] == "float"
    mapping.set_module_name("second.fc", STATIC)  # the innermost
    assert chosen(mapping)["second.fc"] == "static_int8"


def test_of_several_regexes_the_first_counts() -> None:
    mapping = q.QConfigMapping().set_module_name_regex("first", STATIC)
    mapping.set_module_name_regex("f.*", DYNAMIC)
    assert chosen(mapping)["first.fc"] == "static_int8"


@pytest.mark.parametrize("object_type", [fx.ops.linear, "linear", F.linear, nn.Linear, "Linear"])
def test_a_type_is_an_op_or_a_class(object_type: Any) -> None:
    mapping = everything(None).set_object_type(object_type, STATIC)
    assert set(chosen(mapping).values()) == {"static_int8"}


def test_a_class_of_the_program_holds_for_what_is_in_it() -> None:
    mapping = everything(None).set_object_type(Inner, STATIC)
    assert chosen(mapping) == {"first.fc": "static_int8", "second.fc": "static_int8", "out": "float"}
    assert set(chosen(everything(None).set_object_type(Net, STATIC)).values()) == {"static_int8"}


def test_none_leaves_in_float_and_the_report_says_which_rule() -> None:
    made = quantized(traced(), everything(STATIC).set_module_name("second", None), draw((4, 8)))
    assert ops_of(made).count("int_linear") == 2
    (kept,) = q.report(made).kept
    assert kept.module == "second.fc" and kept.reason == "module name 'second' keeps it in float"


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (lambda: everything(STATIC).set_module_name("secnd", None), "did you mean second"),
        (lambda: everything(STATIC).set_object_type("lineer", None), "did you mean linear"),
        (lambda: everything(STATIC).set_object_type("Liner", None), "did you mean Linear"),
        (lambda: everything("static_in8"), "did you mean static_int8"),
        (lambda: everything(3), "name of a preset"),  # type: ignore[arg-type]
        (lambda: everything(STATIC).set_object_type(3, None), "an object type is an op"),
        (lambda: everything(STATIC).set_module_name_regex("(", None), "not a regular expression"),
        (lambda: STATIC, "give a QConfigMapping"),
        (lambda: everything(q.static_int8("minmx")), "did you mean minmax"),
        (lambda: q.Scheme(per="chanel"), "did you mean channel"),
        (lambda: q.Scheme(dtype="i16"), "there are i4, i8, u8"),
        (lambda: q.Scheme("u8", True), "must be affine"),
        (lambda: q.Scheme("i4", False), "must be symmetric"),
        (lambda: q.Scheme(per="group"), "go together"),
        (lambda: q.weight_only_int4(48), "group_size must be one of"),
        (lambda: q.Scheme(percentile=3), "percentile must be in"),
        (lambda: q.Scheme(averaging=0), "averaging must be in"),
        (lambda: q.QConfig("mine"), "say how weights are quantized"),
        (lambda: q.QConfig("mine", cast="f8"), "there are bf16, f16"),
        (lambda: q.QConfig("mine", weight=q.Scheme("u8", False)), "weights are symmetric"),
        (lambda: q.QConfig("mine", weight=q.Scheme(observer="entropy")), "minmax or of least mse"),
        (lambda: q.QConfig("mine", q.Scheme(), q.Scheme("i4", per="group", group_size=32)), "one scale for each row"),
        (lambda: q.QConfig("mine", q.Scheme(per="channel"), q.Scheme()), "static activations are"),
        (lambda: q.QConfig("mine", None, q.Scheme(), dynamic=True), "dynamic needs an activation"),
    ],
)
def test_what_does_not_exist_is_an_error(mapping: Any, message: str) -> None:
    with pytest.raises(q.QConfigError) as caught:
        q.prepare(traced(), mapping())
    assert message in str(caught.value)


def test_a_function_has_no_module_names() -> None:
    gm = fx.symbolic_trace(lambda x: x @ x, x="f32[4,4]")
    with pytest.raises(q.QConfigError, match="a function without modules"):
        q.prepare(gm, everything(STATIC).set_module_name("fc", None))


def test_names_are_text() -> None:
    for rule in ("set_module_name", "set_module_name_regex"):
        with pytest.raises(q.QConfigError, match=r"is text, such as 'layers.0.fc', not 3"):
            getattr(q.QConfigMapping(), rule)(3, STATIC)
    with pytest.raises(q.QConfigError, match=r"averaging must be in 0..1, not 'x'"):
        q.static_int8("moving_average", averaging="x")  # type: ignore[arg-type]
    with pytest.raises(q.QConfigError, match=r"an observer is for a Scheme.*not 'minmax'"):
        q.make_observer("minmax")  # type: ignore[arg-type]


def test_rules_that_match_nothing_are_in_the_report() -> None:
    mapping = everything(STATIC).set_module_name_regex("layer.*", None)
    mapping.set_object_type(nn.Conv2d, None)
    made = quantized(traced(), mapping, draw((4, 8)))
    report = q.report(made)
    assert report.unmatched == ("object type 'Conv2d'", "module name regex 'layer.*'")
    assert "matched nothing: module name regex 'layer.*'" in str(report)


def test_records_print_what_they_say() -> None:
    assert str(STATIC) == ("static_int8: activation u8 affine per tensor (minmax), weight i8 per channel (minmax)")
    assert str(q.weight_only_int4(64)) == "weight_only_int4: weight i4 per group of 64 (mse)"
    assert str(q.bf16()) == "bf16: bf16"
    text = repr(everything(STATIC).set_module_name("fc", None))
    assert "global: static_int8" in text and "module name fc: float" in text


def test_presets_by_name() -> None:
    assert everything("dynamic_int8").global_qconfig == q.dynamic_int8()
