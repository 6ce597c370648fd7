"""Convolution, transposed convolution and pooling over three spatial axes, [N, C, D, H, W], as in torch.
Rules and references are those for any number of axes (:mod:`~fxlite.ops.image.convolution`,
:mod:`~fxlite.ops.image.transposed_convolution`, :mod:`~fxlite.ops.image.pooling`). Back ends compute all
of these with loops.
"""

from __future__ import annotations

import numpy as np

from fxlite.ops.image.convolution import Ints, convolves, run_convolution
from fxlite.ops.image.pooling import Sizes, pools, pools_adaptively, run_adaptive, run_avg, run_max, windows_of
from fxlite.ops.image.transposed_convolution import convolves_transposed, run_transposed
from fxlite.ops.op import OptionalTensor, Tensor, op
from fxlite.ops.parameters import Attribute
from fxlite.ops.samples import Bad

_UNBATCHED = "add the batch axis with x[None]"


@op(
    "contraction",
    weight="weight",
    expands_weight=True,
    is_convolution=True,
    samples=[
        "f32[B,3,D,H,W] f32[4,3,3,3,3] f32[4] padding=1 B=2 D=4 H=5 W=3",
        "f32[1,4,5,4,6] f32[6,2,2,1,3] stride=(2,1,2) groups=2 padding=(1,0,1)",
        "f32[1,2,5,6,5] f32[3,2,2,3,2] dilation=(2,1,3); f32[1,2,3,4,4] f32[3,2,2,2,3] padding='same'",
        "f64[1,2,3,3,3] f64[3,2,1,1,1] f64[3] stride=2; f16[1,2,3,3,3] f16[3,2,2,2,2] f16[3]",
        "i32[1,2,3,3,3] i32[2,2,2,2,2]; f32[0,3,4,4,4] f32[4,3,2,2,2]",
    ],
    bad=[
        Bad("f32[2,3,4,4,4]", "f32[4,2,3,3,3]", match="x has 3 channels, but weight takes 2"),
        Bad("f32[3,4,4,4]", "f32[4,3,3,3,3]", match=_UNBATCHED),
        Bad("f32[2,3,2,4,4]", "f32[4,3,3,3,3]", match="does not fit along D"),
        Bad("f32[2,3,4,4,4]", "f32[4,3,3,3]", match="weight must be [C_out, C_in/groups, kd, kh, kw]"),
        Bad("f32[2,3,4,4,4]", "f32[4,3,3,3,3]", stride=(1, 2), match="an int or 3 ints"),
    ],
)
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: OptionalTensor = None,
    stride: Ints = 1,
    padding: Attribute = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over three axes (torch.nn.functional.conv3d): ``x [N, C, D, H, W]``,
    ``weight [C_out, C/groups, kd, kh, kw]``, ``bias [C_out]``. See :func:`conv2d`."""
    return run_convolution(3, x, weight, bias, stride, padding, dilation, groups)


@op(
    "contraction",
    weight="weight",
    expands_weight=True,
    transposes="conv3d",
    samples=[
        "f32[B,3,D,2,3] f32[3,2,3,3,2] f32[2] stride=2 padding=1 output_padding=1 B=2 D=3",
        "f32[1,4,2,3,2] f32[4,3,2,2,3] stride=(1,2,3) groups=2 padding=(0,1,0)",
        "f32[1,2,3,2,2] f32[2,3,2,2,2] dilation=(2,1,3); f64[1,2,2,2,2] f64[2,2,2,2,2] stride=2",
        "f16[1,2,2,2,2] f16[2,2,2,1,2] f16[2]; f32[0,3,2,2,2] f32[3,4,2,2,2]",
    ],
    bad=[
        Bad("f32[2,3,4,4,4]", "f32[4,2,3,3,3]", match="x has 3 channels, but weight takes 4"),
        Bad("f32[3,4,4,4]", "f32[3,2,3,3,3]", match=_UNBATCHED),
        Bad("f32[2,3,4,4,4]", "f32[3,2,3,3,3]", output_padding=1, match="must be smaller than stride 1"),
    ],
)
def conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: OptionalTensor = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution over three axes (torch.nn.functional.conv_transpose3d):
    ``x [N, C, D, H, W]``, ``weight [C, C_out/groups, kd, kh, kw]``. See :func:`conv_transpose2d`."""
    return run_transposed(3, x, weight, bias, stride, padding, output_padding, groups, dilation)


_BAD = [
    Bad("f32[3,8,8,8]", 2, match=_UNBATCHED),
    Bad("f32[2,3,8,8,1]", 2, match="does not fit along W"),
    Bad("f32[2,3,8,8,8]", (2, 2), match="an int or 3 ints"),
]
_SAMPLES = [
    "f32[B,3,D,H,W] 2 B=2 D=4 H=5 W=6; f32[1,2,5,4,6] (3,2,2) stride=(2,1,2) padding=(1,0,1)",
    "f32[1,2,4,5,6] 3 2 1 ceil_mode=True; f64[1,2,3,3,3] 2; f32[0,2,3,3,3] 2",
]


@op(
    "window",
    moves_values=True,
    scales=True,
    samples=[
        *_SAMPLES,
        "f32[1,2,6,5,5] 2 stride=2 dilation=(3,1,2); f32[1,1,3,3,3]! 2 1; i32[1,2,3,3,3] 2 1; f16[1,2,3,3,3] 2",
    ],
    bad=_BAD,
)
def max_pool3d(
    x: Tensor,
    kernel_size: Ints,
    stride: Attribute = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of ``x [N, C, D, H, W]``. See :func:`max_pool2d`."""
    return run_max(3, x, windows_of(3, kernel_size, stride, padding, dilation), ceil_mode)


@op(
    "window",
    role="sum",
    scales=True,
    samples=[*_SAMPLES, "f32[1,2,4,5,6] 3 2 1 ceil_mode=True count_include_pad=False"],
    bad=[*_BAD, Bad("i32[2,3,8,8,8]", 2, match="must be a float tensor")],
)
def avg_pool3d(
    x: Tensor,
    kernel_size: Ints,
    stride: Attribute = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of ``x [N, C, D, H, W]``. See :func:`avg_pool2d`."""
    return run_avg(3, x, windows_of(3, kernel_size, stride, padding), ceil_mode, count_include_pad)


_ADAPTIVE = [
    "f32[B,2,D,H,W] (3,2,1) B=2 D=5 H=4 W=3; f32[1,2,4,3,5] (2,None,4); f64[1,2,3,3,3] 2; f16[1,2,3,3,3] 1",
    "f32[0,2,3,3,3] 2",
]
_ADAPTIVE_BAD = [Bad("f32[3,8,8,8]", 2, match=_UNBATCHED), Bad("f32[2,3,8,8,8]", (2, 2), match="output_size must be")]


@op("window", role="sum", scales=True, samples=_ADAPTIVE, bad=_ADAPTIVE_BAD)
def adaptive_avg_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """The mean of each adaptive window: ``x [N, C, D, H, W]`` to ``[N, C, *output_size]``. See
    :func:`adaptive_avg_pool2d`."""
    return run_adaptive(x, output_size, 3, np.mean)


@op("window", moves_values=True, scales=True, samples=_ADAPTIVE, bad=_ADAPTIVE_BAD)
def adaptive_max_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """The largest element of each adaptive window: ``x [N, C, D, H, W]`` to ``[N, C, *output_size]``. See
    :func:`adaptive_max_pool2d`."""
    return run_adaptive(x, output_size, 3, np.max)


convolves(conv3d, 3)
convolves_transposed(conv_transpose3d, 3)
pools(max_pool3d, avg_pool3d, 3)
pools_adaptively(adaptive_avg_pool3d, 3, "sum")
pools_adaptively(adaptive_max_pool3d, 3, "max")
