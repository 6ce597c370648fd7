"""Layers in place of others: what the program computes then, under which keys, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from tests.oracle import agree

X = np.random.default_rng(0).integers(0, 10, (2, 5))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc, self.act = nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU()

    def forward(self, x: Any) -> Any:
        return x + self.act(self.fc(self.norm(x)))


class Net(nn.Module):
    """Blocks, a layer that is called twice, a weight that two layers share, a function's relu."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
        self.layers, self.mix = nn.ModuleList([Block(), Block()]), nn.Linear(8, 8)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: Any) -> Any:
        h = self.embed(ids)
        for layer in self.layers:
            h = self.mix(layer(h))
        return self.head(fx.ops.relu(h))


def traced(tied: bool = False) -> fx.GraphModule:
    return fx.symbolic_trace(Net(tied).eval(), ids="i64[B,T]")


def set_submodule(net: Any, path: str, layer: Any) -> None:
    parent, _, name = path.rpartition(".")
    owner = net.get_submodule(parent)
    if isinstance(owner, nn.Sequential):
        owner[int(name)] = layer
    else:
        setattr(owner, name, layer)


def rms(place: passes.Place) -> nn.Module:
    layer = nn.RMSNorm(8)
    layer.weight = nn.Parameter(place.weights["weight"] * 1.5)
    return layer


@pytest.mark.parametrize(
    ("where", "paths", "layer"),
    [
        ("layers.*.norm", ["layers.0.norm", "layers.1.norm"], lambda: nn.RMSNorm(8)),
        (nn.ReLU, ["layers.0.act", "layers.1.act"], nn.GELU),
        ("layers.1.fc", ["layers.1.fc"], lambda: nn.Sequential(nn.Linear(8, 3), nn.Linear(3, 8))),
        ("mix", ["mix"], lambda: nn.Linear(8, 8, bias=False)),
        ("layers.0", ["layers.0"], nn.Identity),
        (["embed", "layers.0.norm"], ["embed", "layers.0.norm"], None),
        ("head", ["head"], lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 10))),
        ("Block", ["layers.0", "layers.1"], Block),
    ],
)
def test_as_if_the_program_had_been_written_so(where: Any, paths: list[str], layer: Any) -> None:
    """Graph, keys and results are those of a model in which the modules were exchanged."""
    net = Net().eval()
    gm = fx.symbolic_trace(net, ids="i64[B,T]")
    layers: dict[str, Any] = {}

    def make(place: passes.Place) -> Any:
        given = {"embed": nn.Embedding(10, 8), "layers.0.norm": nn.RMSNorm(8)}
        layers[place.path] = layer() if layer is not None else given[place.path]
        return layers[place.path]

    made = passes.swap(gm, where=where, make=make)
    made.graph.lint(full=True)
    assert list(layers) == paths
    for path, own in layers.items():
        set_submodule(net, path, own)
    expected = fx.symbolic_trace(net.eval(), ids="i64[B,T]")
    assert made.state_dict().keys() == expected.state_dict().keys()
    assert made.graph == expected.graph
    assert [n.module_path for n in made.graph.nodes] == [n.module_path for n in expected.graph.nodes]
    np.testing.assert_array_equal(made(X), expected(X))
    made.undo()
    assert made.graph == gm.graph and made.state_dict().keys() == gm.state_dict().keys()
    made.redo()
    np.testing.assert_array_equal(made(X), expected(X))


def test_in_every_back_end_and_a_manager() -> None:
    """Declared to change results; held to a bound by a metric of the user."""
    gm = traced()
    swap = passes.swap.with_options(where="layers.*.norm", make=rms)
    manager = passes.PassManager(["simplify", swap, "cse"])
    made = manager(gm)
    assert "rms_norm +2" in str(manager.report) and not made.graph.find("layer_norm")
    agree(made, X)
    worse = swap.with_exactness(passes.changes(lambda m: -np.abs(m(X) - gm(X)).max(), drop=1e-6))
    with pytest.raises(passes.VerificationError, match="after"):
        passes.PassManager([worse])(gm)


def test_places_that_are_no_modules() -> None:
    """A node goes under its module; nodes with weights under the path of these."""
    gm = traced()
    made = passes.swap(gm, where="#relu_2", layer=fx.ops.gelu)
    assert made.graph.find("gelu") and len(made.graph.find("relu")) == 2
    made = passes.swap(gm, where=gm.graph.find('linear:in("layers.0") > relu'), layer=nn.Linear(8, 8))
    assert "layers.0.fc.weight" in made.state_dict() and len(made.graph.find("relu")) == 2
    made = passes.swap(gm, where="add", make=lambda place: nn.Bilinear(8, 8, 8))
    assert {"layers.0.add.weight", "layers.1.add_1.bias"} < made.state_dict().keys()
    pair = fx.symbolic_trace(lambda x: fx.ops.concat(fx.ops.split(x, (1, 2), axis=0)), x="f32[3]")
    made = passes.swap(pair, where="split", layer=lambda x: (x[:1] * 2, x[1:]))
    made.graph.lint(full=True)
    np.testing.assert_array_equal(made(np.ones(3, np.float32)), [2, 1, 1])


def test_calls_that_read_each_other() -> None:
    layer = nn.Linear(4, 4)
    twice = fx.symbolic_trace(nn.Sequential(layer, layer, nn.ReLU(), layer), x="f32[B,4]")
    new = nn.Linear(4, 4)
    made = passes.swap(twice, where="0", layer=new)
    x = np.ones((2, 4), np.float32)
    assert list(made.state_dict()) == ["0.weight", "0.bias"]
    np.testing.assert_array_equal(made(x), nn.Sequential(new, new, nn.ReLU(), new)(x))


def test_a_weight_that_others_read_stays() -> None:
    gm = traced(tied=True)
    made = passes.swap(gm, where="embed", layer=nn.Embedding(10, 8))
    assert {"embed.weight", "embed_1.weight"} < made.state_dict().keys()
    (head,) = made.graph.find('linear:in("head")')
    assert head.last.args[1].target == "embed.weight"


def test_refused_before_anything_changes() -> None:
    gm = traced()
    before = gm.state_dict().keys()
    for where, options, text in (
        ("layers.*.fc", {"layer": nn.Linear(8, 8)}, "give make="),
        ("layers.0.fc", {"layer": nn.Linear(8, 9)}, r"makes f32\[B,T,9\].*layers.0.fc"),
        ("layers.0.fc", {"layer": nn.Linear(9, 8)}, "weight takes 9"),
        ("layers.0.fc", {"layer": nn.Linear}, r"is a class: give a layer, Linear\(...\)"),
        ("layers.0.fc", {"layer": lambda x, y: x + y}, "takes 2 .* reads 1: layer_norm"),
        ("layers.0.fc", {"layer": lambda x: (x, x)}, "returns 2 values"),
        ("layers.0.fc", {"layer": lambda x: fx.ops.cast(x, "f64")}, "DTypeError"),
        ("layers.0.fx", {"layer": nn.GELU()}, "'layers.0.fx'; did you mean layers.0.fc"),
        (["layers.0", "layers.0.fc"], {"layer": nn.GELU()}, "two of the places"),
        ("ids", {"layer": nn.GELU()}, "is not a call"),
        ("", {"layer": nn.GELU()}, "as a whole"),
        ([], {"layer": nn.GELU()}, "it is empty"),
        ("layers.0.fc", {}, "give either layer=, or make="),
        ("embed", {"layer": nn.GELU()}, r"gelu\(i64\[B,T\]\): x must be a float"),
    ):
        with pytest.raises(passes.PassError, match=text):
            passes.swap(gm, where=where, **options)
        assert gm.state_dict().keys() == before


def test_tied_and_apart_again() -> None:
    """Both keys hold one array, which shrinks as one; then each reader has its own."""
    gm = traced()
    tied = passes.tie_weights(gm, "embed.weight", "head.weight")
    assert tied.state_dict().keys() == gm.state_dict().keys()
    assert tied.head.weight is tied.embed.weight
    assert "head.weight" not in dict(tied.named_parameters())
    agree(tied, X)
    expected = Net()
    expected.load_state_dict(gm.state_dict())
    expected.head.weight = expected.embed.weight
    np.testing.assert_array_equal(tied(X), expected.eval()(X))
    smaller = passes.resize(tied, "#embed_weight", 1, range(7))
    assert smaller.embed.weight is smaller.head.weight and smaller.head.weight.shape == (10, 7)
    apart = passes.untie_weights(tied, "embed.weight")
    assert apart.head.weight is not apart.embed.weight
    np.testing.assert_array_equal(apart(X), tied(X))
    tied.undo()
    assert tied.head.weight is gm.head.weight


def test_untied_where_the_trace_has_one_weight() -> None:
    """A layer that is called twice goes on sharing; each other layer gets a copy of its own."""
    gm = traced(tied=True)
    assert "head.weight" not in gm.state_dict()
    apart = passes.untie_weights(gm, "embed.weight")
    apart.graph.lint(full=True)
    assert apart.state_dict().keys() == Net().state_dict().keys()
    np.testing.assert_array_equal(apart(X), gm(X))
    apart.undo()
    assert apart.graph == gm.graph
    for call, text in (
        (lambda: passes.untie_weights(gm, "mix.weight"), "is not tied: linear_1, linear_3"),
        (lambda: passes.tie_weights(gm, "mix.weight"), "give the weights that become mix.weight"),
        (lambda: passes.tie_weights(gm, "mix.weight", "mix.wait"), "did you mean mix.weight"),
    ):
        with pytest.raises(fx.errors.ArgumentError, match=text):
            call()
    with pytest.raises(fx.errors.ShapeError, match=r"mix.bias is f32\[8\], mix.weight is f32\[8,8\]"):
        passes.tie_weights(gm, "mix.weight", "mix.bias")


def test_several_weights_at_once() -> None:
    """A layer and its neighbour grow under their own names, together or not at all."""
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
    gm = fx.symbolic_trace(net, x="f32[B,4]")
    shapes = {"0.weight": (8, 4), "0.bias": (8,), "1.weight": (4, 8)}
    larger = {k: nn.Parameter(np.ones(s, np.float32)) for k, s in shapes.items()}
    for path, value in larger.items():
        with pytest.raises(fx.errors.ShapeError, match=r"0\.|1\."):
            gm.set_attributes({path: value})
    before = gm.graph.copy()
    with gm.graph.transaction("grow"):
        gm.set_attributes(larger)
    assert {k: v.shape for k, v in gm.state_dict().items() if k in shapes} == shapes
    gm.graph.lint(full=True)
    assert gm(np.ones((2, 4), np.float32))[0, 0] == 8 * 5 + gm.state_dict()["1.bias"][0]
    report = str(fx.diff(fx.symbolic_trace(net, x="f32[B,4]"), gm))
    assert "self[0].weight f32[6,4] → f32[8,4]" in report
    assert gm.undo() == "grow" and gm.graph == before and gm.get_attribute("0.bias").shape == (6,)
    assert gm.redo() == "grow" and gm.get_attribute("0.bias").shape == (8,)


def test_the_report_shows_shapes_of_weights() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    manager = passes.PassManager([passes.prune_channels.with_options(amount=0.25)])
    manager(fx.symbolic_trace(net, x="f32[B,3,8,8]"))
    resized = manager.report[0].resized
    assert {k: str(new) for k, (_, new) in resized.items()} == {
        "0.weight": "f32[6,3,3,3]",
        "0.bias": "f32[6]",
        "2.weight": "f32[4,6,1,1]",
    }
    assert "0.weight f32[8,3,3,3] → f32[6,3,3,3] and 2 more" in str(manager.report)
