"""torch.nn's layers over NumPy: same names, arguments, defaults and state_dict keys.

Differences from torch: no ``device=`` arguments; ``inplace=`` is taken and ignored; the first input
of every layer is named ``x`` (MultiheadAttention keeps ``query, key, value``).
"""

from fxlite.base.checked import public_names
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
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from fxlite.nn.linear import (
    Bilinear,
    ConstantPad1d,
    ConstantPad2d,
    Embedding,
    Flatten,
    Identity,
    Linear,
    PixelShuffle,
    Unflatten,
    Upsample,
    ZeroPad1d,
    ZeroPad2d,
)
from fxlite.nn.loss import BCEWithLogitsLoss, CosineSimilarity, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
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

# modules
__all__ = ["Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList", "Sequential"]
__all__ += ["functional", "init"]
# linear layers, convolution and pooling
__all__ += ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d"]
__all__ += ["AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "Bilinear", "ConstantPad1d", "ConstantPad2d"]
__all__ += ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding"]
__all__ += ["Flatten", "Identity", "Linear", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d"]
__all__ += ["MaxUnpool3d", "PixelShuffle", "Unflatten", "Upsample", "ZeroPad1d", "ZeroPad2d"]
# activations and losses
__all__ += ["CELU", "ELU", "GELU", "GLU", "SELU", "BCEWithLogitsLoss", "CosineSimilarity", "CrossEntropyLoss"]
__all__ += ["Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "L1Loss", "LeakyReLU", "LogSigmoid", "LogSoftmax"]
__all__ += ["MSELoss", "Mish", "NLLLoss", "PReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax", "Softmin"]
__all__ += ["Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold"]
# normalization and dropout
__all__ += ["BatchNorm1d", "BatchNorm2d", "Dropout", "Dropout1d", "Dropout2d", "GroupNorm", "InstanceNorm1d"]
__all__ += ["InstanceNorm2d", "LayerNorm", "RMSNorm"]
# attention and recurrence
__all__ += ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "MultiheadAttention", "RNNCell", "TransformerEncoder"]
__all__ += ["TransformerEncoderLayer"]


def __dir__() -> list[str]:
    return public_names(globals())
