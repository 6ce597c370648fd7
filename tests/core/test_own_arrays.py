"""Arrays that modules hold as plain attributes are read under their names, as torch.fx has it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from tests.oracle import agree

X = np.float32([[1, -2, 3], [0.5, 0, -1]])


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = np.float32([7, 8, 9])
        self.register_buffer("mean", np.float32([1, 1, 1]))
        self.weight = nn.Parameter(np.float32([1, 2, 3]))

    def forward(self, x: Any) -> Any:
        return x * self.table + self.mean + self.weight - self.table


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = np.float32([4, 5, 6])
        self.layers = nn.ModuleList([Inner(), Inner()])
        self.parts = [np.float32([1, 0, 2]), np.float32([0, 1, 2])]
        self.by_name = {"first": {"a b": np.float32([3, 1, 2])}}

    def forward(self, x: Any) -> Any:
        y = x + self.table
        for layer, part in zip(self.layers, self.parts):
            y = layer(y) * part + self.table
        return y + self.by_name["first"]["a b"]


def targets(gm: fx.GraphModule) -> list[str]:
    return [n.target for n in gm.graph.find_nodes(op="get_attr")]


def test_arrays_are_read_under_their_names_and_shared() -> None:
    net = Net()
    before = list(net.state_dict())
    gm = fx.symbolic_trace(net, x="f32[B,3]")
    assert list(net.state_dict()) == before
    found = targets(gm)
    assert [t for t in found if "layers" not in t] == ["table", "parts_0", "parts_1", "by_name_first_a_b"]
    assert len(found) == len(set(found)) == 10
    assert gm.table is net.table and gm.get_attribute("layers.1.table") is net.layers[1].table
    assert gm.parts_1 is net.parts[1]
    np.testing.assert_array_equal(gm(X), net(X))
    net.table[:] = 0
    np.testing.assert_array_equal(gm(X), net(X))
    assert next(k for k in gm.state_dict() if k not in net.state_dict()) == "table"
    agree(net, X)


def test_what_passes_files_and_sources_make_of_them(tmp_path: Path) -> None:
    net = Net()
    gm = fx.symbolic_trace(net, x="f32[B,3]")
    fx.save(gm, tmp_path / "net.fxl")
    for made in (gm.copy(), pickle.loads(pickle.dumps(gm)), fx.load(tmp_path / "net.fxl"), passes.const_fold(gm)):
        assert targets(made) == targets(gm)
        np.testing.assert_array_equal(made(X), net(X))
    for dialect in ("fxlite", "numpy", "torch"):
        assert "self.table" in gm.source(dialect=dialect), dialect
        assert "constant" not in gm.source(dialect=dialect)


def test_get_parameter_and_get_buffer_tell_kinds_apart() -> None:
    net = Net()
    gm = fx.symbolic_trace(net, x="f32[B,3]")
    for module in (net, gm):
        assert module.get_parameter("layers.0.weight") is net.layers[0].weight
        assert module.get_buffer("layers.0.mean") is net.layers[0].mean
        for wrong in ("layers.0.mean", "table", "layers.0"):
            with pytest.raises(AttributeError, match=f"'{wrong}' is not a parameter but a "):
                module.get_parameter(wrong)
        with pytest.raises(AttributeError, match=r"'layers.0.weight' is not a buffer but a parameter"):
            module.get_buffer("layers.0.weight")
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            module.get_buffer("layers.0.nothing")
    with pytest.raises(AttributeError, match="'table' is not a buffer but a ndarray"):
        net.get_buffer("table")
    assert gm.get_buffer("table") is net.table  # torch.fx: plain tensors are buffers there


def test_weights_that_a_program_gets_as_arrays_are_the_weights() -> None:
    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()
            self.more = [nn.Parameter(np.float32([1, 2, 3]))]

        def forward(self, x: Any) -> Any:
            return x * self.inner.get_parameter("weight") + self.inner.weight * x + self.more[0] * x

    net = Raw()
    gm = fx.symbolic_trace(net, x="f32[B,3]")
    assert targets(gm) == ["inner.weight", "more_0"]
    assert gm.get_parameter("more_0") is net.more[0]


def test_arrays_of_leaf_modules_stay_theirs() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            return self.inner(x) + self.inner.table

    net = Outer()
    gm = fx.symbolic_trace(net, x="f32[B,3]", leaf="inner")
    assert targets(gm) == ["inner.table"] and list(net.state_dict()) == list(Outer().state_dict())
    np.testing.assert_array_equal(gm(X), net(X))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = np.float32([0, 0, 0])


class InPlace(Counts):
    def forward(self, x: Any) -> Any:
        y = x + self.seen
        self.seen += 1
        return y * self.seen


class Assigned(Counts):
    def forward(self, x: Any) -> Any:
        y = x + self.seen
        self.seen = self.seen + 1
        return y


@pytest.mark.parametrize("program", [InPlace, Assigned])
def test_a_program_that_changes_its_arrays_has_no_graph(program: Any) -> None:
    with pytest.raises(fx.errors.TraceError) as raised:
        fx.symbolic_trace(program(), x="f32[B,3]")
    text = str(raised.value)
    assert "changes seen, an array of its own" in text and "x + self.seen" in text
    assert "return what it becomes" in text and "more problem" not in text


@pytest.mark.parametrize("name", ["graph", "name", "meta", "_code"])
def test_names_that_a_graph_module_has_for_itself(name: str) -> None:
    class Named(nn.Module):
        def __init__(self, value: Any) -> None:
            super().__init__()
            setattr(self, name, value)

        def forward(self, x: Any) -> Any:
            return x + getattr(self, name)

    plain = Named(np.float32([1, 2, 3]))
    gm = fx.symbolic_trace(plain, x="f32[B,3]")
    assert targets(gm) == ["constant_0"]
    np.testing.assert_array_equal(gm(X), plain(X))
    with pytest.raises(fx.errors.ArgumentError, match=f"called '{name}'.*call it {name}_"):
        fx.symbolic_trace(Named(nn.Parameter(np.float32([1, 2, 3]))), x="f32[B,3]")


def test_nan_in_an_array_is_no_change() -> None:
    class Holes(nn.Module):
        def __init__(self, dtype: Any) -> None:
            super().__init__()
            self.holes = np.float32([1, np.nan, 3]).astype(dtype)

        def forward(self, x: Any) -> Any:
            return np.where(x > self.holes, self.holes, x)

    for dtype, text in ((np.float32, "f32[B,3]"), (fx.ops.cast(X, "bf16").dtype, "bf16[B,3]")):
        assert targets(fx.symbolic_trace(Holes(dtype), x=text)) == ["holes"]
