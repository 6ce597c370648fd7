"""Module, Parameter and the containers: what holds without torch."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import ArgumentError, TraceError
from fxlite.nn.module import StateDictError


class Net(nn.Module):
    """Two linear layers that share a weight, a buffer, a hidden buffer, a plain array."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.scale = nn.Parameter(np.ones(3, np.float32))
        self.register_buffer("mean", np.zeros(3, np.float32))
        self.register_buffer("hidden", np.zeros(3, np.float32), persistent=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.plain = np.arange(3)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x) * self.scale - self.mean)


def test_assigned_weights_are_the_arrays_themselves() -> None:
    net = Net()
    given = {name: np.full_like(a, 2) for name, a in net.state_dict().items()}
    given["mean"] = given["mean"].astype(np.float64)  # cast, and therefore copied
    for array in given.values():
        array.flags.writeable = False
    net.scale.requires_grad = False
    net.load_state_dict(given, assign=True)
    for name, array in net.state_dict().items():
        assert np.shares_memory(array, given[name]) == (name != "mean")
        assert (array == 2).all() and array.dtype == np.float32
    assert net.scale.is_parameter and not net.scale.requires_grad


def test_state_dict_is_in_torchs_order() -> None:
    net = Net()
    assert list(net.state_dict()) == ["scale", "mean", "first.weight", "first.bias", "second.weight"]
    assert [n for n, _ in net.named_parameters()] == ["scale", "first.weight", "first.bias"]
    everything = [n for n, _ in net.named_parameters(remove_duplicate=False)]
    assert everything == ["scale", "first.weight", "first.bias", "second.weight"]
    assert [n for n, _ in net.named_buffers()] == ["mean", "hidden"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "second"]
    assert len(list(net.parameters())) == 3
    assert all(isinstance(v, np.ndarray) for v in net.state_dict().values())


def test_state_dict_shares_memory_and_loads_in_place() -> None:
    net, other = Net(), Net()
    weight = net.first.weight
    net.load_state_dict(other.state_dict())
    assert net.first.weight is weight
    np.testing.assert_array_equal(net.first.weight, other.first.weight)
    assert net.first.weight is not other.first.weight
    net.state_dict()["scale"][...] = 7
    assert net.scale[0] == 7


def test_strict_loading_names_everything_and_loads_nothing() -> None:
    net = Net()
    state = {k: v.copy() for k, v in net.state_dict().items()}
    before = {k: v.copy() for k, v in state.items()}
    state["scale"] = np.full(3, 5, np.float32)
    state["mean"] = np.zeros(4, np.float32)
    state["first.wieght"] = state.pop("first.weight")
    del state["first.bias"]
    state["extra"] = np.zeros(1)
    with pytest.raises(StateDictError) as caught:
        net.load_state_dict(state)
    message = str(caught.value)
    assert "mean: expected shape (3,), got (4,)" in message
    assert "missing: first.bias" in message
    assert "unexpected: first.wieght (did you mean first.weight?)" in message
    assert "unexpected: extra" in message
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[key])
    del state["mean"]
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert missing == ["mean", "first.weight", "first.bias"]
    assert unexpected == ["first.wieght", "extra"]
    assert net.scale[0] == 5


def test_loading_casts_to_the_parameters_dtype() -> None:
    net = nn.Linear(2, 2)
    net.load_state_dict({"weight": np.ones((2, 2)), "bias": [1, 2]})
    assert net.weight.dtype == np.float32 and net.bias.tolist() == [1, 2]


def test_train_and_eval_reach_all_modules() -> None:
    model = nn.Sequential(nn.Dropout(), nn.ModuleList([nn.BatchNorm1d(2)]))
    assert all(m.training for m in model.modules())
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    assert model.train()[1][0].training


def test_attributes() -> None:
    net = Net()
    net.scale = np.zeros(3, np.float32)  # a parameter stays one
    assert isinstance(net._parameters["scale"], nn.Parameter)
    with pytest.raises(TypeError, match="parameter"):
        net.scale = 3
    net.mean = np.ones(3)
    assert "mean" in net.state_dict() and "plain" not in net.state_dict()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        net.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="before assigning"):
        type("Early", (nn.Module,), {"__init__": lambda self: setattr(self, "a", nn.ReLU())})()
    del net.first
    assert "first.weight" not in net.state_dict()
    assert net.get_submodule("second") is net.second
    with pytest.raises(AttributeError, match="no submodule 'third'"):
        net.get_submodule("third")


def test_results_are_plain_arrays() -> None:
    weight = nn.Parameter(np.ones(3))
    assert type(weight + 1) is np.ndarray and type(np.exp(weight)) is np.ndarray
    assert not weight[:2].is_parameter
    assert type(nn.Linear(3, 2)(np.ones((1, 3), np.float32))) is np.ndarray
    assert type(nn.Dropout()(nn.Parameter(np.ones(4, np.float32)))) is np.ndarray


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent_and_keep_parameters(duplicate: Any) -> None:
    net = Net()
    net.scale.requires_grad = False
    other = duplicate(net)
    assert other.scale.is_parameter and not other.scale.requires_grad
    assert [n for n, _ in other.named_parameters()] == [n for n, _ in net.named_parameters()]
    other.first.weight[...] = 0
    assert np.any(net.first.weight != 0)
    other.scale = nn.Parameter(np.ones(3))
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(duplicate(net)(x), net(x))


def test_repr() -> None:
    model = nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3, padding=1, bias=False), act=nn.GELU("tanh")))
    assert repr(model) == (
        "Sequential(\n"
        "  (conv): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)\n"
        "  (act): GELU(approximate='tanh')\n"
        ")"
    )
    assert repr(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(nn.LSTM(2, 3, 2, bidirectional=True)) == "LSTM(2, 3, num_layers=2, bidirectional=True)"
    assert repr(nn.LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True)"
    assert repr(nn.Embedding(3, 4, padding_idx=-1)) == "Embedding(3, 4, padding_idx=2)"
    assert repr(nn.MaxPool2d(2)) == ("MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)")


# -- containers ------------------------------------------------------------------------------------
def test_sequential() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(model) == 3 and isinstance(model[-1], nn.Linear) and model[1:][0] is model[1]
    assert isinstance(model[:2], nn.Sequential) and list(model[1:].state_dict()) == ["2.weight", "2.bias"]
    assert model.append(nn.Tanh()) is model and list(model._modules) == ["0", "1", "2", "3"]
    model.insert(1, nn.Identity())
    assert isinstance(model[1], nn.Identity) and isinstance(model[2], nn.ReLU)
    del model[1]
    assert [type(m).__name__ for m in model] == ["Linear", "ReLU", "Linear", "Tanh"]
    assert isinstance(model.pop(3), nn.Tanh)
    model[1] = nn.Sigmoid()
    assert isinstance(model[1], nn.Sigmoid)
    with pytest.raises(IndexError, match="out of range"):
        model[3]
    named = nn.Sequential(OrderedDict(a=nn.Linear(2, 2), b=nn.ReLU()))
    assert list(named.state_dict()) == ["a.weight", "a.bias"] and named[0] is named.a


def test_lists_and_dicts() -> None:
    blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    assert len(blocks) == 3 and len(blocks[:2]) == 2 and blocks[-1] is blocks[2]
    assert list(blocks.state_dict())[-1] == "2.bias"
    with pytest.raises(NotImplementedError):
        blocks(np.ones(2))
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Linear(2, 2)
    assert list(table) == ["a", "b"] and "b" in table and list(table.state_dict()) == ["b.weight", "b.bias"]
    assert isinstance(table.pop("a"), nn.ReLU) and len(table) == 1
    weights = nn.ParameterList([np.ones(2), nn.Parameter(np.zeros(2))])
    assert list(weights.state_dict()) == ["0", "1"] and weights[-1][0] == 0 and len(list(weights)) == 2
    named = nn.ParameterDict({"w": np.ones(2)})
    assert named["w"].is_parameter and list(named.state_dict()) == ["w"]


def test_containers_trace() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.heads = nn.ModuleDict({"out": nn.Linear(4, 1)})

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = np.maximum(block(x), 0)
            return self.heads["out"](x)

    model = Model().eval()
    gm = fx.symbolic_trace(model, x="f32[B,4]")
    targets = [n.target for n in gm.graph.find_nodes(op="get_attr")]
    assert set(targets) == set(model.state_dict())
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(gm(x), model(x), rtol=1e-6)


def test_parameter_list_traces() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gains = nn.ParameterList([np.full(4, 2, np.float32)])

        def forward(self, x: Any) -> Any:
            return x * self.gains[0]

    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(fx.symbolic_trace(Model(), x)(x), Model()(x))


# -- tracing manners -------------------------------------------------------------------------------
def test_layers_leave_their_scope() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.GELU()), x="f32[B,2]")
    scopes = [str(n.scope) for n in gm.graph.find_nodes(op="call_function")]
    assert scopes == ["0 (Linear)", "1 (GELU)"]


def test_dropout_leaves_no_node_in_eval_mode() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout2d()).eval()
    assert not fx.symbolic_trace(model, x="f32[2,3,4,4]").graph.find_nodes(op="call_function")
    traced = fx.symbolic_trace(model.train(), x="f32[B,3,4,4]")
    assert len(traced.graph.find_nodes(op="call_function", target="dropout")) == 2


def test_a_named_length_is_refused_by_an_lstm_with_projections() -> None:
    with pytest.raises(TraceError, match="T is a named dim"):
        fx.symbolic_trace(nn.LSTM(4, 5, proj_size=2), x="f32[T,B,4]")


def test_dropout_while_training() -> None:
    nn.init.manual_seed(1)
    x = np.ones((8, 16, 5, 5), np.float32)
    channels = nn.Dropout2d(0.5)(x)
    assert np.all(channels == channels[:, :, :1, :1]) and set(np.unique(channels)) == {0.0, 2.0}
    attention = nn.MultiheadAttention(8, 2, dropout=0.5)
    tokens = np.random.default_rng(0).standard_normal((3, 2, 8)).astype(np.float32)
    first, second = (attention(tokens, tokens, tokens)[0] for _ in range(2))
    assert not np.array_equal(first, second)
    attention.eval()
    first, second = (attention(tokens, tokens, tokens)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="reflect"), "zeros only"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "does not divide"),
        (lambda: nn.MultiheadAttention(8, 3), "does not divide"),
        (lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True), "add_bias_kv"),
        (lambda: nn.Embedding(3, 4, max_norm=1.0), "max_norm"),
        (lambda: nn.Dropout(1.5), "between 0 and 1"),
        (lambda: nn.Softmax()(np.ones((2, 2), np.float32)), "needs dim="),
        (lambda: nn.RNN(2, 3, nonlinearity="gelu"), "nonlinearity"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation="silu"), "activation"),
    ],
)
def test_what_is_refused(build: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        build()


def test_running_statistics_need_more_than_one_value() -> None:
    with pytest.raises(ValueError, match="more than one value"):
        nn.BatchNorm1d(3)(np.ones((1, 3), np.float32))


def test_half_precision_layers() -> None:
    for dtype in ("f16", "bf16", "f64"):
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2), nn.Softmax(-1))
        model.astype(dtype).eval()
        x = np.random.default_rng(0).standard_normal((3, 4)).astype(fx.dtypes.dtype(dtype).numpy)
        result = model(x)
        assert result.dtype == x.dtype
        gm = fx.symbolic_trace(model, x=f"{dtype}[B,4]")
        np.testing.assert_array_equal(gm(x), result)


def test_init_is_repeatable_and_in_range() -> None:
    nn.init.manual_seed(3)
    first = nn.Linear(4, 4).weight.copy()
    nn.init.manual_seed(3)
    np.testing.assert_array_equal(nn.Linear(4, 4).weight, first)
    values = nn.init.trunc_normal_(np.empty(1000, np.float32), std=1.0, a=-0.5, b=1.0)
    assert values.min() >= -0.5 and values.max() <= 1.0
    square = nn.init.orthogonal_(np.empty((6, 6)))
    np.testing.assert_allclose(square @ square.T, np.eye(6), atol=1e-12)
    assert nn.init.zeros_(first) is first and not first.any()
    with pytest.raises(ArgumentError, match="rank 2"):
        nn.init.xavier_uniform_(np.empty(3))
