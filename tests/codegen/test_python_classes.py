"""Regenerated Python has the program's classes, loops, names and comments."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.base.location import Scope
from fxlite.codegen.python.source import python_program
from fxlite.files.serialize import from_bytes, to_bytes
from fxlite.passes import quantize as q
from tests.oracle import compare
from tests.source_lines import code
from tests.work import assert_linear


class Attention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)

    def forward(self, x: Any, mask: Any) -> Any:
        B, T, D = x.shape
        q, k, v = np.split(self.qkv(x), 3, axis=-1)
        q = q.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        k = k.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        v = v.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        y = F.scaled_dot_product_attention(q, k, v, mask)
        return self.out(y.transpose(0, 2, 1, 3).reshape(B, T, D))


class Block(nn.Module):
    """Attention and a feed-forward part, each after a norm.

    Both are added to what came in."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(size)
        self.attention = Attention(size, heads)
        self.norm2 = nn.LayerNorm(size)
        self.up = nn.Linear(size, 4 * size)
        self.down = nn.Linear(4 * size, size)

    def forward(self, x: Any, mask: Any) -> Any:
        """x: [B, T, D]"""
        # What the tokens say to each other.
        x = x + self.attention(self.norm1(x), mask)
        # What each token makes of it.
        hidden = F.gelu(self.up(self.norm2(x)))
        return x + self.down(hidden)


class Transformer(nn.Module):
    def __init__(self, words: int = 50, size: int = 16, layers: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.blocks = nn.ModuleList([Block(size, 2) for _ in range(layers)])
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, words, bias=False)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(16, 2) for _ in range(3)])

    def forward(self, hidden: Any, keep: Any) -> Any:
        for layer in self.blocks:
            hidden = layer(hidden, keep)
        return hidden


class Sentences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.encoder = Encoder()

    def forward(self, ids: Any, mask: Any) -> Any:
        return self.encoder(self.embedding(ids), mask).mean(axis=1)


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Any) -> Any:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.layer3 = nn.Sequential(BasicBlock(16, 32, 2), BasicBlock(32, 32))
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        return self.fc(x.mean(axis=(2, 3)))


TYPES = {"ids": "i64[B,T]", "mask": "bool[B,1,1,T]"}


def transformer() -> tuple[fx.GraphModule, tuple[Any, ...]]:
    ids = np.arange(10).reshape(2, 5)
    return fx.symbolic_trace(Transformer().eval(), **TYPES), (ids, np.ones((2, 1, 1, 5), bool))


def resnet() -> tuple[fx.GraphModule, tuple[Any, ...]]:
    image = np.linspace(-1, 1, 2 * 3 * 32 * 32, dtype=np.float32).reshape(2, 3, 32, 32)
    return fx.symbolic_trace(ResNet().eval(), x="f32[B,3,32,32]"), (image,)


def agree(gm: fx.GraphModule, inputs: tuple[Any, ...]) -> None:
    """The regenerated program computes the same, and traces to the same graph."""
    model = python_program(gm)
    compare("regenerated", model(*inputs), gm(*inputs))
    again = fx.symbolic_trace(model, *[n.type for n in gm.graph.placeholders])
    fx.assert_same(passes.dce(gm), passes.dce(again))


@pytest.mark.parametrize(
    ("make", "written", "most"),
    [(transformer, (Attention, Block, Transformer), 1.3), (resnet, (BasicBlock, ResNet), 1.3)],
)
def test_about_as_long_as_what_a_person_wrote(make: Any, written: tuple[type, ...], most: float) -> None:
    gm, inputs = make()
    agree(gm, inputs)
    by_hand = sum(len(code(inspect.getsource(part))) for part in written)
    classes = gm.source().partition("\n\n\n")[2]
    assert len(code(classes)) <= most * by_hand


def test_names_and_comments_and_loops_are_those_of_the_program() -> None:
    source = transformer()[0].source()
    classes = source[source.index("class Block(") :]
    assert classes.startswith(
        "class Block(nn.Module):\n"
        '    """Attention and a feed-forward part, each after a norm.\n'
        "\n"
        "    Both are added to what came in.\n"
        '    """\n'
        "\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.norm1 = nn.LayerNorm(16)\n"
        "        self.attention = Attention()\n"
        "        self.norm2 = nn.LayerNorm(16)\n"
        "        self.up = nn.Linear(16, 64)\n"
        "        self.down = nn.Linear(64, 16)\n"
        "\n"
        "    def forward(self, x, mask):\n"
        '        """x: [B, T, D]"""\n'
        "        # What the tokens say to each other.\n"
        "        x = x + self.attention(self.norm1(x), mask)  # f32[B,T,16]\n"
        "        # What each token makes of it.\n"
        "        hidden = F.gelu(self.up(self.norm2(x)))  # f32[B,T,64]\n"
        "        return x + self.down(hidden)  # f32[B,T,16]\n"
    )
    assert "self.blocks = nn.ModuleList([Block() for _ in range(12)])\n" in classes
    assert classes.endswith(
        "    def forward(self, ids, mask):\n"
        "        x = self.embedding(ids)  # f32[B,T,16]\n"
        "        for block in self.blocks:\n"
        "            x = block(x, mask)  # f32[B,T,16]\n"
        "        return self.head(self.norm(x))  # f32[B,T,50]\n"
    )


def test_a_module_that_only_calls_others_keeps_its_names() -> None:
    gm = fx.symbolic_trace(Sentences().eval(), **TYPES)
    agree(gm, transformer()[1])
    assert (
        "    def forward(self, hidden, keep):\n"
        "        for layer in self.blocks:\n"
        "            hidden = layer(hidden, keep)  # f32[B,T,16]\n"
        "        return hidden\n"
    ) in gm.source()
    assert "self.encoder(self.embedding(ids), mask)" in gm.source()


def test_blocks_of_other_sizes_share_a_class() -> None:
    """Also those with a convolution beside the others, and those without."""
    source = resnet()[0].source()
    assert source.count("\nclass ") == 2
    for line in (
        "        self.downsample = nn.Identity()\n"
        "        if in_channels != out_channels:\n"
        "            self.downsample = nn.Sequential(\n",
        "nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)",
        "self.layer1 = nn.Sequential(*[BasicBlock(8, 8, 1) for _ in range(2)])",
        "self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16, 1))",
        "x = self.layer1(x)",
    ):
        assert line in source


def test_the_models_own_weights_fit() -> None:
    gm, (image,) = resnet()
    model, other = python_program(gm), ResNet().eval()
    model.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(model(image), other(image))


def test_graphs_of_importers_come_back_as_classes_and_loops() -> None:
    """Dotted scopes without classes and places, as a model from a file has them."""
    gm, inputs = transformer()
    for node in gm.graph.nodes:
        node.loc = None
        if node.scope is not None:
            node.scope = Scope(node.scope.path, "")
    gm = from_bytes(to_bytes(gm))
    agree(gm, inputs)
    source = gm.source()
    assert "self.blocks = nn.ModuleList([Blocks() for _ in range(12)])\n" in source
    assert "        for block in self.blocks:\n" in source
    assert len(code(source)) < 80


def test_a_file_tells_no_names_of_other_files(tmp_path: Path) -> None:
    """What is read from a file is told by the file alone, whatever lies at the places it names."""
    gm, inputs = transformer()
    loaded = from_bytes(to_bytes(gm))
    agree(loaded, inputs)
    assert "What the tokens say" not in loaded.source() and "hidden" not in loaded.source()


def test_what_passes_made_is_still_recognized() -> None:
    gm, inputs = resnet()
    fused = passes.fuse_conv_bn(gm)
    agree(fused, inputs)
    source = fused.source()
    assert "BatchNorm" not in source and "self.layer2(" in source
    assert "nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1)" in source


def test_integers_are_still_recognized() -> None:
    gm, inputs = resnet()
    mapping = q.QConfigMapping().set_global(q.static_int8())
    integers = q.quantize(passes.fuse_conv_bn(gm), mapping, [inputs[0]])
    agree(integers, inputs)
    source = integers.source()
    assert "class BasicBlock(nn.Module):" in source and "x = self.layer2(" in source
    gm, inputs = transformer()
    mapping = q.QConfigMapping().set_global(q.weight_only_int8())
    weights = q.quantize(gm, mapping, [inputs])
    agree(weights, inputs)
    assert "        for block in self.blocks:\n" in weights.source()


def test_a_variable_that_is_read_later_keeps_its_value() -> None:
    """A pass may move a value behind the line that would assign to its variable again."""

    def program(x: Any) -> Any:
        y = np.exp(x)
        z = y * 2.0
        y = np.tanh(x)
        return y + z

    gm = fx.symbolic_trace(program, x="f32[4]")
    nodes = {n.target.name: n for n in gm.graph.find_nodes(op="call_function")}
    nodes["tanh"].append(nodes["mul"])  # the first y is read behind the second one
    gm.graph.lint()
    agree(gm, (np.linspace(-1, 1, 4, dtype=np.float32),))
    lines = [line.strip() for line in code(gm.source())]
    assert "y = ops.exp(x)" in lines or "y = np.exp(x)" in lines or "y = F.exp(x)" in lines


def test_expressions_keep_their_brackets() -> None:
    def program(x: Any, y: Any) -> Any:
        a = (x - (y - 1.0)) * (x + y) / (x * (y / x))
        b = -((x**2.0) ** 2.0) - (-x) ** 2.0
        c = (x > y) & ((x < 2.0) | (y > 0.5))
        d = x @ (y * (x + 1.0)) - (x - y) @ -y
        return a, b, c, d, -(-x)  # noqa: B002

    gm = fx.symbolic_trace(program, x="f32[4]", y="f32[4]")
    agree(gm, tuple(np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32) + 3))
    assert len(code(gm.source())) < 14


class Scale(nn.Module):
    def __init__(self, factor: float, size: int) -> None:
        super().__init__()
        self.factor = factor
        self.weight = nn.Parameter(np.full((size,), factor, np.float32))

    def forward(self, x: Any) -> Any:
        return (x * self.weight)[..., : self.weight.shape[0] - 1] * self.factor


def test_numbers_of_forward_are_attributes() -> None:
    model = nn.Sequential(Scale(2.0, 5), Scale(3.0, 4))
    gm = fx.symbolic_trace(model, x="f32[B,5]")
    agree(gm, (np.ones((2, 5), np.float32),))
    source = gm.source()
    assert source.count("class Scale(nn.Module):") == 1
    assert re.search(r"\* self\.\w+", source)


def test_a_list_with_gaps() -> None:
    """Modules that compute nothing are no part of a graph; the others keep their numbers."""
    layers = nn.Linear(3, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2)
    model = nn.Sequential({"body": nn.Sequential(*layers)}).eval()
    gm = fx.symbolic_trace(model, x="f32[B,3]")
    agree(gm, (np.ones((2, 3), np.float32),))
    listed = "nn.Linear(3, 4), nn.Identity(), nn.ReLU(), nn.Linear(4, 2)"
    assert f"self.body = nn.Sequential({listed})" in gm.source()
    python_program(gm).load_state_dict(model.state_dict())


def test_work_is_linear_in_the_program(tmp_path: Path) -> None:
    def make(lines: int) -> fx.GraphModule:
        path = tmp_path / f"program_{lines}.py"
        body = "".join(f"    y{i} = x * {i}.0\n    x = np.tanh(y{i})\n" for i in range(lines))
        path.write_text(f"import numpy as np\ndef program(x):\n{body}    return x\n")
        space: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), space)
        return fx.symbolic_trace(space["program"], x="f32[4]")

    assert_linear(make, lambda gm: gm.source(), 100)


def test_work_is_linear_in_the_modules() -> None:
    def make(layers: int) -> fx.GraphModule:
        return fx.symbolic_trace(Transformer(layers=layers).eval(), **TYPES)

    assert_linear(make, lambda gm: gm.source(), 6)


class Difference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return self.fc(x) - y


class Chains(nn.Module):
    """Calls in a row that are no plain loop."""

    def __init__(self) -> None:
        super().__init__()
        self.swapped = nn.ModuleList([Difference() for _ in range(4)])
        self.skipped = nn.ModuleList([Difference() for _ in range(4)])
        self.nested = nn.Sequential(
            nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        )

    def forward(self, x: Any, y: Any) -> Any:
        x = x * 2.0
        for number, block in enumerate(self.swapped):
            x = block(x, y) if number % 2 else block(y, x)
        for block in self.skipped[1:]:
            x = block(x, y)
        return self.nested(x)


class Named(nn.Module):
    """Parameters and modules with names that the file or Python needs."""

    def __init__(self) -> None:
        super().__init__()
        self.in_1, self.from_2 = nn.Linear(4, 4), nn.Linear(4, 4)
        self.table = nn.ModuleDict({"name": nn.Linear(4, 4), "graph": nn.Linear(4, 4)})
        self.add_module("__hidden", nn.Linear(4, 4))

    def helper(self, value: Any) -> Any:
        """Not what the class is for."""
        return np.exp(value)

    def forward(self, K: Any, F: Any) -> Any:
        # The math, ops and shapes of it.
        start = self.helper(K)
        total = np.tanh(self.in_1(F)) * (self.in_1(F) + self.from_2(start)) * K.shape[0]
        for name in ("name", "graph"):
            total = total + self.table[name](F)
        return total + self._modules["__hidden"](F) + fx.ops.ones((K.shape[0], 4), np.float32)


class Outer(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any, y: Any) -> Any:
        return self.inner(x, y) * 2.0


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dropout(0.5), nn.Dropout(0.25)
        self.row = nn.ModuleList([nn.Dropout(0.5), nn.Dropout(0.25)])

    def forward(self, x: Any, y: Any) -> Any:
        x = self.row[0](x)
        y = F.dropout(y, 0.1, True)
        x = self.row[1](x)
        return F.linear(weight=self.a(y), input=self.b(x)) - F.dropout(x @ x.T, 0.3, True)


@pytest.mark.parametrize(
    ("model", "rows"),
    [(Chains().eval(), "N"), (Outer(Named()).eval(), "K"), (Outer(Random()).train(), "4")],
    ids=("chains", "names", "random"),
)
def test_what_a_stranger_found(model: Any, rows: str) -> None:
    gm = fx.symbolic_trace(model, x=f"f32[{rows},4]", y=f"f32[{rows},4]")
    for program in (gm, passes.cse(gm), from_bytes(to_bytes(gm))):
        again = python_program(program)
        again.train(model.training)
        traced = fx.symbolic_trace(again, x=f"f32[{rows},4]", y=f"f32[{rows},4]")
        fx.assert_same(passes.dce(program), passes.dce(traced))
        kinds = [n.target.name for n in program.graph.find_nodes(op="call_function") if n.is_impure()]
        assert kinds == [n.target.name for n in traced.graph.find_nodes(op="call_function") if n.is_impure()]
    if not model.training:
        x, y = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
        compare("regenerated", python_program(gm)(x, y), gm(x, y))


def test_a_power_is_no_number() -> None:
    model = nn.ModuleDict({"²": nn.Linear(4, 4)})
    gm = fx.symbolic_trace(nn.Sequential({"table": nn.Sequential({"²": model["²"]})}), x="f32[4]")
    agree(gm, (np.ones(4, np.float32),))
