"""The functions of :mod:`fxlite.nn.functional` as rows of the table, on every float dtype and on
integers, bools where one is legal.

In: the names of the module. Out: :class:`~tests.table.rows.Row` records whose reference is the
function itself, run on arrays. A function has its calls in :data:`CALLS`: the expression, then the
types of ``a``, ``b``, ``c``, ... (without a dtype: each of the table's in turn), then what values
they have. Sums and windows take ``salted`` values, one hard value in each slice of the first axis,
so that NaN and infinities do not cover everything else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import fxlite.nn.functional as functional
from tests.table.rows import LENGTHS, NAMES, Row

#: Functions of one value: what follows the value, and other arguments to try.
ACTIVATIONS = """
relu | relu6 | elu | elu, 0.7 | elu, -2.0 | selu | celu | celu, 1.3 | leaky_relu | leaky_relu, 0.2
leaky_relu, -1.5 | gelu | gelu, "tanh" | silu | mish | hardswish | hardsigmoid | hardtanh
hardtanh, -2.0, 3.0 | softplus | softplus, 2.0 | softplus, 1.0, 3.0 | hardshrink | hardshrink, 1.5
softshrink | softshrink, 1.5 | threshold, 0.5, 7.0 | softsign | logsigmoid | tanhshrink | tanh
sigmoid | dropout, 0.5, False | dropout, 0.0
"""
_SHAPES = ("[N]", "[]", "[1]", "[3,0]", "[2,5]")

#: All others, "call : shapes of a, b, ... / other shapes : roles" (no roles: salted, mild, ...).
CALLS = """
prelu(a, b) : [70,3] [3] / [7] [1] / [2,3,0] [3] / [0] [1] / [] [1] : hard mild
glu(a) : [N,6] / [6] / [0,4] / [2,0] / [70,2]
glu(a, 0) : [6,3] / [2]
softmax(a, -1) : [70,7] / [N,1] / [2,0] / [0,3] / [] / [1] / [3,1037] / [N]
softmax(a, 0) : [7,2] / [N,3]
softmin(a, 1) : [70,7] / [2,0]
softmin(a, 0, np.float64) : [7]
log_softmax(a, -1) : [70,7] / [N,1] / [2,0] / [0,3] / [] / [3,1037]
log_softmax(a, 0) : [7,2]
linear(a, b) : [70,7] [5,7] / [N,3] [4,3] / [7] [5,7] / [2,0] [3,0] / [0,7] [5,7] / [1,1037] [2,1037]
linear(a, b, c) : [70,7] [5,7] [5] / [2,0] [3,0] [3] / [2,3,4] [0,4] [0]
linear(b, a) : [70,7] [5,7]
bilinear(a, b, c) : [5,3] [5,2] [4,3,2]
bilinear(a, b, c, d) : [5,3] [5,2] [4,3,2] [4] / [0,3] [0,2] [4,3,2] [4]
conv1d(a, b) : [70,3,9] [4,3,3] / [0,3,9] [4,3,3] / [1,1,1] [1,1,1]
conv1d(a, b, c, stride=2, padding=1) : [70,4,9] [4,4,3] [4] / [2,0,9] [4,0,3] [4]
conv1d(a, b, c, padding=2, dilation=2, groups=2) : [5,4,9] [4,2,3] [4]
conv2d(a, b) : [70,3,6,5] [4,3,3,3] / [0,3,5,5] [4,3,3,3] / [1,1,1,1] [1,1,1,1] / [N,2,4,4] [3,2,1,1]
conv2d(a, b, c, padding=1) : [70,4,6,5] [4,4,3,3] [4] / [2,3,5,5] [0,3,3,3] [0]
conv2d(a, b, c, stride=2, padding=1, groups=4) : [70,4,6,5] [4,1,3,3] [4]
conv2d(a, b, c, padding=1, layout="NHWC") : [5,6,5,4] [4,4,3,3] [4]
conv3d(a, b, c, 2, 1) : [5,4,4,3,5] [4,4,3,3,3] [4] / [0,3,3,3,3] [4,3,1,2,1] [4]
conv_transpose3d(a, b) : [5,3,2,3,2] [3,2,2,2,3] / [0,3,2,2,2] [3,2,1,1,1]
max_pool3d(a, 2) : [5,3,4,5,4] / [0,3,4,4,4]
avg_pool3d(a, 2, 1) : [5,3,4,3,4]
adaptive_avg_pool3d(a, 2) : [5,3,4,3,4]
adaptive_max_pool3d(a, 2) : [5,3,4,3,4]
conv_transpose1d(a, b) : [70,3,5] [3,4,3] / [0,3,5] [3,4,3]
conv_transpose1d(a, b, c, stride=2, padding=1) : [5,3,5] [3,4,3] [4]
conv_transpose2d(a, b) : [70,3,4,5] [3,2,3,3] / [0,3,4,5] [3,2,3,3]
conv_transpose2d(a, b, c, 2, 1, 1, 2) : [5,4,4,5] [4,2,3,3] [4]
batch_norm(a, b, c) : [70,3] [3] [3] / [5,3,4,4] [3] [3] / [0,3] [3] [3] : salted mild whole
batch_norm(a, b, c, d, e) : [70,3,5] [3] [3] [3] [3] : salted mild whole mild mild
batch_norm(b, a, c) : [70] [2,70,2] [70] : hard mild whole
batch_norm(b, c, a) : [70] [2,70,2] [70] : hard mild mild
batch_norm(a, None, None, training=True) : [70,3] / [5,3,4,4] / [0,3] / [1,3,2]
batch_norm(a, None, None, b, c, True) : [5,3,4,4] [3] [3]
layer_norm(a, (7,)) : [70,7] / [7] / [0,7] / [2,3,7]
layer_norm(a, 1037) : [70,1037]
layer_norm(a, (3, 4), b, c) : [70,3,4] [3,4] [3,4] / [0,3,4] [3,4] [3,4]
layer_norm(a, (7,), None, None, 0.0) : [70,7]
layer_norm(a, (1,)) : [7,1] / [1]
layer_norm(a, (0,)) : [2,0]
rms_norm(a, (7,)) : [70,7] / [7] / [0,7]
rms_norm(a, (1037,), b) : [70,1037] [1037]
rms_norm(a, (7,), b, 1e-3) : [70,7] [7]
rms_norm(a, (0,)) : [2,0]
group_norm(a, 2) : [70,4] / [70,4,3] / [0,4,3] / [2,4,0]
group_norm(a, 2, b, c) : [5,4,3,3] [4] [4]
group_norm(a, 4, b) : [5,4,2] [4]
instance_norm(a) : [70,3,5] / [5,3,4,4] / [0,3,5]
instance_norm(a, None, None, b, c) : [70,3,5] [3] [3]
instance_norm(a, b, c, None, None, False) : [70,3,5] [3] [3] : salted mild whole
normalize(a) : [70,7] / [0,7] / [2,0] / [7,1] / [70,1037]
normalize(a, 1.0, -1) : [70,7] / [7]
normalize(a, 3.0, 0) : [7,5]
normalize(a, float("inf"), 1) : [70,7]
normalize(a, 0.5, 1, 1e-3) : [70,7]
cosine_similarity(a, b) : [70,7] [70,7] / [0,7] [0,7] / [70,7] [1,7]
cosine_similarity(a, b, -1) : [7] [7] / [2,0] [2,0]
cosine_similarity(a, a, 0) : [7,3]
cross_entropy(a, b) : [70,5] i64[70] / [0,5] i64[0] / [5] i64[] : salted class
cross_entropy(a, b, reduction="none") : [70,5] i64[70] / [4,5,3] i64[4,3] / [0,5] i32[0] : salted class
cross_entropy(a, b, c, reduction="sum", label_smoothing=0.1) : [70,5] i64[70] [5] : mild class whole
cross_entropy(a, b, c, ignore_index=2) : [70,5] u8[70] [5] : mild class whole
cross_entropy(a, b, reduction="none") : [70,5] [70,5] : salted mild
nll_loss(a, b) : [70,5] i64[70] / [0,5] i64[0] / [5] i32[] : mild class
nll_loss(a, b, reduction="none") : [70,5] i64[70] / [4,5,3] i64[4,3] : salted class
nll_loss(a, b, c, ignore_index=1, reduction="sum") : [70,5] i64[70] [5] : mild index whole
mse_loss(a, b) : [7] [7] / [0] [0] / [] [] / [1037] [1037] : mild mild2
mse_loss(a, b, reduction="none") : [N] [N] / [] [] : left: right:
mse_loss(a, b, reduction="sum") : [2,5] [2,5] : mild mild2
l1_loss(a, b) : [7] [7] / [0] [0] / [] [] : mild mild2
l1_loss(a, b, reduction="none") : [N] [N] : left: right:
binary_cross_entropy_with_logits(a, b) : [7] [7] / [0] [0] / [] [] / [1037] [1037] : mild mild2
binary_cross_entropy_with_logits(a, b, reduction="none") : [N] [N] : hard truth
binary_cross_entropy_with_logits(a, b, reduction="none") : [N] [N] : left: right:
binary_cross_entropy_with_logits(a, b, c, reduction="none", pos_weight=d) : [70,3] [70,3] [3] [3] : salted truth mild whole
dropout1d(a, 0.5, False) : [2,3,5] / [3,5] / [0,3,5]
dropout2d(a, 0.5, False) : [2,3,4,5] / [3,4,5]
dropout1d(a, 0.0) : [2,3,5]
dropout2d(a, 0.0) : [2,3,4,5]
scaled_dot_product_attention(a, b, c) : [70,2,4] [70,3,4] [70,3,5] / [2,0,4] [2,3,4] [2,3,5] / [2,3,4] [2,0,4] [2,0,5] / [0,2,4] [0,3,4] [0,3,5]
scaled_dot_product_attention(b, a, c) : [70,3,4] [70,2,4] [70,3,5]
scaled_dot_product_attention(b, c, a) : [70,3,5] [70,2,4] [70,3,4]
scaled_dot_product_attention(a, b, c, is_causal=True) : [70,3,4] [70,3,4] [70,3,5] / [1,1,1] [1,1,1] [1,1,1]
scaled_dot_product_attention(a, b, c, d) : [5,3,4] [5,3,4] [5,3,5] bool[3,3] : mild mild mild truth
scaled_dot_product_attention(a, b, c, d, scale=0.3) : [5,3,4] [5,3,4] [5,3,5] [5,3,3] : mild mild mild salted
attention_weights(a, b) : [70,2,4] [70,3,4] / [2,3,4] [2,0,4]
attention_weights(a, b, c) : [2,3,4] [2,3,4] bool[3,3] : mild mild truth
causal_mask(a, a) : [3,4] / [0,4]
embedding(a, b) : i64[7] [5,3] / i32[] [5,3] / i8[0] [5,3] / u8[2,3] [5,1] / i64[3] [5,0] : index hard
embedding(a, b) : [7] f32[5,3] : index mild
embedding(a, b, 2) : i64[7] [5,3] : index hard
one_hot(a, 5) : [7] / [] / [0] / [2,3] : index
topk(a, 3)[0] : [70,7] / [9] / [0,3] / [3,1037] : hard
topk(a, 2, 0, False)[1] : [7,3] / [2] : hard
max_pool1d(a, 2) : [70,3,9] / [0,3,9] / [3,9]
max_pool1d(a, 3, 2, 1, 2, True) : [70,3,9]
max_pool2d(a, 2) : [70,3,6,5] / [0,3,6,5] / [1,1,2,2]
max_pool2d(a, 3, 2, 1) : [70,3,6,5]
max_pool2d(a, (2, 3), 1, (1, 0), (2, 1), True) : [5,3,6,5]
max_pool2d(a, 2, layout="NHWC") : [5,6,5,3]
max_pool2d(a, 3, 2, 1, return_indices=True)[1] : [70,3,6,5] / [0,3,6,5]
max_pool1d(a, 2, return_indices=True)[1] : [70,3,9]
adaptive_max_pool2d(a, (2, 3), True)[1] : [70,3,6,5]
max_unpool1d(a, b, 9) : [7,3,1] i64[7,3,1] / [0,3,1] i64[0,3,1] : salted index
max_unpool2d(a, b, 3) : [7,3,1,1] i64[7,3,1,1] : salted index
max_unpool3d(a, b, 2, output_size=(2, 2, 3)) : [7,3,1,1,1] i64[7,3,1,1,1] : salted index
avg_pool1d(a, 2) : [70,3,9] / [0,3,9] / [3,9]
avg_pool1d(a, 3, 2, 1, True, False) : [70,3,9]
avg_pool2d(a, 2) : [70,3,6,5] / [0,3,6,5]
avg_pool2d(a, 3, 2, 1, True) : [70,3,6,5]
avg_pool2d(a, 3, 2, 1, False, False) : [5,3,6,5]
avg_pool2d(a, (2, 3), divisor_override=5) : [5,3,6,5]
avg_pool2d(a, 2, layout="NHWC") : [5,6,5,3]
adaptive_avg_pool1d(a, 4) : [70,3,9] / [0,3,9]
adaptive_avg_pool2d(a, (2, 3)) : [70,3,6,5]
adaptive_avg_pool2d(a, 1) : [70,3,6,5] / [0,3,6,5]
adaptive_max_pool1d(a, 4) : [70,3,9]
adaptive_max_pool2d(a, (2, 3)) : [70,3,6,5] / [0,3,6,5]
grid_sample(a, b, align_corners=False) : [5,3,4,5] [5,2,3,2] / [0,3,4,5] [0,2,3,2] : mild mild
grid_sample(a, b, "bicubic", "border", True) : [5,3,4,5] [5,2,3,2] : mild mild
grid_sample(a, b, "nearest", "reflection", False) : [5,3,2,4,5] [5,1,2,3,3] : mild mild
affine_grid(a, (5, 3, 4, 6), False) : [5,2,3] : mild
affine_grid(a, (5, 3, 4, 2, 6), True) : [5,3,4] : mild
interpolate(a, 7) : [70,3,4] / [0,3,4]
interpolate(a, scale_factor=2) : [70,3,4,5] / [2,3,1,1]
interpolate(a, (3, 9)) : [5,3,4,5]
interpolate(a, (5, 7), mode="bilinear") : [70,3,4,5] / [0,3,4,5]
interpolate(a, (5, 7), mode="bilinear", align_corners=True) : [70,3,4,5]
interpolate(a, (5, 3, 4), mode="trilinear") : [5,3,4,2,3] / [0,3,2,2,2] : mild
interpolate(a, scale_factor=(2, 0.5, 1.5)) : [5,3,4,2,3]
interpolate(a, (3, 9), mode="bicubic") : [5,3,4,5] / [0,3,4,5]
interpolate(a, (3, 9), mode="bicubic", align_corners=True) : [5,3,4,5]
interpolate(a, (2, 9), mode="bilinear", antialias=True) : [5,3,4,5]
interpolate(a, scale_factor=0.4, mode="bicubic", antialias=True) : [5,3,7,5] : mild
interpolate(a, 7, mode="nearest-exact") : [5,3,4] / [5,3,4,5]
interpolate(a, 2, mode="area") : [5,3,4] / [5,3,4,5]
interpolate(a, scale_factor=1.7, mode="linear", recompute_scale_factor=True) : [5,3,4]
interpolate(a, 7, mode="linear") : [70,3,4]
pad(a, (1, 2)) : [7] / [2,5] / [0] / [3,0]
pad(a, (1, 2, 0, 1), value=1.0) : [2,5]
pad(a, (-1, 2)) : [7]
flatten(a) : [2,5,3] / [] / [3,0] / [7]
flatten(a, 1) : [2,5,3] / [0,5,3] / [N,2,3]
unflatten(a, 1, (2, -1)) : [3,6] / [0,6]
unflatten(a, 0, (2, 3)) : [6]
pixel_shuffle(a, 2) : [70,4,2,3] / [0,8,2,3]
"""  # noqa: E501


def functions() -> Iterator[Row]:
    """Every function on every dtype."""
    for form, dtype in itertools.product(ACTIVATIONS.strip().replace("\n", " | ").split(" | "), NAMES):
        name, _, others = form.partition(", ")
        text = f"functional.{name}({', '.join(filter(None, ('a', others)))})"
        for shape in _SHAPES:
            sizes = LENGTHS if "N" in shape else (0,)
            yield Row(f"functional.{name}", text, (f"{dtype}{shape}",), ("hard",), sizes)
    for line in CALLS.strip().splitlines():
        call, kinds, *given = line.split(" : ")
        for choice, dtype in itertools.product(kinds.split(" / "), NAMES):
            types = tuple(t if t[0] != "[" else dtype + t for t in choice.split())
            roles = given[0].split() if given else ["salted", "mild", *["mild2"] * len(types)]
            roles = [role + dtype if role.endswith(":") else role for role in roles]
            sizes = LENGTHS if "N" in choice else (0,)
            name = f"functional.{call.partition('(')[0]}"
            if dtype != NAMES[0] or any(t[0] == "[" for t in choice.split()):
                yield Row(name, f"functional.{call}", types, tuple(roles[: len(types)]), sizes)


def names_without_calls() -> list[str]:
    """Functions that the table does not try."""
    tried = {r.function.partition(".")[2] for r in functions()}
    return sorted({*functional.__all__} - tried)
