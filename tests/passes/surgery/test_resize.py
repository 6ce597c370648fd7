"""Axes that shrink: a program without some channels computes what it did with these at zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError
from fxlite.ops.op import Op, Tensor
from fxlite.passes.surgery.axes import Slot
from fxlite.passes.surgery.axis_rules import axis_graph


class Images(nn.Module):
    """Norm, depthwise and grouped convolutions, residual addition, concatenation, flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.point = nn.Conv2d(16, 8, 1)
        self.grouped = nn.Conv2d(16, 12, 1, groups=2)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.head = nn.Linear(6 * 16, 5)

    def forward(self, x: Any) -> Any:
        h = fx.ops.relu(self.bn(self.stem(x)))
        h = h + self.point(self.depthwise(h))
        h = self.grouped(fx.ops.concat([h, fx.ops.gelu(h)], axis=1))
        h = fx.ops.max_pool2d(self.up(h), 4)
        return self.head(h.reshape(h.shape[0], -1))


class Tokens(nn.Module):
    """A block of a transformer between two projections."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.out = nn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.out(x + self.down(fx.ops.gelu(self.up(x))))


def traced(net: nn.Module, **types: str) -> fx.GraphModule:
    generator = np.random.default_rng(1)
    net.eval()
    for value in net.state_dict().values():
        value[...] = generator.uniform(0.1, 1, value.shape)
    return fx.symbolic_trace(net, **types)


@pytest.fixture(scope="module")
def images() -> fx.GraphModule:
    return traced(Images(), x="f32[B,3,8,8]")


@pytest.fixture(scope="module")
def tokens() -> fx.GraphModule:
    return traced(Tokens(), x="f32[B,5,6]")


def run(gm: Any) -> Any:
    (x,) = gm.graph.placeholders
    generator = np.random.default_rng(0)
    return gm(generator.standard_normal((2, *x.type.shape[1:])).astype(np.float32))


def without(gm: fx.GraphModule, smaller: fx.GraphModule, slot: Slot, keep: list[int]) -> Any:
    """The result of the whole program with zeros where the smaller one has nothing."""
    zeroed = fx.GraphModule.__deepcopy__(gm, {})
    found = axis_graph(gm)
    groups = found.groups(slot)
    gone = np.setdiff1d(groups, groups[keep])
    for node in zeroed.graph.find_nodes(op="get_attr"):
        array = np.asarray(zeroed.get_attribute(node.target))
        old = next(n for n in gm.graph.nodes if n.name == node.name)
        for axis in range(array.ndim):
            lost = np.isin(found.groups(Slot(old, axis)), gone)
            np.moveaxis(array, axis, 0)[lost] = 0
    return run(zeroed)


@pytest.mark.parametrize(
    ("program", "name", "axis", "keep"),
    [
        ("images", "stem.weight", 0, [0, 2, 3, 7]),
        ("images", "grouped.weight", 0, [0, 1, 5, 6, 7, 9]),
        ("images", "head.weight", 1, [*range(16), *range(48, 80)]),
        ("images", "up.weight", 1, [5]),
        ("tokens", "up.weight", 0, [1, 4, 9]),
        ("tokens", "attention.out_proj.weight", 1, [2, 3, 6, 7]),
    ],
)
def test_as_with_zeros_in_every_rung(
    program: str, name: str, axis: int, keep: list[int], request: pytest.FixtureRequest
) -> None:
    gm = request.getfixturevalue(program)
    (weight,) = gm.graph.find_nodes(op="get_attr", target=name)
    smaller = passes.resize(gm, weight, axis, keep)
    smaller.graph.lint(full=True)
    assert smaller.state_dict().keys() == gm.state_dict().keys()
    expected = without(gm, smaller, Slot(weight, axis), keep)
    np.testing.assert_allclose(run(smaller), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fx.Interpreter(smaller).run(*_input(smaller)), run(smaller), 1e-4)
    report = smaller.meta["resized"]
    assert report.weights[name][1].shape[axis] == len(keep) and name in str(report)
    assert fx.symbolic_trace(smaller).graph == smaller.graph  # types as inference has them
    smaller.undo()
    assert smaller.graph == gm.graph
    np.testing.assert_array_equal(run(smaller), run(gm))


def _input(gm: fx.GraphModule) -> list[Any]:
    (x,) = gm.graph.placeholders
    generator = np.random.default_rng(0)
    return [generator.standard_normal((2, *x.type.shape[1:])).astype(np.float32)]


@pytest.mark.parametrize(
    ("program", "name", "axis", "keep", "text"),
    [
        ("images", "x", 1, [0], "x is an input"),
        ("images", "head.weight", 0, [0], "linear is a result"),
        ("images", "stem.weight", 2, [0], "has a window of that size"),
        ("images", "grouped.weight", 0, [0, 1, 2], "take the same number from each"),
        ("images", "head.weight", 1, [0], "position 0 belongs to one that is removed"),
        ("images", "stem.weight", 0, [1, 0], "ascending order"),
        ("images", "stem.weight", 0, [8], "positions 0 to 7"),
        ("images", "stem.weight", 0, [], "positions 0 to 7"),
        ("images", "stem.weight", 9, [0], "no axis 9"),
        ("images", "x", 0, [0], "a call decides"),
        ("tokens", "attention.out_proj.weight", 1, [0], "belongs to one that is removed"),
    ],
)
def test_refused_before_anything_changes(
    program: str, name: str, axis: int, keep: list[int], text: str, request: Any
) -> None:
    gm = request.getfixturevalue(program)
    before = {k: v.shape for k, v in gm.state_dict().items()}
    node = next(n for n in gm.graph.nodes if name in (n.target, n.name))
    with pytest.raises(ArgumentError, match=text):
        passes.resize(gm, node, axis, keep)
    assert {k: v.shape for k, v in gm.state_dict().items()} == before


def test_prune_channels(images: fx.GraphModule) -> None:
    """A quarter of each layer: coupled layers lose the same channels, grouped ones evenly."""
    made = passes.prune_channels(images, amount=0.25)
    shapes = {name: value.shape for name, value in made.state_dict().items()}
    assert shapes["stem.weight"][0] == shapes["point.weight"][0] == shapes["bn.bias"][0] == 6
    assert shapes["depthwise.weight"] == (12, 1, 3, 3) and shapes["grouped.weight"][0] == 10
    assert shapes["up.weight"][:2] == (10, 5) and shapes["head.weight"] == (5, 80)
    fn = fx.compile(made, backend="c")
    np.testing.assert_allclose(fn(*_input(made)), run(made), rtol=1e-3, atol=1e-3)
    with pytest.raises(passes.PassError, match="between 0 and 1"):
        passes.prune_channels(images, amount=1.5)
    kept = passes.prune_channels(images, amount=0.5, where="linear")
    assert kept.graph == images.graph
    assert "is a result" in str(passes.ledger(kept))


def test_the_least_important_go(images: fx.GraphModule) -> None:
    zeroed = fx.GraphModule.__deepcopy__(images, {})
    up = np.asarray(zeroed.get_attribute("up.weight"))
    head = np.asarray(zeroed.get_attribute("head.weight"))
    up[:, [1, 4]] = 0
    head.reshape(5, 6, 16)[:, [1, 4]] = 0
    where = "conv_transpose2d"
    made = passes.prune_channels(zeroed, amount=0.34, by="l2", where=where)
    kept = np.asarray(made.get_attribute("up.weight"))
    np.testing.assert_array_equal(kept, np.delete(up, [1, 4], axis=1))
    np.testing.assert_allclose(run(made), run(zeroed), rtol=1e-4)


def test_prune_heads(tokens: fx.GraphModule) -> None:
    made = passes.prune_heads(tokens, amount=0.5)
    assert made.get_attribute("attention.in_proj_weight").shape == (12, 8)
    assert made.get_attribute("attention.out_proj.weight").shape == (8, 4)
    assert run(made).shape == run(tokens).shape
    with pytest.raises(passes.PassError, match="not a scaled_dot_product_attention"):
        passes.prune_heads(tokens, amount=0.5, where="gelu")
    plain = traced(Images(), x="f32[B,3,8,8]")
    assert passes.prune_heads(plain).graph == plain.graph


def test_a_promise_to_change(images: fx.GraphModule) -> None:
    """Checked among others: the types of results, and a metric of the user."""
    seen: list[int] = []

    def channels(module: Any) -> float:
        seen.append(module.get_attribute("stem.weight").shape[0])
        return seen[-1] / 8

    for drop, is_kept in ((0.25, True), (0.2, False)):
        prune = passes.prune_channels.with_options(amount=0.25)
        manager = passes.PassManager(["fuse_conv_bn", prune.with_exactness(passes.changes(channels, drop)), "cse"])
        if is_kept:
            made = manager(images)
            assert made.get_attribute("stem.weight").shape[0] == 6
            assert "1 before, 0.75 after" in str(manager.report[1].verification)
        else:
            with pytest.raises(passes.VerificationError, match=r"was 1 before and is 0\.75 after"):
                manager(images)
    assert seen == [8, 6] * 2

    @passes.graph_pass(exactness="changes", name="cut_result")
    def cut_result(gm: fx.GraphModule) -> None:
        output = gm.graph.output_node()
        with gm.graph.inserting_before(output):
            output.args = (fx.ops.sum(fx.Proxy(output.args[0]), axis=1).node,)

    try:
        with pytest.raises(passes.VerificationError, match="cut_result"):
            passes.PassManager([cut_result])(images)
    finally:
        del passes.PASSES["cut_result"]
    assert str(passes.changes()) == "changes"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (lambda h: fx.ops.tril(h), "keeps a triangle of it"),
        (lambda h: fx.ops.argmax(h, axis=2), r"argmax.* needs all of it"),
        (lambda h: fx.ops.flip(h, axis=2), "picks its elements by number"),
        (lambda h: fx.ops.cumsum(h, axis=2), "needs all of it"),
        (lambda h: fx.ops.roll(h, 1, axis=2), "picks its elements by number"),
        (lambda h: h[:, :, ::2], "steps over it"),
        (lambda h: h[:, :, 1] + 1, "picks its elements by number"),
        (lambda h: fx.ops.softmax(h, axis=2), "needs all of it"),
        (lambda h: fx.ops.take(h, np.array([0, 3]), axis=2), "looks into it by number"),
    ],
)
def test_what_needs_its_elements_by_number_ties_them(program: Any, text: str) -> None:
    """A square value, so that no wrong size gives a wrong rule away."""

    with pytest.raises(ArgumentError, match=text):
        passes.resize(square(program), "fc_weight", 0, [0, 1, 2])


def square(program: Any) -> fx.GraphModule:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return fx.ops.sum(program(self.fc(x)))

    return traced(Net(), x="f32[B,4,4]")


def test_ops_of_ones_own() -> None:
    """An op is elementwise where what it is made of is; one of which nothing is known is not."""

    def rows_reversed(x: Tensor) -> Tensor:
        return x[..., ::-1]

    unknown = Op("gather", rows_reversed)
    unknown.infer(lambda x: x)
    with pytest.raises(ArgumentError, match=r"rows_reversed.* no rule for its axes \(axis 2"):
        passes.resize(square(unknown), "fc_weight", 0, [0, 1, 2])
    for name, expansion, text in (
        ("shares", lambda x: fx.ops.softmax(x, axis=-1), r"shares .*: node softmax.* needs all"),
        ("twice", lambda x: fx.ops.relu(x) * 2, ""),
    ):
        made = Op("composite", rows_reversed, name=name)
        made.infer(lambda x: x)
        made.expansion(expansion)
        if text:
            with pytest.raises(ArgumentError, match=text):
                passes.resize(square(made), "fc_weight", 0, [0, 1, 2])
        else:
            smaller = passes.resize(square(made), "fc_weight", 0, [0, 1, 2])
            assert smaller.get_attribute("fc.weight").shape == (3, 4)


def test_einsum_and_images_with_channels_last() -> None:
    """A square value: a wrong axis would fit, too."""
    made = passes.resize(square(lambda h: fx.ops.einsum([h, h], "bij,bkj->bik")), "fc_weight", 0, [1])
    assert made.get_attribute("fc.weight").shape == (1, 4)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)

        def forward(self, x: Any) -> Any:
            h = fx.ops.conv2d(x, self.one.weight, self.one.bias, layout="NHWC")
            h = fx.ops.max_pool2d(fx.ops.relu(h), 1, layout="NHWC")
            return fx.ops.sum(fx.ops.conv2d(h, self.two.weight, self.two.bias, layout="NHWC"), axis=3)

    gm = traced(Last(), x="f32[B,4,4,3]")
    (weight,) = gm.graph.find_nodes(op="get_attr", target="one.weight")
    made = passes.resize(gm, weight, 0, [0, 2, 3])
    assert made.get_attribute("two.weight").shape == (4, 3, 1, 1)
    np.testing.assert_allclose(run(made), without(gm, made, Slot(weight, 0), [0, 2, 3]), rtol=1e-4)
    pruned = passes.prune_channels(gm, amount=0.5, by="l2")
    assert pruned.get_attribute("two.weight").shape == (2, 2, 1, 1)


def test_what_an_op_does_for_its_size_is_followed_or_refused() -> None:
    """A slice of one element, of which the position goes; two maxima of channels; a stack."""
    made = passes.resize(square(lambda h: np.maximum(h, -h)), "fc_weight", 0, [1, 3])
    assert made.get_attribute("fc.weight").shape == (2, 4)
    gm = square(lambda h: fx.ops.stack([h, h * 2], axis=1))
    made = passes.resize(gm, "fc_weight", 0, [0, 3])
    (stack,) = made.graph.find("stack")
    assert str(stack.last.type) == "f32[B,2,4,2]"
    gm = square(lambda h: fx.ops.concat([h, h[:, :, 1:2]], axis=2))
    with pytest.raises(ArgumentError, match="axis 2 of node"):
        passes.resize(gm, "fc_weight", 0, [0, 2, 3])
    made = passes.resize(gm, "fc_weight", 0, [0, 1, 3])
    np.testing.assert_allclose(run(made), without(gm, made, Slot(weight_of(gm), 0), [0, 1, 3]), rtol=1e-4)


def weight_of(gm: fx.GraphModule) -> Any:
    return next(n for n in gm.graph.find_nodes(op="get_attr") if n.target == "fc.weight")


def test_flatten_and_parts() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(1, 6, 3), nn.Linear(12, 3)

        def forward(self, x: Any) -> Any:
            first, second = fx.ops.split(self.conv(x), (2, 4), axis=1)
            pair = fx.ops.concat([second, first[:, 1:]], axis=1)
            return self.fc(nn.functional.flatten(fx.ops.mean(pair, axis=3)[:, 1:], 1))

    gm = traced(Net(), x="f32[B,1,5,5]")
    (weight,) = gm.graph.find_nodes(op="get_attr", target="conv.weight")
    made = passes.resize(gm, weight, 0, [0, 1, 2, 5])
    assert made.get_attribute("fc.weight").shape[1] < 12
    np.testing.assert_allclose(run(made), without(gm, made, Slot(weight, 0), [0, 1, 2, 5]), rtol=1e-4)
