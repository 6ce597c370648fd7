"""Modules of the program as GraphModules that are called, and flattened again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from tests.graphs import ops_of
from tests.oracle import compare
from tests.zoo import ZOO, Program


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + np.tanh(self.fc(self.norm(x)))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def lines(gm: fx.GraphModule) -> list[str]:
    return [line.partition("  #")[0].strip() for line in gm.graph.text(full=True).splitlines()]


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_outlined_programs_run_the_same_and_flatten_to_the_original(program: Program) -> None:
    gm, eager, inputs = program.trace()
    before = gm.graph.text(full=True)
    outlined = passes.outline_modules(gm)
    outlined.graph.lint()
    assert gm.graph.text(full=True) == before
    compare("outlined", outlined(*inputs), eager(*inputs))
    assert outlined.state_dict().keys() == gm.state_dict().keys()
    fx.assert_same(gm, passes.inline_modules(outlined, prefix=True))


def test_what_it_looks_like() -> None:
    outlined = passes.outline_modules(fx.symbolic_trace(Stack(), x="f32[B,4]"))
    assert lines(outlined) == [
        "def forward(self, x: f32[B,4]):",
        "blocks_0: f32[B,4] = self.blocks[0](x)",
        "blocks_1: f32[B,4] = self.blocks[1](blocks_0)",
        "blocks_2: f32[B,4] = self.blocks[2](blocks_1)",
        "head: f32[B,2] = self.head(blocks_2)",
        "return head",
    ]
    assert lines(outlined.blocks[1])[1:4] == [
        "norm: f32[B,4] = self.norm(add)",
        "fc: f32[B,4] = self.fc(norm)",
        "tanh_1: f32[B,4] = ops.tanh(fc)",
    ]
    assert outlined.blocks[1].name == "Block" and outlined.blocks[1].fc.name == "Linear"


def test_a_module_that_is_called_twice_is_one() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.fc(np.tanh(self.fc(x)))

    outlined = passes.outline_modules(fx.symbolic_trace(Twice(), x="f32[B,4]"))
    assert [n.target for n in outlined.graph.find_nodes(op="call_module")] == ["fc", "fc"]
    assert list(outlined.state_dict()) == ["fc.weight", "fc.bias"]


def test_calls_that_differ_stay_in_place() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, scale: float) -> Any:
            return np.tanh(x * scale)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scaled = Scaled()

        def forward(self, x: Any) -> Any:
            return self.scaled(x, 2.0) / self.scaled(x + 1, 3.0)

    outlined = passes.outline_modules(fx.symbolic_trace(Net(), x="f32[4]"))
    assert not outlined.graph.find_nodes(op="call_module")


def test_a_weight_of_another_module_keeps_its_reader_in_place() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.table(ids))

    outlined = passes.outline_modules(fx.symbolic_trace(Tied(), ids="i64[N]"))
    assert [n.target for n in outlined.graph.find_nodes(op="call_module")] == ["table"]
    assert list(outlined.state_dict()) == ["table.weight"]


def test_what_a_pass_mixed_stays_in_place_and_what_is_inside_is_outlined() -> None:
    gm = fx.symbolic_trace(Stack(), x="f32[B,4]")
    by_name = {n.name: n for n in gm.graph.nodes}
    # The second block's sum comes to depend on the third one, which reads the second one's.
    graph = gm.graph
    with graph.inserting_before(graph.output_node()):
        late = graph.call_function("add", (by_name["tanh_1"], by_name["add_2"]))
        late.scope = by_name["tanh_1"].scope
        graph.output_node().args = ((graph.output_node().args[0], late),)
    outlined = passes.outline_modules(gm)
    targets = [n.target for n in outlined.graph.find_nodes(op="call_module")]
    assert "blocks.0" in targets and "blocks.1" not in targets
    assert {"blocks.1.norm", "blocks.1.fc"} <= {*targets}
    fx.assert_same(gm, passes.inline_modules(outlined, prefix=True))


def test_random_numbers_keep_their_order() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.25)).train(), x="f32[2,4]")
    outlined = passes.outline_modules(gm)
    flat = passes.inline_modules(outlined, prefix=True)
    kinds = ops_of(gm)
    assert ops_of(flat) == kinds
    fx.assert_same(gm, flat)
