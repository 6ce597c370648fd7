"""Models of torch's eager quantization (``torch.ao.nn.quantized``), which torch.export cannot follow: their weights are
packed objects, and their values are tensors of a dtype of its own.

In: such a module. Out: a module of the same scopes that computes the same, as models quantized by pt2e do. Weights are
int8 tensors with scales. A quantized value is held as the floats that its integers stand for: behind each function that
quantizes it is ``dequantize(quantize(x))``. :class:`Grids` remembers the scale of each such value during the export,
since many functions, such as ``mean``, round their results to the scale of their argument.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.ao.nn.intrinsic.quantized as fused
import torch.ao.nn.quantized as plain
import torch.ao.nn.quantized.dynamic as dynamic
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from fxlite.base.errors import ModelImportError

_ops: Any = torch.ops.quantized_decomposed
_PACKAGE = "torch.ao.nn."
_STORED = {
    torch.quint8: (0, 255, torch.uint8),
    torch.qint8: (-128, 127, torch.int8),
    torch.qint32: (-(1 << 31), (1 << 31) - 1, torch.int32),
}


@dataclass(frozen=True)
class Grid:
    """The numbers that a quantized tensor can hold: ``(q - zero_point) * scale``."""

    scale: float
    zero_point: int
    dtype: torch.dtype = torch.quint8

    def of(self, x: Any) -> Any:
        """The values rounded to the grid, as a tensor that says so."""
        how = (self.scale, self.zero_point, *_STORED[self.dtype])
        return self.marks(_ops.dequantize_per_tensor(_ops.quantize_per_tensor(x, *how), *how))

    def average(self, function: Callable[[Any], Any], x: Any) -> Any:
        """A function that averages, of values on the grid, rounded to the grid. It is computed with integers, so that
        what is in the middle between two numbers is rounded to the even one, as in torch."""
        stored = _STORED[self.dtype]
        integers = _ops.quantize_per_tensor(x, self.scale, self.zero_point, *stored).float() - self.zero_point
        rounded = _ops.quantize_per_tensor(function(integers) + self.zero_point, 1.0, 0, *stored)
        return self.marks(_ops.dequantize_per_tensor(rounded, self.scale, self.zero_point, *stored))

    def marks(self, x: Any) -> Any:
        """The tensor, with this as its grid."""
        x._grid = self
        return x


def _grid_of(x: Any) -> Grid | None:
    return getattr(x, "_grid", None) if isinstance(x, torch.Tensor) else None


def _floats(x: Any) -> Any:
    """The same values as a tensor without a grid."""
    if _grid_of(x) is None:
        return x
    made = x.detach()
    made._grid = None
    return made


# -- layers ----------------------------------------------------------------------------------------
class _Layer(torch.nn.Module):
    """A layer with packed weights: ``product`` of its input, weights and bias, and a function behind it."""

    def __init__(self, layer: Any, product: Callable[..., Any], after: Callable[..., Any] | None) -> None:
        super().__init__()
        packed, bias = layer.weight(), layer.bias()
        if not packed.is_quantized:
            raise ModelImportError(f"weights of {packed.dtype}; convert the model back to float, which is as exact")
        self.axis: int | None = None
        if packed.qscheme() is torch.per_tensor_affine:
            self.how: tuple[Any, ...] = (packed.q_scale(), packed.q_zero_point())
        else:
            self.axis = packed.q_per_channel_axis()
            self.register_buffer("weight_scale", packed.q_per_channel_scales().float())
            self.register_buffer("weight_zero_point", packed.q_per_channel_zero_points())
        self.stored = _STORED[packed.dtype]
        self.register_buffer("weight", packed.int_repr())
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.product, self.after = product, after
        self.grid = None if isinstance(layer, _DYNAMIC) else Grid(float(layer.scale), int(layer.zero_point))

    def forward(self, x: Any) -> Any:
        x = self._rounded(x) if self.grid is None else _floats(x)
        if self.axis is None:
            weight = _ops.dequantize_per_tensor(self.weight, *self.how, *self.stored)
        else:
            scales = (self.weight_scale, self.weight_zero_point, self.axis)
            weight = _ops.dequantize_per_channel(self.weight, *scales, *self.stored)
        y = self.product(x, weight, self.bias)
        y = y if self.after is None else self.after(y)
        return y if self.grid is None else self.grid.of(y)

    def _rounded(self, x: Any) -> Any:
        """The input of a dynamic layer, rounded to a grid for the range of its values. On x86 this has 7 bits, because
        the sums of products of 8 bits would overflow."""
        stored = _STORED[torch.quint8]
        if torch.backends.quantized.engine != "qnnpack":
            stored = (0, 127, torch.uint8)
        scale, zero_point = _ops.choose_qparams(x, *stored[:2], torch.finfo(torch.float32).eps, stored[2])
        how = (scale, zero_point, *stored)
        return _ops.dequantize_per_tensor(_ops.quantize_per_tensor(x, *how), *how)


def _convolution(layer: Any) -> Callable[..., Any]:
    function = getattr(F, f"conv{'_transpose' * layer.transposed}{len(layer.kernel_size)}d")
    stride, padding, dilation, groups = layer.stride, layer.padding, layer.dilation, layer.groups

    def product(x: Any, weight: Any, bias: Any) -> Any:
        if layer.transposed:
            return function(x, weight, bias, stride, padding, layer.output_padding, groups, dilation)
        if layer.padding_mode != "zeros":
            around = [n for size in reversed(padding) for n in (size, size)]
            return function(F.pad(x, around, mode=layer.padding_mode), weight, bias, stride, 0, dilation, groups)
        return function(x, weight, bias, stride, padding, dilation, groups)

    return product


_CONVOLUTIONS = tuple(getattr(plain, f"Conv{kind}{n}d") for kind in ("", "Transpose") for n in (1, 2, 3))
_DYNAMIC = (dynamic.Linear,)
#: Classes of layers and what follows their product.
_AFTER: dict[Any, Callable[..., Any] | None] = {
    **dict.fromkeys((*_CONVOLUTIONS, plain.Linear, dynamic.Linear), None),
    **dict.fromkeys((fused.ConvReLU1d, fused.ConvReLU2d, fused.ConvReLU3d, fused.LinearReLU), torch.relu),
    fused.LinearTanh: torch.tanh,
}
#: Classes whose functions :class:`Grids` replaces.
_FUNCTIONAL = {
    *(plain.Quantize, plain.DeQuantize, plain.QFunctional, plain.FloatFunctional, plain.Dropout, plain.ReLU6),
    *(plain.Hardswish, plain.LeakyReLU, plain.Sigmoid, plain.Softmax),
    *(plain.LayerNorm, plain.GroupNorm, plain.InstanceNorm1d, plain.InstanceNorm2d, plain.InstanceNorm3d),
}


def is_quantized(model: torch.nn.Module) -> bool:
    """Whether a model has modules of torch's eager quantization."""
    return any(_is_own(module) for module in model.modules())


def _is_own(module: Any) -> bool:
    where = type(module).__module__
    return where.startswith(_PACKAGE) and ".quantized" in where


def in_floats(model: Any) -> Any:
    """The model with modules that torch.export can follow. It shares all others with the model. Raises
    ModelImportError for a module without a counterpart."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers quantized_decomposed
    made: dict[int, Any] = {}

    def converted(name: str, module: Any) -> Any:
        if id(module) not in made:
            made[id(module)] = _converted(name, module, converted)
        return made[id(module)]

    return converted("", model)


def _converted(name: str, module: Any, inner: Callable[[str, Any], Any]) -> Any:
    if type(module) in _AFTER:
        product = F.linear if isinstance(module, plain.Linear) else _convolution(module)
        named = type(type(module).__name__, (_Layer,), {"__module__": type(module).__module__})  # its scope says so
        return named(module, product, _AFTER[type(module)]).eval()
    if _is_own(module) and type(module) not in _FUNCTIONAL:
        raise ModelImportError(
            f"PyTorch: the module {name or type(module).__name__} ({type(module).__name__}) of torch's eager "
            "quantization has no counterpart; quantize the model by torchao or pt2e, whose integers are kept"
        )
    parts = {key: part and inner(f"{name}.{key}".strip("."), part) for key, part in module._modules.items()}
    numbers = {key: value for key, value in module._buffers.items() if _is_own(module) and value.numel() == 1}
    if not numbers and all(part is module._modules[key] for key, part in parts.items()):
        return module
    made = copy.copy(module)
    made._modules = parts
    made._buffers = {key: value for key, value in module._buffers.items() if key not in numbers}
    vars(made).update({key: value.item() for key, value in numbers.items()})  # scales are constants of the program
    return made


# -- functions -------------------------------------------------------------------------------------
def _relu(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: torch.relu(function(*args, **named))


#: Functions of ``torch.ops.quantized``, without their last arguments, which are the grid of the result.
_ROUNDED: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "add_relu": _relu(torch.add),
    "mul": torch.mul,
    "mul_relu": _relu(torch.mul),
    "matmul": torch.matmul,
    "cat": lambda parts, dim=0: torch.cat(parts, dim),
    "cat_relu": _relu(lambda parts, dim=0: torch.cat(parts, dim)),
    "hardswish": F.hardswish,
    "leaky_relu": lambda x, slope=0.01, inplace=False: F.leaky_relu(x, slope),
    "sigmoid": torch.sigmoid,
    "softmax": torch.softmax,
    "layer_norm": lambda x, shape, weight, bias, eps: F.layer_norm(x, shape, weight, bias, eps),
    "group_norm": lambda x, groups, weight, bias, eps: F.group_norm(x, groups, weight, bias, eps),
    "instance_norm": lambda x, weight, bias, eps: F.instance_norm(x, None, None, weight, bias, True, 0.1, eps),
}
#: The grids of functions whose results have a known range.
_FIXED = {"hardsigmoid": Grid(1 / 256, 0), "sigmoid": Grid(1 / 256, 0), "tanh": Grid(2 / 256, 128)}
#: Functions whose results are sizes, or numbers of the grid of their argument, and those that round results to it.
_KEEP = frozenset(
    "relu relu_ max_pool1d max_pool2d max_pool3d flatten reshape view view_as permute transpose t squeeze unsqueeze "
    "chunk split unbind select narrow index_select contiguous clone detach expand repeat tile movedim swapaxes flip "
    "roll unflatten __getitem__ pad stack cat concat concatenate channel_shuffle pixel_shuffle pixel_unshuffle "
    "dropout dropout_ sort topk max min amax amin size dim numel stride is_contiguous __len__ ndimension".split()
)
_SAME_GRID = frozenset("mean clamp clamp_ clip hardtanh hardtanh_ relu6 leaky_relu threshold".split())
#: Functions that torch computes with integers. Their results are often in the middle between two numbers of the grid.
_AVERAGES = frozenset("avg_pool2d avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d interpolate upsample".split())


#: What a quantized tensor says about itself.
_SAYS: dict[Any, Callable[[Grid], Any]] = {
    torch.Tensor.is_quantized.__get__: lambda grid: True,  # type: ignore[attr-defined]
    torch.Tensor.dtype.__get__: lambda grid: grid.dtype,  # type: ignore[attr-defined]
    torch.Tensor.q_scale: lambda grid: grid.scale,
    torch.Tensor.q_zero_point: lambda grid: grid.zero_point,
}


class Grids(TorchFunctionMode):
    """A context manager: inside, functions of quantized tensors are functions of floats whose results are rounded."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named, name = kwargs or {}, getattr(function, "__name__", "")
        name = name if name.startswith("__") else name.removeprefix("_")  # _max_pool2d
        grid = next((g for leaf in tree_leaves((args, named)) if (g := _grid_of(leaf))), None)
        if function is torch.quantize_per_tensor:
            how: list[Any] = [*args[1:], *named.values()]
            return Grid(float(how[0]), int(how[1]), how[2]).of(args[0])
        if grid is not None and function in _SAYS:
            return _SAYS[function](grid)
        if grid is None or name == "__get__":
            return function(*args, **named)
        if name == "dequantize":
            return _floats(args[0])
        floats = tree_map(_floats, (args, named))
        if "quantized" in getattr(function, "_qualified_op_name", str(function)):
            return _of_quantized(name.partition(".")[0], grid, *floats)
        if not any(name in names for names in (_FIXED, _SAME_GRID, _AVERAGES, _KEEP)):
            raise ModelImportError(f"{name} of a quantized tensor; call it on x.dequantize()")
        if name in _AVERAGES:
            return grid.average(lambda x: function(x, *floats[0][1:], **floats[1]), floats[0][0])
        found = function(*floats[0], **floats[1])
        if name not in _KEEP:
            return _FIXED.get(name, grid).of(found)
        for result in tree_leaves(found):
            if isinstance(result, torch.Tensor) and result.is_floating_point():
                grid.marks(result)
        return found


def _of_quantized(name: str, grid: Grid, args: Sequence[Any], named: dict[str, Any]) -> Any:
    """The result of a function of ``torch.ops.quantized``, by its name."""
    if name in ("add_scalar", "mul_scalar"):  # the grid is moved, or scaled
        x, number = args[0], args[1]
        if name == "add_scalar" or number <= 0:
            raise ModelImportError(f"{name} of a quantized tensor; call it on x.dequantize()")
        return Grid(grid.scale * number, grid.zero_point, grid.dtype).marks(x * number)
    if name == "relu6":
        return grid.of(F.relu6(args[0]))
    if name not in _ROUNDED:
        raise ModelImportError(f"torch.ops.quantized.{name} has no counterpart; quantize the model by torchao or pt2e")
    ends = ("scale", "zero_point", "output_scale", "output_zero_point")
    *args, scale, zero_point = (*args, *(named[key] for key in ends if key in named))
    named = {key: value for key, value in named.items() if key not in ends}
    return Grid(float(scale), int(zero_point), grid.dtype).of(_ROUNDED[name](*args, **named))
