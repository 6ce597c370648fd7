"""Probes: the values they tell are the program's, in every rung and whatever passes do."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError, GraphError

X = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)


class Net(nn.Module):
    """Convolution, norm, residual addition, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.proj = nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        h = fx.ops.relu(self.bn(self.conv(x)))
        h = h + fx.ops.relu(self.proj(h))
        return self.head(fx.ops.mean(h, axis=(2, 3)))


@pytest.fixture(scope="module")
def gm() -> fx.GraphModule:
    net = Net()
    net.eval()
    return fx.symbolic_trace(net, x="f32[B,3,6,6]")


def values_of(gm: fx.GraphModule) -> dict[str, Any]:
    """All values of a run, node by node."""
    runner = fx.Interpreter(gm, garbage_collect_values=False)
    runner.run(X)
    return {node.name: value for node, value in runner.env.items()}


@pytest.mark.parametrize("backend", [None, "python", "c"])
def test_values_are_the_programs_own(gm: fx.GraphModule, backend: str | None) -> None:
    """By query, name and node; the result stays, and what a pass or a back end fuses is told."""
    seen: dict[str, Any] = {}
    relus = gm.graph.find("relu")
    tapped = passes.tap(gm, ["relu", "x", gm.graph.output_node().args[0]], seen.__setitem__)
    run = tapped if backend is None else fx.compile(tapped, backend=backend)
    result = run(X)
    expected = values_of(gm)
    np.testing.assert_allclose(result, gm(X), rtol=1e-5, atol=1e-6)
    assert list(seen) == ["x", *(m.last.name for m in relus), gm.graph.output_node().args[0].name]
    for name, value in seen.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
        assert not value.flags.writeable


def test_passes_and_their_checks_tell_nothing(gm: fx.GraphModule) -> None:
    seen: list[str] = []
    tapped = passes.tap(gm, "relu", lambda name, value: seen.append(name))
    made = passes.PassManager(["fuse_conv_bn", "simplify", "cse", "dce"])(tapped)
    passes.verify(tapped, made)
    passes.profile(made, X, repeat=1)
    fx.symbolic_trace(lambda x: made(x) + 1, x="f32[B,3,6,6]")(X)
    assert seen == []
    np.testing.assert_allclose(made(X), gm(X), rtol=1e-5, atol=1e-6)
    assert seen == ["relu", "relu_1"]
    seen.clear()
    fx.symbolic_trace(made, x="f32[2,3,6,6]")(X)
    passes.split_module(
        made, None, lambda node: int(node.op == "call_function" and node.target.name in ("mean", "linear"))
    )(X)
    assert seen == ["relu", "relu_1"] * 2


def test_taken_off_again(gm: fx.GraphModule) -> None:
    seen: list[str] = []

    def note(name: str, value: Any) -> None:
        seen.append(name)

    tapped = passes.tap(passes.tap(gm, "relu", note), "linear", note)
    passes.untap(tapped, "#relu")(X)
    assert seen == ["relu_1", "linear"]
    plain = passes.untap(tapped)
    assert plain.graph == gm.graph and not plain.graph.taps
    tapped.undo()
    seen.clear()
    tapped(X)
    assert seen == ["relu", "relu_1"]
    with pytest.raises(ArgumentError, match=r"linear.*has no tap"):
        passes.untap(tapped, "linear")


def test_written_inputs_and_nested_results() -> None:
    def step(cache: Any, x: Any) -> Any:
        cache += x
        return {"twice": fx.ops.relu(cache) * 2}

    gm = fx.symbolic_trace(step, cache="f32[3]", x="f32[3]")
    for run_of in (lambda g: g, lambda g: fx.compile(g, backend="c")):
        seen: dict[str, Any] = {}
        run = run_of(passes.tap(gm, "relu", seen.__setitem__))
        cache = np.array([1, -3, 2], np.float32)
        result = run(cache, np.ones(3, np.float32))
        np.testing.assert_array_equal(result["twice"], [4, 0, 6])
        np.testing.assert_array_equal(cache, [2, -2, 3])
        np.testing.assert_array_equal(seen["relu"], [2, 0, 3])


def test_wrong_requests(gm: fx.GraphModule) -> None:
    for where, text in (
        ("gelu", "finds no node"),
        ("output", "is the output"),
        ([], "no node"),
        (3, "not int"),
        ("#relux", "relux"),
    ):
        with pytest.raises(ArgumentError, match=text):
            passes.tap(gm, where, print)
    split = fx.symbolic_trace(lambda x: fx.ops.add(*fx.ops.split(x, (2, 2), axis=1)), x="f32[B,4]")
    with pytest.raises(ArgumentError, match="several arrays; tap the nodes"):
        passes.tap(split, "split", print)
    edited = passes.tap(gm, "relu", print)
    edited.graph.output_node().args = (edited.graph.placeholders[0],)
    with pytest.raises(GraphError, match="has taps, so its output"):
        edited(X)


@pytest.mark.parametrize("backend", [None, "c"])
def test_statistics_are_numpys(gm: fx.GraphModule, backend: str | None) -> None:
    batches = [X, X[:1] * 3, X[:0]]
    found = passes.activation_statistics(gm, batches, where="relu", backend=backend)
    values = [values_of(gm)["relu"].ravel()]
    runner = fx.Interpreter(gm, garbage_collect_values=False)
    runner.run(X[:1] * 3)
    (relu,) = (v for n, v in runner.env.items() if n.name == "relu")
    all_values = np.concatenate([*values, relu.ravel()]).astype(np.float64)
    row = found["relu"]
    assert row.count == all_values.size and row.not_finite == 0
    wanted = [f(all_values) for f in (np.min, np.max, np.mean, np.std)]
    np.testing.assert_allclose([row.min, row.max, row.mean, row.std], wanted, rtol=1e-5, atol=1e-7)
    assert row.zeros == pytest.approx(np.mean(all_values == 0))
    bin = 2 * row.limit / 2048
    for percent in (1, 50, 90, 99, 100):
        assert row.percentile(percent) == pytest.approx(
            np.percentile(all_values, percent, method="inverted_cdf"), abs=bin
        )
    assert row.percentile(1) == 0
    counts, edges = row.histogram(8)
    assert counts.sum() == row.count and edges[0] == row.min and edges[-1] == row.max
    assert "relu_1" in str(found) and "50 %" in str(found)


def test_statistics_by_default_and_of_infinities(gm: fx.GraphModule) -> None:
    calls = [n.name for n in gm.graph.nodes if n.op == "call_function"]
    assert list(passes.activation_statistics(gm, [X]).rows) == calls
    log = fx.symbolic_trace(lambda x: fx.ops.log(x), x="f32[N]")
    with np.errstate(all="ignore"):
        found = passes.activation_statistics(log, [np.array([0, 1, -1, 1], np.float32)])
    assert (found["log"].count, found["log"].not_finite, found["log"].zeros) == (2, 2, 1.0)
    assert "NaN, inf" in str(found)


def test_the_last_of_each_module() -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return fx.ops.relu(self.out(fx.ops.relu(self.q(x))))

    gm = fx.symbolic_trace(nn.Sequential(Part(), nn.Linear(4, 4), Part()), x="f32[B,4]")
    for query, names in (
        ('linear:last("*")', ["linear_1", "linear_2", "linear_4"]),
        ('linear:in("*.*"):first("*")', ["linear", "linear_3"]),
        ('relu:last("2")', ["relu_3"]),
    ):
        seen: list[str] = []
        passes.tap(gm, query, lambda name, value, seen=seen: seen.append(name))(X[0, 0, :2, :4])
        assert seen == names
    with pytest.raises(ArgumentError, match="no node was made in a module 'parts"):
        passes.tap(gm, 'linear:last("parts.*")', print)
    with pytest.raises(fx.errors.QueryError, match="parenthesis is not closed"):
        gm.graph.find('linear:last("*"')


@pytest.mark.parametrize("backend", [None, "python", "c", "embedded"])
def test_a_function_that_raises_and_threads(backend: str | None) -> None:
    """The error is the function's own and says which tap; what the program writes is written. Each
    thread hears of its own calls."""

    def step(cache: Any, x: Any) -> Any:
        cache += x
        return fx.ops.relu(cache)

    gm = fx.symbolic_trace(step, cache="f32[3]", x="f32[3]")
    heard: dict[int, list[float]] = {}

    def fail(name: str, value: Any) -> None:
        raise KeyError(name)

    def note(name: str, value: Any) -> None:
        heard.setdefault(threading.get_ident(), []).append(float(value[0]))

    def made(function: Any) -> Any:
        tapped = passes.tap(gm, "relu", function)
        return tapped if backend is None else fx.compile(tapped, backend=backend)

    cache, x = np.zeros(3, np.float32), np.ones(3, np.float32)
    with pytest.raises(KeyError, match="relu") as caught:
        made(fail)(cache, x)
    assert "passes.tap, told the value of relu" in caught.value.__notes__[0]
    np.testing.assert_array_equal(cache, x)
    run, wait = made(note), threading.Barrier(3)

    def work(number: int) -> None:
        wait.wait()
        for _ in range(20):
            run(np.zeros(3, np.float32), np.full(3, number, np.float32))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values[0] for values in heard.values()) == [1, 2, 3]
    assert all(values == [values[0]] * 20 for values in heard.values())
