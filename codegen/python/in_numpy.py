"""Functions of NumPy for what NumPy does not offer as one call: the text of those that a program needs
is part of its source in the dialect "numpy".

Functions are called like the ops and have their parameters; images are [N, C, ...] with any number of
spatial axes. Nothing here is typed, because a reader of the emitted file needs to know only NumPy.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


# -- modules ---------------------------------------------------------------------------------------
class Identity:
    """Returns its input."""

    def __call__(self, x):
        return x


class Weights:
    """Arrays and other parts by any name: ``self["0"]`` or ``self[0]``."""

    def __init__(self, parts=None, /, **named):
        for name, value in {**(parts or {}), **named}.items():
            self.add(name, value)

    def add(self, name, value):
        """Add an array or another part."""
        setattr(self, str(name), value)

    def __getitem__(self, name):
        return getattr(self, str(name))


def load_weights(model, path):
    """Fill the arrays of a model from an .npz file of arrays by name, ``layers.0.weight``."""
    for name, array in np.load(path).items():
        owner = model
        *parents, last = name.split(".")
        for part in parents:
            owner = owner[int(part)] if isinstance(owner, list) else getattr(owner, part)
        target = getattr(owner, last)
        if array.shape != target.shape:
            raise ValueError(f"{name} has the shape {array.shape}, not {target.shape}")
        target[...] = array.view(target.dtype) if array.dtype.kind == "V" else array
    return model


# -- functions of numbers --------------------------------------------------------------------------
def complex_of(x, y):
    """The complex numbers of these real and imaginary parts."""
    dtype = np.result_type(x, y, np.complex64)
    numbers = np.empty(np.broadcast_shapes(np.shape(x), np.shape(y)), dtype)
    numbers.real, numbers.imag = x, y
    return numbers[()]


def erf(x):
    """Error function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def exponent(x):
    """The exponent of np.frexp."""
    return np.frexp(x)[1]


def ordered(x):
    """The numbers in a form that NumPy can sort: bfloat16 NaN has no place in its order."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def sort(x, axis=-1):
    """Ascending, equal elements in their order."""
    return np.sort(ordered(x), axis=axis, kind="stable").astype(x.dtype)


def flatnonzero(x, size=None):
    """Positions where x holds, then zeros."""
    places = np.flatnonzero(x)[:size]
    return np.pad(places, (0, (len(x) if size is None else size) - len(places)))


def argsort(x, axis=-1):
    """Positions that sort, of equal elements in their order."""
    return np.argsort(ordered(x), axis=axis, kind="stable")


def argtopk(x, k, axis=-1, largest=True):
    """Positions of the k largest or smallest elements; equal ones in their order, NaN the largest."""
    x = ordered(x)
    if not largest:
        return np.take(np.argsort(x, axis=axis, kind="stable"), np.arange(k), axis)
    backward = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.take(x.shape[axis] - 1 - np.flip(backward, axis), np.arange(k), axis)


def slogdet(x):
    """Sign and logarithm of determinants, side by side."""
    return np.stack(np.linalg.slogdet(x), axis=-1)


def signed(rows, start):
    """Rows, but for their first number, with one sign for all that are alike."""
    sizes = np.abs(rows[..., start:])
    if not sizes.size:
        return rows
    first = np.argmax(sizes > 0.37 * sizes.max(axis=-1, keepdims=True), axis=-1)
    negative = np.take_along_axis(rows[..., start:], first[..., None], axis=-1) < 0
    return np.concatenate(
        [rows[..., :1], np.where(negative, -rows[..., 1:], rows[..., 1:])], axis=-1
    )


def qr_rows(x, complete=False):
    """Columns of Q and rows of R, side by side."""
    q, r = np.linalg.qr(x, mode="complete" if complete else "reduced")
    return np.concatenate([q.swapaxes(-1, -2), r], axis=-1)


def eigh_rows(x, vectors=True):
    """Eigenvalues and eigenvectors, side by side."""
    if not vectors:
        return np.linalg.eigvalsh(x)[..., None]
    values, found = np.linalg.eigh(x)
    return signed(np.concatenate([values[..., None], found.swapaxes(-1, -2)], axis=-1), 1)


def svd_rows(x, vectors=True):
    """Singular values, left and right singular vectors, side by side."""
    if not vectors:
        return np.linalg.svd(x, compute_uv=False)[..., None]
    left, values, right = np.linalg.svd(x, full_matrices=False)
    rows = np.concatenate([values[..., None], left.swapaxes(-1, -2), right], axis=-1)
    return signed(rows, 1 + x.shape[-2])


def philox(key, start, shape, stream=0):
    """Random bits, u32: four words of Philox 4x32-10 for each counter from ``start`` on."""
    mask, half, count = np.uint64(2**32 - 1), np.uint64(32), math.prod(shape)
    block = np.asarray(start, np.int64) + np.arange(-(-count // 4))
    a, b, d = block.astype(np.uint64) & mask, block.astype(np.uint64) >> half, np.uint64(0)
    c, keys = np.full_like(a, stream), np.asarray(key).astype(np.uint64)
    for number in range(10):
        low, high = (
            keys + np.uint64(number) * np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
        ) & mask
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (
            (second >> half) ^ b ^ low,
            second & mask,
            (first >> half) ^ d ^ high,
            first & mask,
        )
    return np.stack([a, b, c, d], axis=-1).astype(np.uint32).reshape(-1)[:count].reshape(shape)


def sigmoid(x):
    """``1 / (1 + exp(-x))``, which overflows on neither side."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def silu(x):
    """``x * sigmoid(x)``."""
    return x * sigmoid(x)


def gelu(x, approximate="none"):
    """``x`` times the normal distribution function; "tanh": the usual approximation of it."""
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def hardsigmoid(x):
    """A piecewise linear sigmoid."""
    return np.clip(x + 3, 0, 6) / 6


def hardswish(x):
    """``x * hardsigmoid(x)``."""
    return x * np.clip(x + 3, 0, 6) / 6


def elu(x, alpha=1.0):
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def selu(x):
    """Scaled elu that keeps mean 0 and variance 1."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def celu(x, alpha=1.0):
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def leaky_relu(x, negative_slope=0.01):
    """``x`` where positive, else ``negative_slope * x``."""
    return np.where(x > 0, x, negative_slope * x)


def prelu(x, weight):
    """``x`` where positive, else ``weight * x``, with one weight or one for each channel."""
    slope = per_channel(weight, x.ndim) if x.ndim else weight[0]
    return np.where(x > 0, x, slope * x)


def softplus(x, beta=1.0, threshold=20.0):
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where that is the same."""
    return np.where(beta * x > threshold, x, np.logaddexp(0, beta * x) / beta)


def softsign(x):
    """``x / (1 + |x|)``."""
    return x / (1 + np.abs(x))


def mish(x):
    """``x * tanh(log(1 + exp(x)))``."""
    return x * np.tanh(np.logaddexp(0, x))


def tanhshrink(x):
    """``x - tanh(x)``."""
    return x - np.tanh(x)


def hardshrink(x, lambd=0.5):
    """0 where ``|x| <= lambd``, else ``x``."""
    return np.where(np.abs(x) <= lambd, 0, x)


def softshrink(x, lambd=0.5):
    """``x`` moved toward 0 by ``lambd``, 0 where it is nearer than that."""
    return x - np.clip(x, -lambd, lambd)


def threshold(x, threshold, value):
    """``x`` where above the threshold, else ``value``."""
    return np.where(x <= threshold, value, x)


def logsigmoid(x):
    """``log(sigmoid(x))``, exact where sigmoid underflows."""
    return -np.logaddexp(0, -x)


def glu(x, axis=-1):
    """The first half of ``x`` times the sigmoid of the second."""
    first, second = np.split(x, 2, axis=axis)
    return first * sigmoid(second)


def dropout(x, p=0.5):
    """Zeros with probability ``p``, other elements divided by ``1 - p``."""
    kept = np.random.random(x.shape) >= p
    return np.where(kept, x / (1 - p) if p < 1 else x, 0)


# -- along axes ------------------------------------------------------------------------------------
def softmax(x, axis=-1):
    """``exp(x) / sum(exp(x))`` along an axis."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax(x, axis=-1):
    """The logarithm of softmax."""
    x = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))


def logsumexp(x, axis=None, keepdims=False):
    """``log(sum(exp(x)))`` over axes, without overflow."""
    largest = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(largest), largest, 0)
    result = np.log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return result if keepdims else np.squeeze(result, axis)


def normalize(x, p=2.0, axis=1, eps=1e-12):
    """``x`` divided by its p-norm along an axis, which counts as ``eps`` at least."""
    return x / np.maximum(np.linalg.norm(x, ord=p, axis=axis, keepdims=True), eps)


def cosine_similarity(x, y, axis=1, eps=1e-8):
    """The cosine of the angle between vectors along an axis."""
    x, y = (v / np.maximum(np.sqrt(np.sum(v * v, axis, keepdims=True)), eps) for v in (x, y))
    return np.sum(x * y, axis=axis)


def standardize(x, axes, eps):
    """``x`` with mean 0 and variance 1 over axes."""
    centered = x - np.mean(x, axis=axes, keepdims=True)
    return centered / np.sqrt(np.mean(centered * centered, axis=axes, keepdims=True) + eps)


def affine(x, weight, bias):
    """``x * weight + bias``, each of which may be None."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def per_channel(vector, ndim):
    """[C] as [C, 1, ...], for a value [N, C, ...] with that many axes; None stays None."""
    return None if vector is None else vector.reshape(-1, *[1] * (ndim - 2))


def layer_norm(x, weight=None, bias=None, *, normalized_shape, eps=1e-5):
    """Mean 0 and variance 1 over the last axes, then ``* weight + bias``."""
    axes = tuple(range(-len(normalized_shape), 0))
    return affine(standardize(x, axes, eps), weight, bias)


def rms_norm(x, weight=None, *, normalized_shape, eps=None):
    """``x`` divided by its root mean square over the last axes, then ``* weight``."""
    axes = tuple(range(-len(normalized_shape), 0))
    eps = np.finfo(x.dtype).eps if eps is None else eps
    return affine(x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + eps), weight, None)


def batch_norm(
    x, running_mean=None, running_var=None, weight=None, bias=None, training=False, eps=1e-5
):
    """Each channel standardized by the running statistics, or by its own when ``training``."""
    weight, bias = per_channel(weight, x.ndim), per_channel(bias, x.ndim)
    if training:
        return affine(standardize(x, (0, *range(2, x.ndim)), eps), weight, bias)
    mean, var = per_channel(running_mean, x.ndim), per_channel(running_var, x.ndim)
    return affine((x - mean) / np.sqrt(var + eps), weight, bias)


def group_norm(x, weight=None, bias=None, *, num_groups, eps=1e-5):
    """Each group of channels of each sample standardized, then ``* weight + bias``."""
    groups = x.reshape(len(x), num_groups, x.shape[1] // num_groups, *x.shape[2:])
    x = standardize(groups, tuple(range(2, groups.ndim)), eps).reshape(x.shape)
    return affine(x, per_channel(weight, x.ndim), per_channel(bias, x.ndim))


def instance_norm(
    x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, eps=1e-5
):
    """Each channel of each sample standardized, or each by the running statistics."""
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    x = standardize(x, tuple(range(2, x.ndim)), eps)
    return affine(x, per_channel(weight, x.ndim), per_channel(bias, x.ndim))


# -- attention and recurrence ----------------------------------------------------------------------
def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    is_causal=False,
    scale=None,
    empty_rows="zero",
    masked_score=-math.inf,
):
    """``softmax(query @ key.T * scale + mask) @ value`` over the last two axes.

    A bool mask keeps scores where True, a float one is added to them. A row without any score
    left gives zeros, or NaN."""
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * scale
    if is_causal:
        attn_mask = np.tril(np.ones(scores.shape[-2:], bool))
    if attn_mask is not None:
        is_bool = attn_mask.dtype == bool
        scores = np.where(attn_mask, scores, masked_score) if is_bool else scores + attn_mask
    weights = softmax(scores)
    if attn_mask is not None and empty_rows == "zero":
        weights = np.where(np.isneginf(scores).all(axis=-1, keepdims=True), 0, weights)
    return weights @ value


def lstm_step(x, hidden, state, cell):
    """The next state and cell from what inputs and state give to the gates i, f, g, o."""
    i, f, g, o = np.split(x + hidden, 4, axis=-1)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def gru_step(x, hidden, state, cell):
    """The next state from what inputs and state give to the gates r, z, n."""
    (r, z, n), (hidden_r, hidden_z, hidden_n) = (np.split(v, 3, axis=-1) for v in (x, hidden))
    new = np.tanh(n + sigmoid(r + hidden_r) * hidden_n)
    return new + sigmoid(z + hidden_z) * (state - new), cell


def rnn_tanh_step(x, hidden, state, cell):
    """The next state."""
    return np.tanh(x + hidden), cell


def rnn_relu_step(x, hidden, state, cell):
    """The next state."""
    return np.maximum(x + hidden, 0), cell


def recurrence(step, gates, weight_hh, h0, c0=None, bias_hh=None, reverse=False):
    """States [T, B, H] from the inputs' part of the gates [T, B, G*H], then the last state once
    more and, if there is one, the last cell."""
    state, cell, states = h0, c0, []
    for x in gates[::-1] if reverse else gates:
        state, cell = step(x, affine(state @ weight_hh.T, None, bias_hh), state, cell)
        states.append(state)
    states = states[::-1] if reverse else states
    return np.stack([*states, state] if cell is None else [*states, state, cell])


def lstm(x, h0, c0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, reverse=False):
    """All states [T, B, H] of a long short-term memory, the last one and the last cell."""
    gates = affine(x @ weight_ih.T, None, bias_ih)
    states = recurrence(lstm_step, gates, weight_hh, h0, c0, bias_hh, reverse)
    return states[:-2], states[-2], states[-1]


def gru(x, h0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, reverse=False):
    """All states [T, B, H] of gated recurrent units, and the last one."""
    gates = affine(x @ weight_ih.T, None, bias_ih)
    states = recurrence(gru_step, gates, weight_hh, h0, None, bias_hh, reverse)
    return states[:-1], states[-1]


def rnn(
    x, h0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, nonlinearity="tanh", reverse=False
):
    """All states [T, B, H] of a plain recurrent network, and the last one."""
    step = rnn_tanh_step if nonlinearity == "tanh" else rnn_relu_step
    gates = affine(x @ weight_ih.T, None, bias_ih)
    states = recurrence(step, gates, weight_hh, h0, None, bias_hh, reverse)
    return states[:-1], states[-1]


# -- images ----------------------------------------------------------------------------------------
def unfold(x, axis, size, step=1):
    """Windows of ``size`` along ``axis``, each ``step`` further; what is in them is the last axis."""
    axis %= x.ndim
    places = step * np.arange((x.shape[axis] - size) // step + 1)[:, None] + np.arange(size)
    return np.moveaxis(np.take(x, places, axis), axis + 1, -1)


def windows(x, kernel, stride=1, padding=0, dilation=1, ceil_mode=False, fill=0):
    """The windows over the spatial axes of ``x`` [N, C, ...], as a view [N, C, ..., *kernel].

    ``padding`` is a number, or (low, high) for each axis; ``ceil_mode`` adds windows that begin
    inside and end behind the padding."""
    rank = x.ndim - 2
    kernel, stride, dilation = (np.broadcast_to(v, rank) for v in (kernel, stride, dilation))
    padding = np.broadcast_to(padding, (rank, 2))
    counts = -(-(np.array(x.shape[2:]) + padding[:, 0]) // stride)  # of those that begin inside
    if ceil_mode:
        padding = padding + np.stack([0 * stride, stride - 1], axis=1)
    x = np.pad(x, [(0, 0), (0, 0), *padding], constant_values=fill)
    spans = dilation * (kernel - 1) + 1
    x = sliding_window_view(x, tuple(spans), axis=tuple(range(2, 2 + rank)))
    x = x[:, :, *(slice(None, None, s) for s in (*stride, *dilation))]
    return x[:, :, *map(slice, counts)] if ceil_mode else x


def conv(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Cross-correlation of ``x`` [N, C, ...] with ``weight`` [C_out, C / groups, ...]: a matrix
    product with the windows of ``x`` as columns."""
    rank = x.ndim - 2
    view = windows(x, weight.shape[2:], stride, padding, dilation)
    sizes = view.shape[2 : 2 + rank]
    view = view.transpose(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    depth = math.prod(weight.shape[1:])
    columns = view.reshape(len(x), groups, depth, math.prod(sizes))
    matrix = weight.reshape(groups, len(weight) // groups, depth)
    y = (matrix @ columns).reshape(len(x), len(weight), *sizes)
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


def conv_transpose(
    x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    """Transposed convolution of ``x`` [N, C, ...] with ``weight`` [C, C_out / groups, ...]: each
    element adds the kernel times its value to the result."""
    n, channels, *sizes = x.shape
    rank, kernel, outputs = len(sizes), weight.shape[2:], weight.shape[1] * groups
    stride, padding, output_padding, dilation = (
        np.broadcast_to(v, rank) for v in (stride, padding, output_padding, dilation)
    )
    matrix = weight.reshape(groups, channels // groups, -1).swapaxes(1, 2)
    parts = matrix @ x.reshape(n, groups, channels // groups, math.prod(sizes))
    parts = parts.reshape(n, outputs, *kernel, *sizes)
    full = (np.array(sizes) - 1) * stride + dilation * (np.array(kernel) - 1) + 1 + output_padding
    y = np.zeros((n, outputs, *full), parts.dtype)
    for at in np.ndindex(*kernel):
        first = at * dilation
        last = first + (np.array(sizes) - 1) * stride + 1
        y[:, :, *map(slice, first, last, stride)] += parts[:, :, *at]
    y = y[:, :, *map(slice, padding, full - padding)]
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


def max_pool(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The largest element of each window of ``x`` [N, C, ...]."""
    stride = kernel_size if stride is None else stride
    view = windows(x, kernel_size, stride, padding, dilation, ceil_mode, lowest_of(x))
    return view.max(axis=tuple(range(x.ndim, view.ndim)))


def positions_of_largest(x, at):
    """Of candidates at the positions ``at`` [..., count] of the plane of ``x`` [N, C, ...], where
    the largest stands: the first of equal ones, of NaNs the last; -1 is not a position."""
    values = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))[:, :, np.where(at < 0, 0, at)]
    largest = np.max(values, axis=-1, keepdims=True, where=at >= 0, initial=lowest_of(x))
    key = np.where((at >= 0) & (values == largest), at, np.iinfo(np.int64).max)
    return np.abs(np.where(values != values, np.minimum(-at, 0), key).min(axis=-1))


def lowest_of(x):
    """What no number is smaller than."""
    return np.iinfo(x.dtype).min if np.issubdtype(x.dtype, np.integer) else x.dtype.type(-np.inf)


def max_pool_positions(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """Where the largest element of each window of ``x`` [N, C, ...] stands on its plane."""
    stride, rank = kernel_size if stride is None else stride, x.ndim - 2
    plane = np.arange(math.prod(x.shape[2:])).reshape(1, 1, *x.shape[2:])
    at = windows(plane, kernel_size, stride, padding, dilation, ceil_mode, -1)[0, 0]
    return positions_of_largest(x, at.reshape(*at.shape[:rank], math.prod(at.shape[rank:])))


def adaptive_max_pool_positions(x, output_size):
    """Where the largest element of each of ``output_size`` windows stands on its plane."""
    plane, rank = np.zeros((1,) * (x.ndim - 2), int), x.ndim - 2
    sizes = output_size if isinstance(output_size, tuple) else (output_size,) * rank
    for axis, (n, out) in enumerate(zip(x.shape[2:], sizes)):
        out = n if out is None else out
        first, end = np.arange(out) * n // out, -(-(np.arange(out) + 1) * n // out)
        along = first[:, None] + np.arange((end - first).max())
        along = np.where(along < end[:, None], along, -1)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = along.shape
        along = along.reshape(shape)
        plane = along if axis == 0 else np.where((plane < 0) | (along < 0), -1, plane * n + along)
    at = plane.reshape(*plane.shape[:rank], math.prod(plane.shape[rank:]))
    return positions_of_largest(x, at)


def avg_pool(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of each window of ``x`` [N, C, ...]; padding counts, if ``count_include_pad``."""
    stride = kernel_size if stride is None else stride
    view = windows(x, kernel_size, stride, padding, 1, ceil_mode)
    axes = tuple(range(x.ndim, view.ndim))
    counted, around = np.ones((1, 1, *x.shape[2:]), x.dtype), padding
    if count_include_pad:
        pairs = np.broadcast_to(padding, (x.ndim - 2, 2))
        counted, around = np.pad(counted, [(0, 0), (0, 0), *pairs], constant_values=1), 0
    count = windows(counted, kernel_size, stride, around, 1, ceil_mode).sum(axis=axes)
    return view.sum(axis=axes) / count[:, :, *map(slice, view.shape[2 : x.ndim])]


def adaptive_pool(x, output_size, reduce):
    """``reduce`` (np.mean or np.max) of as many windows along each spatial axis as
    ``output_size`` says; None leaves an axis as it is."""
    for axis in range(2, x.ndim):
        size = x.shape[axis]
        out = output_size[axis - 2] if isinstance(output_size, tuple) else output_size
        if out is None or out == size:
            continue
        edges = [(n * size // out, -(-(n + 1) * size // out)) for n in range(out)]
        parts = (np.take(x, range(*edge), axis) for edge in edges)
        x = np.stack([reduce(part, axis=axis) for part in parts], axis)
    return x


def adaptive_avg_pool(x, output_size):
    """The means of ``output_size`` windows."""
    return adaptive_pool(x, output_size, np.mean)


def adaptive_max_pool(x, output_size):
    """The largest elements of ``output_size`` windows."""
    return adaptive_pool(x, output_size, np.max)


def interpolate(x, size=None, scale_factor=None, mode="nearest", align_corners=False):
    """``x`` [N, C, ...] resized: ``mode`` "nearest", else linear. Positions are rounded to
    float32, those for linear interpolation of float64 to float64."""
    rank, is_linear = x.ndim - 2, mode != "nearest"
    dtype = np.float64 if is_linear and x.dtype == np.float64 else np.float32
    sizes = size if isinstance(size, tuple) else (size,) * rank
    factors = scale_factor if isinstance(scale_factor, tuple) else (scale_factor,) * rank
    for axis, m, factor in zip(range(2, x.ndim), sizes, factors):
        n = x.shape[axis]
        m = math.floor(n * factor) if m is None else m
        is_doubled = rank == 2 and not is_linear and m == 2 * n
        is_same = m == n and (rank == 2 or is_linear)
        step = n / m if factor is None or is_same or is_doubled else 1 / factor
        if align_corners:
            step = (n - 1) / (m - 1) if m > 1 else 0
        at = np.arange(m, dtype=dtype)
        if not is_linear:
            at = np.floor(at * dtype(step)).astype(int)
            x = np.take(x, np.minimum(at, n - 1), axis)
            continue
        at = at * dtype(step) if align_corners else (at + dtype(0.5)) * dtype(step) - dtype(0.5)
        at = np.maximum(at, 0)
        low = np.minimum(at.astype(int), n - 1)
        part = np.clip(at - low.astype(dtype), 0, 1).reshape(-1, *[1] * (x.ndim - 1 - axis))
        high = np.minimum(low + 1, n - 1)
        x = np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part
    return x


def resize_weight(mode, distance, coefficient):
    """The weight of what is at a distance."""
    if mode == "linear":
        return np.maximum(1 - distance, 0)
    a, d = coefficient, distance
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, (((d - 5) * d + 8) * d - 4) * a
    return np.where(d < 1, near, np.where(d < 2, far, 0))


def resize(
    x,
    size,
    axis=-1,
    mode="nearest",
    coordinates="half_pixel",
    rounding="round_prefer_floor",
    scale=None,
    coefficient=-0.75,
    antialias=False,
    exclude_outside=False,
):
    """``x`` with an axis resampled to ``size`` elements, as ONNX's Resize."""
    axis, n, m = axis % x.ndim, x.shape[axis], size
    step = n / m if scale is None else 1 / scale
    shift = {
        "asymmetric": 0,
        "align_corners": 0,
        "half_pixel_symmetric": ((1 - m) * step + n - 1) / 2,
        "tf_half_pixel_for_nn": step / 2,
    }.get(coordinates, step / 2 - 0.5)
    if coordinates == "align_corners":
        step = (n - 1) / max(m - 1, 1)
    if m == 1 and coordinates in ("align_corners", "pytorch_half_pixel"):
        step = shift = 0
    at = np.arange(m) * step + shift
    if mode == "nearest":
        at = np.round(at, 9)  # as if it were exact
        rounds = {
            "floor": np.floor,
            "ceil": np.ceil,
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
            "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        }
        return np.take(x, np.clip(rounds[rounding](at).astype(int), 0, n - 1), axis)
    wide = max(step, 1) if antialias else 1
    reach = math.ceil((2 if mode == "cubic" else 1) * wide)
    places = np.floor(at).astype(int)[:, None] + np.arange(1 - reach, reach + 1)
    weights = resize_weight(mode, np.abs(places - at[:, None]) / wide, coefficient)
    if exclude_outside:
        weights = np.where((places >= 0) & (places < n), weights, 0)
    if exclude_outside or antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    weights = weights.astype(x.dtype).reshape(m, 2 * reach, *[1] * (x.ndim - 1 - axis))
    return (np.take(x, np.clip(places, 0, n - 1), axis) * weights).sum(axis=axis + 1)


def padded(at, n, padding_mode, align_corners):
    """Positions along an axis of n elements as the padding has them; NaN is the smallest."""
    if padding_mode == "zeros":
        return np.where(at > -2, np.minimum(at, n + 1), -2)
    if padding_mode == "reflection":
        low, span = (0, max(n - 1, 1)) if align_corners else (-0.5, n)
        rest = np.abs(at - low) % (2 * span)
        at = np.where(rest > span, 2 * span - rest, rest) + low
    return np.where(at > 0, np.minimum(at, n - 1), 0)


def grid_taps(at, n, mode, padding_mode, align_corners):
    """Positions along an axis and weights of what is added up."""
    at = (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2
    if mode == "nearest":
        return [(np.rint(padded(at, n, padding_mode, align_corners)), 1)]
    if mode == "bilinear":
        at = padded(at, n, padding_mode, align_corners)
        low = np.floor(at)
        return [(low, 1 - (at - low)), (low + 1, at - low)]
    at = np.where(at > -1e6, np.minimum(at, 1e6), -1e6)
    low = np.floor(at)
    weights = [resize_weight("cubic", np.abs(tap - (at - low)), -0.75) for tap in range(-1, 3)]
    places = [padded(low + tap, n, padding_mode, align_corners) for tap in range(-1, 3)]
    return list(zip(places, weights))


def grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    """``x`` [N, C, ...] read at positions between -1 and 1, x (along the last axis) first."""
    sizes, total = x.shape[2:], 0
    with np.errstate(invalid="ignore"):
        axes = [
            grid_taps(grid[..., -1 - a], n, mode, padding_mode, align_corners)
            for a, n in enumerate(sizes)
        ]
    batch = np.arange(len(x)).reshape(-1, *[1] * len(sizes))
    for chosen in np.ndindex(*map(len, axes)):
        taps = [axis[tap] for axis, tap in zip(axes, chosen)]
        places = [at.astype(int) for at, _ in taps]
        read = math.prod((p >= 0) & (p < n) for p, n in zip(places, sizes))
        value = x[batch, :, *(np.clip(p, 0, n - 1) for p, n in zip(places, sizes))]
        weight = math.prod(weight for _, weight in taps) * np.ones_like(grid[..., 0])
        total = total + np.where(read[..., None], value, 0) * weight[..., None]
    return np.moveaxis(total, -1, 1).astype(x.dtype)


# -- indices ---------------------------------------------------------------------------------------
def updated(x, at, values):
    """A copy of ``x`` with other values at an index."""
    x = x.copy()
    x[at] = values
    return x


def scattered(x, index, source, axis, mode):
    """The places that ``index`` means along an axis, as an index of all axes, and what is written
    there; without what is out of range if the mode is "drop"."""
    at = list(np.indices(index.shape, sparse=True))
    at[axis] = index
    if mode == "drop":
        kept = (index >= -x.shape[axis]) & (index < x.shape[axis])
        at, source = [np.broadcast_to(a, kept.shape)[kept] for a in at], source[kept]
    return tuple(at), source


def scatter_add(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with ``source`` added where ``index`` says along an axis."""
    x = x.copy()
    np.add.at(x, *scattered(x, index, source, axis, mode))
    return x


def scatter_mul(x, index, source, axis, mode="raise"):
    """A copy of ``x``, multiplied by ``source`` where ``index`` says along an axis."""
    x = x.copy()
    np.multiply.at(x, *scattered(x, index, source, axis, mode))
    return x


def scatter_max(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with the largest of it and of ``source`` where ``index`` says along an
    axis."""
    x = x.copy()
    np.maximum.at(x, *scattered(x, index, source, axis, mode))
    return x


def scatter_min(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with the smallest of it and of ``source`` where ``index`` says along an
    axis."""
    x = x.copy()
    np.minimum.at(x, *scattered(x, index, source, axis, mode))
    return x


def scatter_set(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with ``source`` where ``index`` says along an axis; of equal indices the last
    one counts."""
    return updated(x, *scattered(x, index, source, axis, mode))


# -- losses ----------------------------------------------------------------------------------------
def reduced(values, reduction):
    """The "mean" or "sum" of losses, or all of them: "none"."""
    if reduction == "none":
        return values
    return np.mean(values) if reduction == "mean" else np.sum(values)


def mse_loss(x, target, reduction="mean"):
    """The squared distance."""
    return reduced(np.square(x - target), reduction)


def l1_loss(x, target, reduction="mean"):
    """The distance."""
    return reduced(np.abs(x - target), reduction)


def binary_cross_entropy_with_logits(x, target, weight=None, pos_weight=None, reduction="mean"):
    """The cross entropy of ``sigmoid(x)`` and probabilities."""
    factor = 1 if pos_weight is None else 1 + target * (pos_weight - 1)
    values = (1 - target) * x + factor * np.logaddexp(0, -x)
    return reduced(values if weight is None else values * weight, reduction)


def nll_loss(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """``-weight[target] * x[target]`` of log-probabilities ``x`` [N, C, ...] or [C]."""
    x = np.moveaxis(x, 1, -1) if x.ndim > 1 else x
    counted = target != ignore_index
    chosen = np.where(counted, target, 0)[..., None]
    weight = np.ones(x.shape[-1], x.dtype) if weight is None else weight
    factor = np.where(counted, weight[chosen[..., 0]], 0)
    values = -np.take_along_axis(x, chosen, -1)[..., 0] * factor
    if label_smoothing:
        spread = np.where(counted, -np.mean(x * weight, axis=-1), 0)
        values = (1 - label_smoothing) * values + label_smoothing * spread
    return np.sum(values) / np.sum(factor) if reduction == "mean" else reduced(values, reduction)


def cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The cross entropy of ``softmax(x)`` [N, C, ...] and class numbers or probabilities."""
    axis = 1 if x.ndim > 1 else 0
    logs = log_softmax(x, axis)
    if np.issubdtype(target.dtype, np.integer):
        return nll_loss(logs, target, weight, ignore_index, reduction, label_smoothing)
    target = (1 - label_smoothing) * target + label_smoothing / x.shape[axis]
    terms = np.moveaxis(-logs * target, axis, -1)
    return reduced(np.sum(affine(terms, weight, None), axis=-1), reduction)


# -- integers --------------------------------------------------------------------------------------
def rounded(x, zero_point, dtype, qmin, qmax):
    """``x + zero_point`` as integers from ``qmin`` to ``qmax``; halves go to the even one."""
    info = np.iinfo(dtype)
    x = np.rint(x) + np.float32(0 if zero_point is None else zero_point)
    x = np.fmax(x, np.float32(info.min if qmin is None else qmin))  # also for NaN
    return np.minimum(x, np.float32(info.max if qmax is None else qmax)).astype(dtype)


def quantize(x, scale, zero_point=None, dtype=np.int8, qmin=None, qmax=None):
    """``x / scale + zero_point`` as integers."""
    scaled = np.float32(x) * (np.float32(1) / np.float32(scale))
    return rounded(scaled, zero_point, dtype, qmin, qmax)


def dequantize(q, scale, zero_point=None):
    """``(q - zero_point) * scale`` as float32."""
    q = q if zero_point is None else np.int32(q) - np.int32(zero_point)
    return np.float32(q) * np.float32(scale)


def requantize(acc, scale, zero_point=None, dtype=np.int8, qmin=None, qmax=None):
    """``acc * scale + zero_point`` as integers."""
    return rounded(np.float32(acc) * np.float32(scale), zero_point, dtype, qmin, qmax)


def fake_quantize(x, scale, zero_point=None, dtype=np.int8, qmin=None, qmax=None):
    """``x`` rounded to what its integers stand for."""
    return dequantize(quantize(x, scale, zero_point, dtype, qmin, qmax), scale, zero_point)


def dynamic_scale(x, axis=None, keepdims=False, qmax=127):
    """The scale by which the largest magnitude becomes ``qmax``, 2**-120 at least."""
    largest = np.max(np.abs(np.float32(x)), axis=axis, keepdims=keepdims, initial=0)
    return np.maximum(largest, np.float32(2.0**-120 * qmax)) * np.float32(1 / qmax)


def int_sums(sums, bias=None):
    """Integers as int32, with a bias. They were added up as float64, which is exact up to 2**53 and
    faster than products of integers."""
    return sums.astype(np.int32) if bias is None else sums.astype(np.int32) + bias


def int_linear(x, weight, bias=None, x_zero_point=0):
    """``(x - x_zero_point) @ weight.T + bias`` as int32."""
    return int_sums((np.float64(x) - x_zero_point) @ np.float64(weight).T, bias)


def int_matmul(x, y, x_zero_point=0, y_zero_point=0):
    """``(x - x_zero_point) @ (y - y_zero_point)`` as int32."""
    return int_sums((np.float64(x) - x_zero_point) @ (np.float64(y) - y_zero_point))


def int_conv(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, x_zero_point=0):
    """The convolution of ``x - x_zero_point`` as int32."""
    x, weight = np.float64(x) - x_zero_point, np.float64(weight)
    sums = conv(x, weight, None, stride, padding, dilation, groups)
    return int_sums(sums, per_channel(bias, x.ndim))


def pack_int4(q):
    """Pairs of integers in -8..7 as bytes, the one with the even index in the low half."""
    return ((q[..., 0::2] & 15) | (q[..., 1::2] << 4)).view(np.uint8)


def unpack_int4(packed):
    """The integers that ``pack_int4`` packed."""
    signed = packed.view(np.int8)
    pairs = np.stack([np.left_shift(signed, 4) >> 4, signed >> 4], axis=-1)
    return pairs.reshape(*signed.shape[:-1], 2 * signed.shape[-1])


def dequantize_weight(weight, scale, shape, bits=8, group_size=None):
    """A weight of a shape from integers, or from pairs of int4, whose rows have one scale each or
    one for each group of numbers."""
    depth = math.prod(shape[1:])
    integers = unpack_int4(weight)[:, :depth] if bits == 4 else weight
    scales = np.repeat(scale.reshape(len(integers), -1), group_size or depth, axis=1)
    return (integers * scales[:, :depth]).reshape(shape)


def linear_weight_only(x, weight, scale, bias=None, bits=8, group_size=None):
    """``x @ weight.T + bias`` with a weight of integers."""
    shape = (len(weight), x.shape[-1])
    return affine(x @ dequantize_weight(weight, scale, shape, bits, group_size).T, None, bias)


def int_recurrence(
    step,
    gates,
    weight_hh,
    weight_scale,
    h0,
    c0=None,
    bias_hh=None,
    reverse=False,
    state_scale=None,
    state_zero_point=None,
):
    """``recurrence`` with integer weights: each state is rounded to 8 bits before its product, by a
    scale of each row unless ``state_scale`` is given."""
    dtype, qmin = (np.int8, -127) if state_zero_point is None else (np.uint8, None)
    state, cell, states, scale = h0, c0, [], state_scale
    for x in gates[::-1] if reverse else gates:
        if state_scale is None:
            scale = dynamic_scale(state, axis=-1, keepdims=True)
        q = quantize(state, scale, state_zero_point, dtype, qmin)
        sums = int_linear(q, weight_hh, x_zero_point=state_zero_point or 0)
        hidden = dequantize(sums, np.float32(scale) * weight_scale)
        state, cell = step(x, affine(hidden, None, bias_hh), state, cell)
        states.append(state)
    states = states[::-1] if reverse else states
    return np.stack([*states, state] if cell is None else [*states, state, cell])
