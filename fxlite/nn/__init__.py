"""torch.nn's layers over NumPy: same names, arguments, defaults and state_dict keys.

Differences from torch: no ``device=`` arguments; ``inplace=`` is taken and ignored; the first input
of every layer is named ``x`` (MultiheadAttention keeps ``query, key, value``).
"""

from fxlite.base.public_names import public_names
from fxlite.nn import functional, init
from fxlite.nn.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)
from fxlite.nn.attention import MultiheadAttention, TransformerEncoder, TransformerEncoderLayer
from fxlite.nn.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from fxlite.nn.conv import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    MaxPool1d,
    MaxPool2d,
)
from fxlite.nn.linear import Bilinear, Embedding, Identity, Linear
from fxlite.nn.loss import (
    BCEWithLogitsLoss,
    CosineSimilarity,
    CrossEntropyLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
)
from fxlite.nn.module import Module, Parameter
from fxlite.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    Dropout,
    Dropout1d,
    Dropout2d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
    RMSNorm,
)
from fxlite.nn.rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from fxlite.nn.shape import (
    ConstantPad1d,
    ConstantPad2d,
    Flatten,
    PixelShuffle,
    Unflatten,
    Upsample,
    ZeroPad1d,
    ZeroPad2d,
)

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "GRU", "LSTM", "RNN", "SELU",
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AvgPool1d", "AvgPool2d", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "Bilinear",
    "ConstantPad1d", "ConstantPad2d", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d",
    "CosineSimilarity", "CrossEntropyLoss", "Dropout", "Dropout1d", "Dropout2d", "Embedding",
    "Flatten", "GRUCell", "GroupNorm", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "Identity", "InstanceNorm1d", "InstanceNorm2d", "L1Loss", "LSTMCell", "LayerNorm", "LeakyReLU",
    "Linear", "LogSigmoid", "LogSoftmax", "MSELoss", "MaxPool1d", "MaxPool2d", "Mish", "Module",
    "ModuleDict", "ModuleList", "MultiheadAttention", "NLLLoss", "PReLU", "Parameter",
    "ParameterDict", "ParameterList", "PixelShuffle", "RMSNorm", "RNNCell", "ReLU", "ReLU6",
    "Sequential", "SiLU", "Sigmoid", "Softmax", "Softmin", "Softplus", "Softshrink", "Softsign",
    "Tanh", "Tanhshrink", "Threshold", "TransformerEncoder", "TransformerEncoderLayer",
    "Unflatten", "Upsample", "ZeroPad1d", "ZeroPad2d", "functional", "init",
]  # fmt: skip


def __dir__() -> list[str]:
    return public_names(globals())
