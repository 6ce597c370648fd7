"""Every layer of fxlite.nn that a program has comes back as that layer, however it was made."""

from __future__ import annotations

from typing import Any

import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.codegen.python.source import python_program
from fxlite.files.serialize import from_bytes, to_bytes

IMAGE, SIGNAL, VECTOR = "f32[B,6,8,8]", "f32[B,6,8]", "f32[B,6]"
VOLUME = "f32[B,4,6,5,6]"
Case = tuple[dict[str, Any], tuple[str, ...]]


def of(*types: str, **arguments: Any) -> Case:
    return arguments, types


def _pool(**arguments: Any) -> dict[int, list[Case]]:
    return {1: [of(SIGNAL, **arguments)], 2: [of(IMAGE, **arguments)]}


PLAIN = "GLU Hardshrink Hardsigmoid Hardswish LogSigmoid Mish PReLU ReLU ReLU6 SELU SiLU Sigmoid "
PLAIN += "Softsign Tanh Tanhshrink GELU CELU ELU Hardtanh LeakyReLU Softplus Softshrink Flatten"
CASES: dict[str, list[Case]] = {
    **{name: [of(IMAGE)] for name in PLAIN.split()},
    "AdaptiveAvgPool1d": [of(SIGNAL, output_size=2)],
    "AdaptiveAvgPool3d": [of(VOLUME, output_size=2)],
    "AdaptiveMaxPool3d": [of(VOLUME, output_size=(2, 1, 3))],
    "AvgPool3d": [of(VOLUME, kernel_size=2, count_include_pad=False)],
    "Conv3d": [of(VOLUME, in_channels=4, out_channels=6, kernel_size=(3, 1, 2), padding=1, groups=2)],
    "ConvTranspose3d": [of(VOLUME, in_channels=4, out_channels=2, kernel_size=2, stride=2, bias=False)],
    "MaxPool3d": [of(VOLUME, kernel_size=2, stride=1)],
    "AdaptiveAvgPool2d": [of(IMAGE, output_size=2), of(IMAGE, output_size=(2, 4))],
    "AdaptiveMaxPool1d": [of(SIGNAL, output_size=2)],
    "AdaptiveMaxPool2d": [of(IMAGE, output_size=2)],
    "AvgPool1d": [of(SIGNAL, kernel_size=2)],
    "AvgPool2d": [of(IMAGE, kernel_size=2), of(IMAGE, kernel_size=3, stride=1, padding=1, count_include_pad=False)],
    "BCEWithLogitsLoss": [of(VECTOR, VECTOR), of(VECTOR, VECTOR, reduction="sum")],
    "BatchNorm1d": [of(SIGNAL, num_features=6)],
    "BatchNorm2d": [of(IMAGE, num_features=6), of(IMAGE, num_features=6, affine=False, eps=1e-3)],
    "Bilinear": [of("f32[B,3]", "f32[B,4]", in1_features=3, in2_features=4, out_features=5)],
    "CELU": [of(IMAGE), of(IMAGE, alpha=2.0)],
    "ConstantPad1d": [of(SIGNAL, padding=1, value=2.0)],
    "ConstantPad2d": [of(IMAGE, padding=1, value=2.0), of(IMAGE, padding=(1, 2, 3, 4), value=-1.0)],
    "Conv1d": [of(SIGNAL, in_channels=6, out_channels=4, kernel_size=3)],
    "Conv2d": [
        of(IMAGE, in_channels=6, out_channels=4, kernel_size=3),
        of(IMAGE, in_channels=6, out_channels=4, kernel_size=(3, 2), stride=2, padding=(1, 0), groups=2, bias=False),
    ],
    "ConvTranspose1d": [of(SIGNAL, in_channels=6, out_channels=4, kernel_size=3)],
    "ConvTranspose2d": [of(IMAGE, in_channels=6, out_channels=4, kernel_size=3, stride=2, output_padding=1, groups=2)],
    "CosineSimilarity": [of(IMAGE, IMAGE), of(IMAGE, IMAGE, dim=-1, eps=1e-3)],
    "CrossEntropyLoss": [of("f32[B,6]", "i64[B]"), of("f32[B,6]", "i64[B]", reduction="sum")],
    "Dropout": [of(IMAGE), of(IMAGE, p=0.2)],
    "Dropout1d": [of(SIGNAL), of(SIGNAL, p=0.2)],
    "Dropout2d": [of(IMAGE), of(IMAGE, p=0.2)],
    "ELU": [of(IMAGE), of(IMAGE, alpha=0.5)],
    "Embedding": [of("i64[B,T]", num_embeddings=9, embedding_dim=4)],
    "Flatten": [of(IMAGE), of(IMAGE, start_dim=2), of("f32[2,6,8,8]", end_dim=2)],
    "GELU": [of(IMAGE), of(IMAGE, approximate="tanh")],
    "GLU": [of(IMAGE), of(IMAGE, dim=1)],
    "GRU": [
        of(SIGNAL, input_size=8, hidden_size=5),
        of(SIGNAL, input_size=8, hidden_size=5, num_layers=2, bidirectional=True, bias=False),
        of("f32[T,B,8]", "f32[1,B,5]", input_size=8, hidden_size=5),
    ],
    "GRUCell": [of("f32[B,3]", "f32[B,4]", input_size=3, hidden_size=4)],
    "GroupNorm": [
        of(IMAGE, num_groups=3, num_channels=6),
        of(IMAGE, num_groups=2, num_channels=6, affine=False, eps=1e-3),
    ],
    "Hardshrink": [of(IMAGE), of(IMAGE, lambd=0.3)],
    "Hardtanh": [of(IMAGE), of(IMAGE, min_val=-2.0, max_val=3.0)],
    "InstanceNorm1d": [of(SIGNAL, num_features=6), of(SIGNAL, num_features=6, affine=True)],
    "InstanceNorm2d": [
        of(IMAGE, num_features=6, eps=1e-3),
        of(IMAGE, num_features=6, affine=True, track_running_stats=True),
    ],
    "L1Loss": [of(VECTOR, VECTOR), of(VECTOR, VECTOR, reduction="none")],
    "LSTM": [
        of(SIGNAL, input_size=8, hidden_size=5),
        of("f32[B,T,8]", input_size=8, hidden_size=5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2),
        of("f32[4,B,8]", input_size=8, hidden_size=5, proj_size=3),
        of(SIGNAL, "f32[1,6,5]", "f32[1,6,5]", input_size=8, hidden_size=5),
    ],
    "LSTMCell": [of("f32[B,3]", "f32[B,4]", "f32[B,4]", input_size=3, hidden_size=4)],
    "LayerNorm": [
        of(IMAGE, normalized_shape=8),
        of(IMAGE, normalized_shape=8, bias=False),
        of(IMAGE, normalized_shape=(8, 8), elementwise_affine=False, eps=1e-3),
    ],
    "LeakyReLU": [of(IMAGE), of(IMAGE, negative_slope=0.3)],
    "Linear": [
        of(IMAGE, in_features=8, out_features=3),
        of(IMAGE, in_features=8, out_features=8),
        of(IMAGE, in_features=8, out_features=3, bias=False),
    ],
    "LogSoftmax": [of(IMAGE, dim=-1), of(IMAGE, dim=1)],
    "MSELoss": [of(VECTOR, VECTOR)],
    "MaxPool1d": [of(SIGNAL, kernel_size=2)],
    "MaxPool2d": [
        of(IMAGE, kernel_size=2),
        of(IMAGE, kernel_size=2, return_indices=True),
        of(IMAGE, kernel_size=(3, 2), stride=2, padding=1),
    ],
    "MaxUnpool1d": [of("f32[2,6,4]", "i64[2,6,4]", kernel_size=2)],
    "MaxUnpool2d": [of("f32[2,6,4,4]", "i64[2,6,4,4]", kernel_size=2)],
    "MaxUnpool3d": [of("f32[2,6,2,2,2]", "i64[2,6,2,2,2]", kernel_size=2)],
    "MultiheadAttention": [
        of("f32[B,5,8]", embed_dim=8, num_heads=2, batch_first=True),
        of("f32[5,B,8]", embed_dim=8, num_heads=4, bias=False),
        of("f32[B,5,8]", "f32[B,7,8]", embed_dim=8, num_heads=2, batch_first=True),
        of("f32[5,B,8]", "f32[7,B,6]", "f32[7,B,4]", embed_dim=8, num_heads=2, kdim=6, vdim=4),
    ],
    "NLLLoss": [of("f32[B,6]", "i64[B]")],
    "PReLU": [of(IMAGE), of(IMAGE, num_parameters=6)],
    "PixelShuffle": [of("f32[B,8,4,4]", upscale_factor=2)],
    "RMSNorm": [of(IMAGE, normalized_shape=8), of(IMAGE, normalized_shape=8, eps=1e-3, elementwise_affine=False)],
    "RNN": [
        of(SIGNAL, input_size=8, hidden_size=5),
        of(SIGNAL, input_size=8, hidden_size=5, nonlinearity="relu", batch_first=True),
    ],
    "RNNCell": [of("f32[B,3]", input_size=3, hidden_size=4, nonlinearity="relu")],
    "Softmax": [of(IMAGE, dim=-1), of(IMAGE, dim=1)],
    "Softmin": [of(IMAGE, dim=1)],
    "Softplus": [of(IMAGE), of(IMAGE, beta=2.0, threshold=5.0)],
    "Softshrink": [of(IMAGE), of(IMAGE, lambd=0.2)],
    "Threshold": [of(IMAGE, threshold=0.1, value=2.0)],
    "TransformerEncoderLayer": [
        of("f32[B,5,8]", d_model=8, nhead=2, dim_feedforward=16, batch_first=True),
        of("f32[5,B,8]", d_model=8, nhead=2, norm_first=True, layer_norm_eps=1e-3),
    ],
    "Unflatten": [of(IMAGE, dim=1, unflattened_size=(2, 3))],
    "Upsample": [of(IMAGE, scale_factor=2), of(IMAGE, size=(12, 10), mode="bilinear")],
    "ZeroPad1d": [of(SIGNAL, padding=1)],
    "ZeroPad2d": [of(IMAGE, padding=2), of(IMAGE, padding=(1, 0, 2, 0))],
}
#: What holds others, is made of a module, or computes nothing.
OTHERS = frozenset(
    "Identity Module ModuleDict ModuleList Parameter ParameterDict ParameterList Sequential "
    "TransformerEncoder functional init".split()
)
#: What is drawn at random in training only.
RANDOM = ("Dropout", "Dropout1d", "Dropout2d")


class Outer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any, *others: Any) -> Any:
        x = x[:]  # the layer is not the whole program
        if isinstance(self.layer, (nn.LSTM, nn.LSTMCell)) and others:
            return self.layer(x, others)
        if isinstance(self.layer, nn.MultiheadAttention):
            others = (others or (x,))[:2]
            return self.layer(x, others[0], others[-1])
        return self.layer(x, *others)


def test_all_layers_are_there() -> None:
    assert CASES.keys() | OTHERS == {*nn.__all__}


@pytest.mark.parametrize(("name", "number"), [(name, i) for name, found in CASES.items() for i in range(len(found))])
def test_a_layer_is_itself(name: str, number: int) -> None:
    arguments, types = CASES[name][number]
    model = Outer(getattr(nn, name)(**arguments)).train(name in RANDOM)
    gm = fx.symbolic_trace(model, *types)
    source = gm.source()
    assert f"self.layer = nn.{name}(" in source, source
    for key, value in arguments.items():
        assert key == "dropout" or repr(value).replace("'", chr(34)) in source, f"{key} in {source}"
    again = python_program(gm).train(model.training)
    fx.assert_same(passes.dce(gm), passes.dce(fx.symbolic_trace(again, *types)))
    missing = again.state_dict().keys() ^ model.state_dict().keys()
    assert not missing


@pytest.mark.parametrize("name", ["GRU", "LSTM", "Linear", "Conv2d", "GroupNorm", "ZeroPad2d"])
def test_a_layer_of_a_file_is_itself(name: str) -> None:
    """There only the graph tells its arguments."""
    arguments, types = CASES[name][0]
    gm = fx.symbolic_trace(Outer(getattr(nn, name)(**arguments)).eval(), *types)
    assert f"self.layer = nn.{name}(" in from_bytes(to_bytes(gm)).source()


def test_a_layer_is_itself_where_more_is_known_of_sizes() -> None:
    """``x[-1:]`` requires a length of 1 or more, which no layer before it does."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.norm = nn.Linear(8, 4), nn.LayerNorm(4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.up(x))[-1:]

    source = fx.symbolic_trace(Last(), x="f32[T,8]").source()
    assert "nn.Linear(8, 4)" in source and "nn.LayerNorm(4)" in source
