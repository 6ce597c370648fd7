"""Plans as TOML: what is written, read back, edited; what is refused, with its line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import fxlite as fx
from fxlite.passes import quantize as q
from fxlite.passes.quantize.planning.mixed_plan import plan_text
from fxlite.passes.quantize.planning.sensitivity import Choice
from tests import models
from tests.zoo.registry import fill
from tutorials import digits

TEXT = """\
# How Digits is quantized: a scheme for each layer, by the path of its module;
# "float" leaves it as it is. Behind a layer: SQNR of the quantized layer alone, weights
# and estimated time in float and now.
# measured: SQNR of the results 31.2 dB, weights 39,720 → 15,000 bytes, metric 0.99 → 0.98

# Where there is no layer: the model's own forward, and modules without products
elsewhere = "static_int8"

[schemes]
static_int8 = { preset = "static_int8", observer = "percentile", percentile = 99.9 }
int4 = { preset = "weight_only_int4", group_size = 64 }

[layers]
conv1 = "float"  # 576 bytes
conv2 = "static_int8"  # 38.7 dB, 18,432 → 4,736 bytes, 326 µs → 80.4 µs
fc = "int4"  # exact, 20,480 → 2,880 bytes
"""


@pytest.fixture(scope="module")
def traced() -> fx.GraphModule:
    return fx.symbolic_trace(digits.trained(), x="f32[B,1,8,8]")


def made() -> q.Plan:
    inf = math.inf
    conv1, conv2, fc = (Choice(inf, n, s) for n, s in ((576, 1e-5), (18432, 3.26e-4), (20480, None)))
    return q.Plan(
        "Digits",
        {"static_int8": q.static_int8("percentile", percentile=99.9), "int4": q.weight_only_int4(64)},
        (
            q.PlannedLayer("conv1", "float", conv1, conv1),
            q.PlannedLayer("conv2", "static_int8", Choice(38.66, 4736, 8.04e-5), conv2),
            q.PlannedLayer("fc", "int4", Choice(inf, 2880, None), fc),
        ),
        q.PlannedLayer("", "static_int8"),
        q.Measured(31.2, 15000, 39720, 0.98, 0.99),
    )


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(text)
    return path


def test_what_is_written(traced: fx.GraphModule, tmp_path: Path) -> None:
    made().save(tmp_path / "plan.toml")
    assert (tmp_path / "plan.toml").read_text() == TEXT
    loaded = q.load_plan(tmp_path / "plan.toml", traced)
    assert loaded.schemes == made().schemes and loaded.elsewhere == made().elsewhere
    assert [(x.path, x.scheme) for x in loaded.layers] == [(x.path, x.scheme) for x in made().layers]
    assert repr(loaded.qconfig_mapping()) == repr(made().qconfig_mapping())
    assert loaded.sqnr() == {} and made().sqnr() == {"conv2": 38.66, "fc": math.inf}


def test_edited(traced: fx.GraphModule, tmp_path: Path) -> None:
    """A preset needs no entry among the schemes, what is elsewhere is float unless it is said, and
    other TOML for the same is the same."""
    text = "layers.conv1 = 'dynamic_int8'\nlayers.conv2 = \"float\"\nlayers.'fc' = \"bf16\""
    plan = q.load_plan(written(tmp_path, text), traced)
    assert [x.scheme for x in plan.layers] == ["dynamic_int8", "float", "bf16"]
    assert plan.schemes["dynamic_int8"] == q.dynamic_int8() and plan.elsewhere.scheme == "float"
    assert "conv1        dynamic_int8" in str(plan)


def test_paths_with_dots(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(fill(models.Bert(1, 32, 2)), tokens="i64[B,T]", mask="i64[B,T]")
    paths = [
        "words",
        "layers.0.query",
        "layers.0.key",
        "layers.0.value",
        "layers.0",
        "layers.0.dense",
        "layers.0.up",
        "layers.0.down",
    ]
    layers = tuple(q.PlannedLayer(path, "float") for path in paths)
    plan = q.Plan("Bert", {}, layers, q.PlannedLayer("", "float"))
    assert '\n"layers.0.query" = "float"\n' in plan_text(plan)
    assert q.load_plan(written(tmp_path, plan_text(plan)), gm) == plan
    refused = plan_text(plan).replace('"layers.0" = "float"', '"layers.0" = "weight_only_int8"')
    with pytest.raises(q.QConfigError, match=r"toml:\d+: layers\.0 cannot be weight_only_int8: both"):
        q.load_plan(written(tmp_path, refused), gm)
    unquoted = plan_text(plan).replace('"layers.0.query" =', "layers.1.query =")
    with pytest.raises(q.QConfigError, match=r'write paths in quotes: "encoder\.fc"'):
        q.load_plan(written(tmp_path, unquoted), gm)


def test_a_config_that_no_preset_gives() -> None:
    scheme = q.Scheme(per="tensor")
    odd = q.Plan("x", {"odd": q.QConfig("odd", None, scheme)}, (), q.PlannedLayer("", "odd"))
    with pytest.raises(q.QConfigError, match="'odd' is not a preset with changed options"):
        plan_text(odd)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("conv2 =", "conv3 =", r"plan\.toml:15: there is no layer 'conv3'; did you mean conv2"),
        ('conv1 = "float"', "", r"plan\.toml: no entry for conv1: add them"),
        ('fc = "int4"', 'fc = "int8"', r"plan\.toml:16: there is no scheme 'int8'; did you mean"),
        ('fc = "int4"', "fc = 4", r"plan\.toml:16: fc must be the name of a scheme, not 4$"),
        ('elsewhere = "static', 'elsewhere = "statik', r"toml:7: .*did you mean static_int8"),
        ("elsewhere =", "else =", r"toml:7: there is no entry 'else'; did you mean elsewhere"),
        ("group_size = 64", "group = 64", r"toml:11: there is no option 'group'; did you mean"),
        ("group_size = 64", "group_size = 7", r"plan\.toml:11: group_size must be one of"),
        ("percentile = 99.9", "percentile = 'x'", r"plan\.toml:10: "),
        ('preset = "weight_only_int4"', 'preset = "int4"', r"toml:11: there is no preset 'int4'"),
        ('{ preset = "weight_only_int4", group_size = 64 }', "4", r"toml:11: int4 must be"),
        ("int4 = {", "float = {", r'plan\.toml:11: "float" is what it says'),
        ("[layers]", "[layers", r"plan\.toml: this is not TOML: .*line 13"),
    ],
)
def test_what_is_refused(traced: fx.GraphModule, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(q.QConfigError, match=message):
        q.load_plan(written(tmp_path, TEXT.replace(old, new)), traced)


def test_bytes_that_are_no_text(traced: fx.GraphModule, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(q.QConfigError, match=r"plan\.toml: this is not TOML: .*can't decode"):
        q.load_plan(tmp_path / "plan.toml", traced)
