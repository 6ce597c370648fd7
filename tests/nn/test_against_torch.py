"""Every layer against torch.nn: constructor arguments, state_dict keys, eager output, traced
output.

A case is a constructor call and inputs. The same call builds both modules; torch's weights are
loaded strictly; the outputs in eval mode must agree, eager, traced with concrete types and traced
with a named batch (where the layer allows it)."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.nn.module import Module
from tests.nn.layer_cases import CASES, TYPED, Case, Ints, Mask
from tests.oracle import compare, flatten

torch = pytest.importorskip("torch")


#: Compared in tests of their own, below.
OTHERS = {"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "TransformerEncoder"}


def _make(value: Any, rng: np.random.Generator) -> Any:
    """An input from its description; a tuple of tuples is a tuple of inputs."""
    if isinstance(value, Ints):
        return rng.integers(0, value.high, value.shape)
    if isinstance(value, Mask):
        made = rng.random(value.shape) < 0.4
        made[..., 0] = False
        return made
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return tuple(_make(v, rng) for v in value)
    if isinstance(value, tuple):
        return rng.standard_normal(value).astype(np.float32)
    return value


def _map(function: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_map(function, v) for v in value)
    return function(value) if isinstance(value, (np.ndarray, torch.Tensor)) else value


def _pair(build: Any) -> tuple[Any, Any]:
    """(ours, torch's) from ``build(namespace)``, in eval mode, with the same random weights."""
    torch.manual_seed(0)
    theirs, ours = build(torch.nn).eval(), build(nn).eval()
    with torch.no_grad():
        for name, value in theirs.state_dict().items():
            if value.is_floating_point():
                value.uniform_(0.2, 1.5) if "var" in name else value.normal_(0, 0.5)
    state = {k: v.numpy() for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    assert [v.dtype for v in ours.state_dict().values()] == [v.dtype for v in state.values()]
    ours.load_state_dict(state)
    back = {k: torch.from_numpy(np.array(v)) for k, v in ours.state_dict().items()}
    theirs.load_state_dict(back)
    return ours, theirs


def _traced(module: Any, inputs: tuple[Any, ...], call: dict[str, Any], named: tuple[int, ...] | None = ()) -> Any:
    """The module traced over flat inputs (those in ``named`` with a named first axis) and
    called."""
    flat: list[Any] = []

    def collect(value: Any) -> int:
        flat.append(value)
        return len(flat) - 1

    structure = (_map(collect, inputs), {k: _map(collect, v) for k, v in call.items()})
    names = [f"x{i}" for i in range(len(flat))]

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

    space: dict[str, Any] = {"fill": lambda values: _refill(structure, values)}
    exec(
        f"def forward(self, {', '.join(names)}):\n"
        f"    args, kwargs = fill([{', '.join(names)}])\n"
        f"    return drop_none(self.inner(*args, **kwargs))\n",
        space,
    )
    space["drop_none"] = _drop_none
    Whole.forward = space["forward"]  # type: ignore[method-assign]
    types = [fx.types.type_of(v) for v in flat]
    for n in range(len(types)) if named is None else named:
        types[n] = types[n].with_shape((fx.dims("B"), *types[n].shape[1:]))
    gm = fx.symbolic_trace(Whole().eval(), *types)
    gm.graph.lint()
    return gm(*flat)


def _refill(structure: Any, values: list[Any]) -> Any:
    def place(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(place(v) for v in value)
        return values[value] if type(value) is int else value

    inputs, call = structure
    return place(inputs), {k: v if isinstance(v, bool) else place(v) for k, v in call.items()}


def _drop_none(value: Any) -> Any:
    return tuple(_drop_none(v) for v in value if v is not None) if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layer(case: Case) -> None:
    ours, theirs = _pair(lambda space: getattr(space, case.name)(*case.args, **case.kwargs))
    rng = np.random.default_rng(1)
    inputs = tuple(_make(v, rng) for v in case.inputs)
    call = {k: _make(v, rng) for k, v in case.call.items()}
    with torch.no_grad():
        expected = theirs(*_map(torch.from_numpy, inputs), **{k: _map(torch.from_numpy, v) for k, v in call.items()})
    expected = [t.numpy() for t in _leaves(expected)]
    eager = _drop_none(ours(*inputs, **call))
    compare("eager against torch", eager, expected)
    assert all(type(a) is np.ndarray for a in flatten(eager))
    compare("traced against torch", _traced(ours, inputs, call), expected)
    if case.named != ():
        traced = _traced(ours, inputs, call, case.named)
        compare("traced with a named axis", traced, expected)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [leaf for v in value for leaf in _leaves(v)]
    return [] if value is None else [value]


def test_every_layer_has_a_case() -> None:
    layers = {
        name for name in nn.__all__ if inspect.isclass(getattr(nn, name)) and issubclass(getattr(nn, name), Module)
    }
    assert layers - {c.name for c in CASES} - OTHERS == {"Module"}


@pytest.mark.parametrize("name", sorted({c.name for c in CASES} | OTHERS))
def test_constructor_is_torchs(name: str) -> None:
    """Same parameters in the same order with the same defaults, but for those left out on
    purpose."""
    dropped = {"device", "_weight", "_freeze", "size_average", "reduce", "min_value", "max_value"}
    wanted = inspect.signature(getattr(torch.nn, name).__init__).parameters
    if name in ("LSTM", "GRU", "RNN"):
        wanted = inspect.signature(torch.nn.RNNBase.__init__).parameters
        dropped |= {"mode"} if name == "LSTM" else {"mode", "proj_size"}
    if name == "RNN":
        wanted = (
            {n: p for n, p in wanted.items() if n in ("self", "input_size", "hidden_size")}
            | {"num_layers": wanted["num_layers"], "nonlinearity": wanted["num_layers"].replace(default="tanh")}
            | dict(wanted)
        )  # torch documents it there
    dropped |= {n for n, p in wanted.items() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    given = inspect.signature(getattr(nn, name).__init__).parameters
    given = {n: p for n, p in given.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    assert list(given) == [n for n in wanted if n not in dropped]
    for parameter, ours in given.items():
        if parameter != "activation":  # torch's default is a function
            theirs = wanted[parameter].default
            assert ours.default == theirs, f"{name}({parameter}): {ours.default!r}, torch: {theirs!r}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layer_traced_without_types(case: Case) -> None:
    module = getattr(nn, case.name)(*case.args, **case.kwargs).eval()
    if case.name in TYPED:
        with pytest.raises(fx.errors.TraceError, match="types"):
            fx.symbolic_trace(module)
        return
    rng = np.random.default_rng(1)
    inputs = tuple(_make(v, rng) for v in case.inputs)
    compare("traced without types", fx.symbolic_trace(module)(*inputs), module(*inputs))


def test_containers_have_torchs_keys() -> None:
    def build(space: Any) -> Any:
        model = space.Sequential()
        model.add_module("first", space.Linear(2, 3))
        model.add_module("list", space.ModuleList([space.Linear(3, 3), space.ReLU(), space.Linear(3, 1)]))
        model.add_module("dict", space.ModuleDict({"a": space.BatchNorm1d(2), "b": space.PReLU()}))
        return model

    ours, theirs = build(nn), build(torch.nn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]


def test_transformer_encoder() -> None:
    ours, theirs = _pair(
        lambda space: space.TransformerEncoder(
            space.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 3, space.LayerNorm(8)
        )
    )
    x = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    padding = np.arange(5) > np.array([[4], [2]])
    causal = np.triu(np.ones((5, 5), bool), 1)
    expected = []
    with torch.no_grad():
        for kwargs in ({}, {"mask": causal}, {"mask": causal, "src_key_padding_mask": padding}):
            given = {k: torch.from_numpy(v) for k, v in kwargs.items()}
            # torch's shortcut of the eval mode answers zeros at padded places
            theirs.train()
            expected = theirs(torch.from_numpy(x), **given).numpy()
            compare(f"encoder with {list(kwargs)}", ours(x, **kwargs), expected)
    gm = fx.symbolic_trace(
        ours, x="f32[B,5,8]", mask="bool[5,5]", src_key_padding_mask="bool[B,5]", concrete_args={"is_causal": None}
    )
    compare("traced encoder", gm(x, causal, padding), expected)
    attentions = gm.graph.find_nodes(op="call_function", target="scaled_dot_product_attention")
    assert len(attentions) == 3
    paths = {str(n.scope.path) for n in attentions if n.scope}
    assert paths == {f"layers.{i}.self_attn" for i in range(3)}


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "InstanceNorm2d"])
@pytest.mark.parametrize("momentum", [0.1, 0.3, None])
def test_running_statistics(name: str, momentum: float | None) -> None:
    if momentum is None and name.startswith("Instance"):
        momentum = 0.7  # torch's instance norm needs one
    ours, theirs = _pair(lambda space: getattr(space, name)(4, momentum=momentum, track_running_stats=True))
    ours.train()
    theirs.train()
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.standard_normal((5, 4, 3) if name == "BatchNorm1d" else (5, 4, 3, 2)).astype(np.float32)
        compare("training output", ours(x), theirs(torch.from_numpy(x)).detach().numpy())
    for key, value in theirs.state_dict().items():
        if not (key == "num_batches_tracked" and name.startswith("Instance")):
            compare(key, ours.state_dict()[key], value.numpy())
    traced = fx.symbolic_trace(ours, x)
    compare("traced output", traced(x), ours(x))
    assert len(traced.states) == 3
    for key, value in ours.state_dict().items():
        compare(f"traced {key}", traced.state_dict()[key], value)


def test_initial_weights_have_torchs_distribution() -> None:
    nn.init.manual_seed(0)
    torch.manual_seed(0)
    builds = [
        lambda s: s.Linear(64, 256),
        lambda s: s.Conv2d(16, 64, 3),
        lambda s: s.ConvTranspose2d(32, 16, 3),
        lambda s: s.Embedding(100, 64),
        lambda s: s.LSTM(32, 64),
        lambda s: s.Bilinear(16, 16, 64),
        lambda s: s.MultiheadAttention(64, 4),
        lambda s: s.GRUCell(32, 64),
        lambda s: s.PReLU(4),
        lambda s: s.BatchNorm2d(8),
        lambda s: s.LayerNorm(8),
        lambda s: s.RMSNorm(8),
    ]
    for build in builds:
        ours, theirs = build(nn), build(torch.nn)  # type: ignore[no-untyped-call]
        for key, value in theirs.state_dict().items():
            mine, other = ours.state_dict()[key], value.numpy()
            scale = max(float(np.abs(other).max()), 1e-6)
            if mine.size > 1000:
                assert abs(mine.std() - other.std()) < 0.05 * other.std(), key
            assert np.abs(mine).max() <= 1.6 * scale, key
            assert np.abs(mine).max() >= 0.6 * scale or scale < 1e-5, key
