"""channels_last: which images it turns, what it makes of readers, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.ops.image.spatial import TO_LAST
from tests.oracle import compare


def calls(gm: fx.GraphModule, name: str) -> list[Any]:
    return gm.graph.find_nodes(op="call_function", target=name)


def layouts(gm: fx.GraphModule, name: str = "conv2d") -> list[str]:
    return [node.arguments.get("layout", "NCHW") for node in calls(gm, name)]


def changed(program: Any, *arrays: np.ndarray, types: Any = None) -> fx.GraphModule:
    """The pass's result, compared with the program, interpreted and as C with 1 and 3 threads."""
    if isinstance(program, nn.Module):
        program.eval()
    before = passes.decompose(fx.symbolic_trace(program, *(types or arrays)))
    after = passes.channels_last(before)
    after.graph.lint()
    expected = program(*arrays)
    compare("graph", fx.Interpreter(after).run(*arrays), expected)
    one, three = (fx.compile(after, threads=n, optimize=False)(*arrays) for n in (1, 3))
    compare("C", one, expected)
    np.testing.assert_array_equal(one, three)
    return after


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


class Residual(nn.Module):
    """An inverted residual with squeeze and excitation behind a stem, as in mobile networks."""

    def __init__(self, stem: int = 24, width: int = 48) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, stem, 3, stride=2, padding=1)
        self.wide = nn.Conv2d(stem, width, 1)
        self.deep = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.squeeze = nn.Conv2d(width, 8, 1)
        self.excite = nn.Conv2d(8, width, 1)
        self.narrow = nn.Conv2d(width, stem, 1)
        self.scale = nn.Parameter(np.ones((stem, 1, 1), np.float32) * 2)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(np.maximum(self.stem(x), 0), 3, 2, 1)
        y = np.maximum(self.deep(np.maximum(self.wide(x), 0)), 0)
        mean = F.adaptive_avg_pool2d(y, 1)
        y = y * F.sigmoid(self.excite(np.maximum(self.squeeze(mean), 0)))
        return np.concatenate([x + self.narrow(y) * self.scale, x], axis=1).mean(axis=(2, 3))


@pytest.mark.parametrize("size", ["f32[B,3,H,W]", "f32[2,3,27,22]", "f32[B,3,27,22]"])
def test_a_network_turns_one_image(size: str) -> None:
    after = changed(Residual(), image(2, 3, 27, 22), types=[size])
    assert layouts(after) == ["NCHW"] + ["NHWC"] * 5
    assert layouts(after, "max_pool2d") == ["NHWC"]
    images = [n for n in calls(after, "permute") if n.args[0].type.rank == 4]
    assert [n.kwargs["axes"] for n in images] == [TO_LAST]
    assert not any(n.type.rank == 4 for n in calls(after, "reshape"))
    (note,) = [entry for entry in passes.ledger(after) if "converted" in entry.reason]
    assert "converted to channels-last" in note.reason and note.node == "relu"


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.linear, self.other = nn.Linear(16 * 3 * 4, 10), nn.Linear(16 * 3 * 4, 10)

    def forward(self, x: Any) -> Any:
        rows = F.max_pool2d(np.maximum(self.conv(x), 0), 2).reshape(x.shape[0], -1)
        return self.linear(rows) * self.other(rows)


@pytest.mark.parametrize(("groups", "layout"), [(4, "NHWC"), (16, "NCHW")])
def test_groups_of_whole_vectors_follow_their_neighbours(groups: int, layout: str) -> None:
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(24, 128), nn.Conv2d(128, 40, 1)
            self.deep = nn.Conv2d(128, 128, 3, padding=1, groups=groups)

        def forward(self, x: Any) -> Any:
            return self.narrow(np.maximum(self.deep(self.wide(x).transpose(0, 3, 1, 2)), 0)).mean((2, 3))

    assert layouts(changed(Grouped(), image(1, 7, 7, 24)))[0] == layout


def test_tokens_that_become_an_image_are_channels_last_already() -> None:
    """As in vision transformers with depthwise convolutions: no image is turned."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)
            self.deep = nn.Conv2d(64, 64, 3, padding=1, groups=64)
            self.single = nn.Conv2d(64, 64, 1)

        def forward(self, x: Any) -> Any:
            y = self.wide(x).transpose(0, 2, 1).reshape(x.shape[0], 64, 5, 6)
            y = self.single(self.deep(y))
            return x + self.narrow(F.gelu(y.reshape(x.shape[0], 64, -1).transpose(0, 2, 1)))

    after = changed(Tokens(), image(2, 30, 32))
    assert layouts(after) == ["NHWC", "NHWC"]
    assert not [n for n in calls(after, "permute") if n.type.rank > 2]


def test_flattening_permutes_the_columns_of_linear_layers() -> None:
    after = changed(Flat(), image(5, 1, 6, 8), types=["f32[B,1,6,8]"])
    assert layouts(after) == ["NHWC"]
    weights = [n.args[1] for n in calls(after, "linear")]
    assert len(weights) == 2 and all(w.target.name == "reshape" for w in weights)
    assert not any(n.args[0].op == "placeholder" for n in calls(after, "permute"))


def test_a_flattened_image_with_another_reader_is_turned_back() -> None:
    class Read(Flat):
        def forward(self, x: Any) -> Any:
            rows = F.max_pool2d(np.maximum(self.conv(x), 0), 2).reshape(x.shape[0], -1)
            return self.linear(rows).sum(axis=-1, keepdims=True) + rows

    after = changed(Read(), image(2, 1, 6, 8))
    flat = next(n for n in calls(after, "reshape") if n.type.rank == 2)
    assert flat.args[0].type.shape == (2, 16, 3, 4)


def test_permutes_of_the_program_cancel() -> None:
    def program(x: Any) -> Any:
        y = F.max_pool2d(x.transpose(0, 3, 1, 2), 2)
        return np.tanh(y).transpose(0, 2, 3, 1)

    after = changed(program, image(2, 8, 10, 16))
    assert layouts(after, "max_pool2d") == ["NHWC"]
    assert not calls(passes.dce(after), "permute")


@pytest.mark.parametrize("width, layout", [(64, "NHWC"), (72, "NCHW")])
def test_winograd_of_broken_vectors_stays_channels_first_and_is_said(width: int, layout: str) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(256, width, 1)
            self.middle = nn.Conv2d(width, width, 3, padding=1)
            self.last = nn.Conv2d(width, 256, 1)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(x.transpose(0, 3, 1, 2), 3, 2)
            y = np.maximum(self.middle(np.maximum(self.first(x), 0)), 0)
            return (x + self.last(y)).sum(axis=(2, 3))

    after = changed(Mixed(), image(1, 29, 29, 256))
    assert layouts(after) == ["NHWC", layout, "NHWC"]
    reasons = " ".join(entry.reason for entry in passes.ledger(after))
    assert ("Winograd" in reasons and "converted to channels-last" in reasons) == (layout == "NCHW")


def test_what_does_not_pay_is_refused_with_its_price() -> None:
    pool = fx.symbolic_trace(lambda x: F.max_pool2d(x, 2), x="f32[1,8,64,64]")
    after = passes.channels_last(pool)
    assert after.graph == pool.graph
    (entry,) = passes.ledger(after)
    assert "converting images costs more" in entry.reason and entry.node == "max_pool2d"


@pytest.mark.parametrize(
    "program",
    [
        lambda x: np.tanh(F.max_pool2d(x, 3, 2)).max(axis=(2, 3), keepdims=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1).sum(axis=1),
        lambda x: F.max_pool2d(x, 3, 2).mean(axis=2),
        lambda x: F.max_pool2d(x, 3, 2).mean(),
        lambda x: F.max_pool2d(x, 3, 2) + x[:, :, :4, :5] + np.float32(2),
        lambda x: F.max_pool2d(x, 3, 2).argmax(axis=1),
        lambda x: ops.softmax(F.max_pool2d(x, 3, 2), axis=1) * F.max_pool2d(x, 3, 2),
        lambda x: np.where(F.max_pool2d(x, 3, 2) > 0, F.max_pool2d(x, 3, 2), x[0, 0, 0, :5]),
    ],
)
def test_readers_of_every_kind(program: Any) -> None:
    """The image [N, H, W, C] of a program makes the pools channels-last whatever follows them."""
    after = changed(lambda x: program(x.transpose(0, 3, 1, 2)), image(2, 9, 11, 40))
    found = layouts(after, "max_pool2d") + layouts(after, "avg_pool2d")
    assert found and set(found) == {"NHWC"}


def test_batch_norm_is_not_folded_into_a_channels_last_convolution() -> None:
    """Its axis 1 are the rows of such an image, also where these are as many as the channels."""

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)

        def forward(self, x: Any) -> Any:
            return self.norm(ops.conv2d(x, self.conv.weight, self.conv.bias, layout="NHWC"))

    model = Rows().eval()
    model.norm.running_mean[:] = np.arange(8)
    gm = passes.fuse_conv_bn(fx.symbolic_trace(model, x="f32[2,8,8,3]"))
    assert calls(gm, "batch_norm")
    x = image(2, 8, 8, 3)
    compare("graph", gm(x), model(x))


def test_weights_stay_torchs() -> None:
    model = Residual()
    after = passes.channels_last(passes.decompose(fx.symbolic_trace(model, x="f32[1,3,64,64]")))
    assert after.state_dict().keys() == model.state_dict().keys()
    np.testing.assert_array_equal(after.state_dict()["deep.weight"], model.deep.weight)


def test_medium_rounds_products_of_pixels() -> None:
    """A 1x1 convolution of a channels-last image is a product with a constant weight."""

    class Pointwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(48, 40, 1)

        def forward(self, x: Any) -> Any:
            return ops.conv2d(x, self.conv.weight, self.conv.bias, layout="NHWC")

    model, x = Pointwise(), image(2, 5, 7, 48)
    medium = fx.compile(model, x, matmul_precision="medium")(x)
    error = np.abs(medium - model(x)).max() / np.abs(model(x)).max()
    assert 1e-5 < error < 8e-3


class Speech(nn.Module):
    """The front of a speech model: convolutions over time, elementwise ops with scales of channels, and tokens."""

    def __init__(self, dtype: Any = np.float32) -> None:
        super().__init__()
        self.first = nn.Conv1d(128, 160, 9, stride=2, padding=((4, 3),), dtype=dtype)
        self.second = nn.Conv1d(160, 160, 5, padding="same", dilation=2, bias=False, dtype=dtype)
        self.grouped = nn.Conv1d(160, 160, 33, padding=16, groups=5, dtype=dtype)
        self.scale = nn.Parameter(np.linspace(0, 1, 160, dtype=dtype)[:, None])

    def forward(self, x: Any, places: Any) -> Any:
        y = F.gelu(self.first(x)) * self.scale + places
        y = y + np.maximum(self.second(y), y - 1)
        return self.grouped(y).transpose(0, 2, 1)


@pytest.mark.parametrize("sizes", ["known", "named", "f64"])
def test_convolutions_over_time_are_over_images_of_one_row(sizes: str) -> None:
    """Elementwise ops between them follow, and the tokens behind them are images as they are stored."""
    dtype = np.float64 if sizes == "f64" else np.float32
    arrays = image(2, 128, 121).astype(dtype), image(160, 60).astype(dtype)
    types = ["f32[B,128,L]", "f32[160,(L - 2)//2 + 1]"] if sizes == "named" else None
    after = changed(Speech(dtype), *arrays, types=types)
    assert layouts(after) == ["NHWC"] * 3 and not calls(after, "conv1d")
    assert len(calls(after, "permute")) == 2  # of what comes in


def test_convolutions_over_time_of_few_channels_stay() -> None:
    def program(x: Any, weight: Any) -> Any:
        return np.maximum(F.conv1d(x, weight), 0) + 1

    after = changed(program, image(1, 3, 64), image(8, 3, 3))
    assert len(calls(after, "conv1d")) == 1 and not calls(after, "reshape")
