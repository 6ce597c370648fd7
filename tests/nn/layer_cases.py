"""The layers' cases for tests/nn/test_against_torch.py: constructor calls and inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ints:
    """Random integers in [0, high)."""

    shape: tuple[int, ...]
    high: int


@dataclass(frozen=True)
class Mask:
    """Random booleans; the first along the last axis is False."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """``nn.<name>(*args, **kwargs)(*inputs)``; an input is a shape, Ints, Mask, an array or
    None."""

    name: str
    args: tuple[Any, ...]
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    call: dict[str, Any] = field(default_factory=dict)  # keyword inputs of forward
    named: tuple[int, ...] | None = None  # inputs traced with a named first axis (None: all)

    def __str__(self) -> str:
        options = [*map(str, self.args), *(f"{k}={v}" for k, v in self.kwargs.items()), *self.call]
        return f"{self.name}({', '.join(options)})"


def C(name: str, *args: Any, on: Any = ((2, 6),), call: Any = None, named: Any = None, **kwargs: Any) -> Case:
    """A case; ``on``: the inputs."""
    return Case(name, args, on, kwargs, call or {}, named)


def places(*shape: int, of: int) -> Any:
    """Positions in a plane of so many elements, no two of a channel the same."""
    drawn = np.random.default_rng(0).permuted(np.broadcast_to(np.arange(of), (*shape[:2], of)), axis=-1)
    return drawn[:, :, : np.prod(shape[2:])].reshape(shape).astype(np.int64)


IMAGE, SIGNAL, VOLUME = ((2, 4, 9, 11),), ((2, 4, 13),), ((2, 4, 5, 3, 6),)
PLAIN = [
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Mish",
    "Hardswish",
    "Hardsigmoid",
    "GELU",
    "ELU",
    "CELU",
    "LeakyReLU",
    "PReLU",
    "Sigmoid",
    "Tanh",
    "LogSigmoid",
    "Softsign",
    "Tanhshrink",
    "Softplus",
    "Hardtanh",
    "Hardshrink",
    "Softshrink",
    "GLU",
    "Identity",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
]
CASES = [
    *(C(name, on=((2, 4, 6),)) for name in PLAIN),
    C("ReLU", True),
    C("GELU", approximate="tanh"),
    C("ELU", 0.5),
    C("CELU", alpha=2.0),
    C("LeakyReLU", 0.3),
    C("PReLU", 4, 0.1, on=IMAGE),
    C("PReLU", on=((5,),)),
    C("Softplus", 2.0, 1.0),
    C("Hardtanh", -0.5, 0.25),
    C("Threshold", 0.1, 20.0),
    C("Hardshrink", 1.0),
    C("Softshrink", 1.0),
    C("GLU", 1, on=((2, 4, 3),)),
    C("Softmax", 1),
    C("Softmax", dim=-1, on=((2, 3, 4),)),
    C("Softmin", 1),
    C("LogSoftmax", dim=0, named=()),
    C("Linear", 6, 3),
    C("Linear", 6, 3, bias=False),
    C("Linear", 6, 1, on=((2, 3, 6),)),
    C("Linear", 6, 2, on=((6,),), named=()),
    C("Bilinear", 6, 5, 3, on=((2, 6), (2, 5))),
    C("Bilinear", 4, 5, 1, bias=False, on=((2, 3, 4), (2, 3, 5))),
    C("Conv1d", 4, 6, 3, on=SIGNAL),
    C("Conv1d", 4, 6, 5, stride=2, padding=3, dilation=2, groups=2, on=SIGNAL),
    C("Conv1d", 4, 2, 4, padding="same", bias=False, on=SIGNAL),
    C("Conv3d", 4, 6, (3, 1, 2), 2, 1, groups=2, on=VOLUME),
    C("ConvTranspose3d", 4, 6, 2, (2, 1, 3), on=VOLUME),
    C("MaxPool3d", 2, on=VOLUME),
    C("AvgPool3d", (2, 1, 3), 1, on=VOLUME),
    C("MaxPool3d", 2, 1, return_indices=True, on=VOLUME),
    C("MaxPool1d", 3, 2, 1, return_indices=True, ceil_mode=True, on=SIGNAL),
    C("MaxPool2d", (3, 2), (2, 1), (1, 0), return_indices=True, on=IMAGE),
    C("AdaptiveMaxPool1d", 4, True, on=SIGNAL),
    C("AdaptiveMaxPool2d", (2, 5), return_indices=True, on=IMAGE),
    C("AdaptiveMaxPool3d", 2, return_indices=True, on=VOLUME),
    C("MaxUnpool1d", 2, on=((2, 3, 5), places(2, 3, 5, of=10))),
    C("MaxUnpool2d", (3, 2), 2, (1, 0), on=((2, 3, 4, 3), places(2, 3, 4, 3, of=42))),
    C("MaxUnpool2d", 2, on=((2, 3, 4, 3), places(2, 3, 4, 3, of=63)), call={"output_size": [9, 7]}),
    C("MaxUnpool3d", 2, on=((2, 3, 2, 2, 3), places(2, 3, 2, 2, 3, of=96))),
    C("AdaptiveAvgPool3d", (2, 1, 3), on=VOLUME),
    C("AdaptiveMaxPool3d", 2, on=VOLUME),
    C("Conv2d", 4, 6, 3, on=IMAGE),
    C("Conv2d", 4, 8, (3, 5), (2, 1), (1, 2), on=IMAGE),
    C("Conv2d", 4, 4, 3, groups=4, padding="same", on=IMAGE),
    C("Conv2d", 4, 6, 1, bias=False, on=IMAGE),
    C("Conv2d", 4, 6, 3, dilation=2, groups=2, padding="valid", on=IMAGE),
    C("ConvTranspose1d", 4, 6, 3, on=SIGNAL),
    C("ConvTranspose1d", 4, 6, 4, 3, 1, 2, 2, dilation=2, on=SIGNAL),
    C("ConvTranspose2d", 4, 6, 3, 2, on=IMAGE),
    C("ConvTranspose2d", 4, 6, (2, 3), (2, 1), (1, 0), bias=False, on=IMAGE),
    C("ConvTranspose2d", 4, 6, 3, 2, 1, 1, groups=2, on=IMAGE),
    C("BatchNorm1d", 4, on=((3, 4),)),
    C("BatchNorm1d", 4, 0.1, affine=False, on=SIGNAL),
    C("BatchNorm2d", 4, on=IMAGE),
    C("BatchNorm2d", 4, track_running_stats=False, on=IMAGE),
    C("BatchNorm2d", 4, momentum=None, on=IMAGE),
    C("BatchNorm2d", 4, bias=False, on=IMAGE),
    C("InstanceNorm1d", 4, on=SIGNAL),
    C("InstanceNorm1d", 4, affine=True, on=SIGNAL),
    C("InstanceNorm2d", 4, on=IMAGE),
    C("InstanceNorm2d", 4, affine=True, track_running_stats=True, on=IMAGE),
    C("GroupNorm", 2, 4, on=IMAGE),
    C("GroupNorm", 4, 4, 0.1, affine=False, on=SIGNAL),
    C("GroupNorm", 1, 6),
    C("LayerNorm", 6),
    C("LayerNorm", (3, 4), on=((2, 3, 4),)),
    C("LayerNorm", [4], 0.1, bias=False, on=((2, 3, 4),)),
    C("LayerNorm", 6, elementwise_affine=False),
    C("RMSNorm", 6),
    C("RMSNorm", (3, 4), 0.01, on=((2, 3, 4),)),
    C("RMSNorm", 6, elementwise_affine=False),
    C("Embedding", 10, 4, on=(Ints((2, 3), 10),)),
    C("Embedding", 10, 4, padding_idx=-1, on=(Ints((2,), 10),)),
    C("Embedding", 10, 4, 2, on=(Ints((2, 3, 2), 10),)),
    C("MaxPool1d", 3, on=SIGNAL),
    C("MaxPool1d", 4, 2, 1, 2, on=SIGNAL),
    C("MaxPool1d", 2, ceil_mode=True, on=SIGNAL),
    C("MaxPool2d", 2, on=IMAGE),
    C("MaxPool2d", (3, 2), (2, 1), (1, 0), on=IMAGE),
    C("MaxPool2d", 3, 2, 1, 2, on=IMAGE),
    C("MaxPool2d", 2, ceil_mode=True, on=IMAGE),
    C("AvgPool1d", 3, on=SIGNAL),
    C("AvgPool1d", 3, 2, 1, True, False, on=SIGNAL),
    C("AvgPool2d", 2, on=IMAGE),
    C("AvgPool2d", (3, 2), 2, 1, True, on=IMAGE),
    C("AvgPool2d", 3, padding=1, count_include_pad=False, on=IMAGE),
    C("AvgPool2d", 3, 2, 1, divisor_override=5, on=IMAGE),
    C("AdaptiveAvgPool1d", 1, on=SIGNAL),
    C("AdaptiveAvgPool1d", 5, on=SIGNAL),
    C("AdaptiveAvgPool2d", 1, on=IMAGE),
    C("AdaptiveAvgPool2d", (3, 4), on=IMAGE),
    C("AdaptiveAvgPool2d", (None, 2), on=IMAGE),
    C("AdaptiveMaxPool1d", 4, on=SIGNAL),
    C("AdaptiveMaxPool2d", (2, 5), on=IMAGE),
    C("AdaptiveMaxPool2d", 1, on=IMAGE),
    C("Flatten", on=IMAGE),
    C("Flatten", 0, 1, on=IMAGE),
    C("Flatten", 2, 3, on=IMAGE),
    C("Unflatten", 1, (2, 3)),
    C("Unflatten", -1, [3, -1]),
    C("Unflatten", 1, (2, 2), on=SIGNAL),
    C("ConstantPad1d", 2, 0.5, on=SIGNAL),
    C("ConstantPad1d", (1, 3), -1.0, on=SIGNAL),
    C("ConstantPad2d", (1, 2, 3, 0), 2.5, on=IMAGE),
    C("ZeroPad1d", (0, 2), on=SIGNAL),
    C("ZeroPad2d", 1, on=IMAGE),
    C("ZeroPad2d", (1, 0, 0, 2), on=IMAGE),
    C("PixelShuffle", 2, on=IMAGE),
    C("Upsample", scale_factor=2, on=IMAGE),
    C("Upsample", (5, 7), on=IMAGE),
    C("Upsample", size=20, on=SIGNAL),
    C("Upsample", scale_factor=2, mode="bilinear", on=IMAGE),
    C("Upsample", scale_factor=2, mode="bilinear", align_corners=True, on=IMAGE),
    C("Upsample", scale_factor=3, mode="linear", on=SIGNAL),
    C("MSELoss", on=((2, 6), (2, 6))),
    C("MSELoss", reduction="none", on=((2, 6), (2, 6))),
    C("L1Loss", on=((2, 6), (2, 6))),
    C("L1Loss", reduction="sum", on=((2, 6), (2, 6))),
    C("CrossEntropyLoss", on=((2, 6), Ints((2,), 6))),
    C("CrossEntropyLoss", label_smoothing=0.1, ignore_index=3, on=((2, 6, 5), Ints((2, 5), 6))),
    C("NLLLoss", on=((2, 6), Ints((2,), 6))),
    C("NLLLoss", reduction="none", on=((2, 6), Ints((2,), 6))),
    C("BCEWithLogitsLoss", on=((2, 6), (2, 6))),
    C("CosineSimilarity", on=((2, 6), (2, 6))),
    C("CosineSimilarity", 0, 1e-6, on=((2, 6), (2, 6)), named=()),
    C("MultiheadAttention", 8, 2, on=((3, 2, 8),) * 3),
    C("MultiheadAttention", 8, 2, batch_first=True, on=((2, 3, 8), (2, 5, 8), (2, 5, 8))),
    C(
        "MultiheadAttention",
        8,
        4,
        bias=False,
        on=((3, 8), (5, 8), (5, 8)),
        call={"average_attn_weights": False},
        named=(),
    ),
    C("MultiheadAttention", 8, 2, kdim=6, vdim=5, on=((3, 2, 8), (4, 2, 6), (4, 2, 5)), named=(0,)),
    C(
        "MultiheadAttention",
        8,
        2,
        batch_first=True,
        on=((2, 3, 8),) * 3,
        named=(0, 1, 2, 4),
        call={"attn_mask": Mask((3, 3)), "key_padding_mask": Mask((2, 3))},
    ),
    C(
        "MultiheadAttention",
        8,
        2,
        batch_first=True,
        on=((2, 3, 8),) * 3,
        named=(0, 1, 2, 4),
        call={"attn_mask": (3, 3), "key_padding_mask": (2, 3)},
    ),
    C(
        "MultiheadAttention",
        8,
        2,
        batch_first=True,
        on=((2, 3, 8),) * 3,
        call={"attn_mask": (4, 3, 3), "average_attn_weights": False},
        named=(),
    ),
    C("TransformerEncoderLayer", 8, 2, 16, on=((3, 2, 8),)),
    C("TransformerEncoderLayer", 8, 2, 16, 0.2, "gelu", 1e-3, True, True, on=((2, 3, 8),)),
    C(
        "TransformerEncoderLayer",
        8,
        2,
        16,
        bias=False,
        batch_first=True,
        on=((2, 3, 8), Mask((3, 3)), Mask((2, 3))),
        named=(0, 2),
    ),
    C("LSTM", 4, 5, on=((3, 2, 4),), named=(0,)),
    C("LSTM", 4, 5, 2, batch_first=True, bidirectional=True, on=((2, 3, 4),)),
    C("LSTM", 4, 5, bias=False, on=((3, 4),), named=(0,)),
    C("LSTM", 4, 5, 2, proj_size=3, on=((3, 2, 4),), named=()),
    C("LSTM", 4, 5, 2, on=((3, 2, 4), ((2, 2, 5), (2, 2, 5))), named=(0,)),
    C("GRU", 4, 5, on=((3, 2, 4),), named=(0,)),
    C("GRU", 4, 5, 2, batch_first=True, bidirectional=True, on=((2, 3, 4),)),
    C("GRU", 4, 5, on=((3, 2, 4), (1, 2, 5)), named=(0,)),
    C("RNN", 4, 5, on=((3, 2, 4),), named=(0,)),
    C("RNN", 4, 5, 2, "relu", on=((3, 2, 4), (2, 2, 5)), named=(0,)),
    C("RNN", 4, 5, batch_first=True, bidirectional=True, bias=False, on=((2, 1, 4),)),
    C("LSTMCell", 4, 5, on=((2, 4),)),
    C("LSTMCell", 4, 5, on=((2, 4), ((2, 5), (2, 5))), named=()),
    C("GRUCell", 4, 5, on=((2, 4),)),
    C("GRUCell", 4, 5, bias=False, on=((2, 4), (2, 5))),
    C("RNNCell", 4, 5, on=((2, 4), (2, 5))),
    C("RNNCell", 4, 5, nonlinearity="relu", on=((4,),), named=()),
]

#: Layers whose forward needs shapes: they cannot be traced without input types.
TYPED = {
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ZeroPad1d",
    "ZeroPad2d",
    "Unflatten",
    "PixelShuffle",
    "GRU",
    "LSTM",
    "RNN",
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "MultiheadAttention",
    "TransformerEncoderLayer",
}
