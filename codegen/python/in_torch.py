"""Functions of torch for what torch does not offer as one call: the text of those that a program needs is
part of its source in the dialect "torch". Functions are called like the ops and have their parameters. This
file is read as text and never imported.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


# -- modules ---------------------------------------------------------------------------------------
class Weights(nn.Module):
    """Parameters, buffers and modules by any name: ``self["0"]`` or ``self[0]``."""

    def __init__(self, parts=None, /, **named):
        super().__init__()
        for name, value in {**(parts or {}), **named}.items():
            self.add(name, value)

    def add(self, name, value):
        """Add a parameter, a buffer or a module."""
        setattr(self, str(name), value)

    def __getitem__(self, name):
        return getattr(self, str(name))


# -- conditions and loops: Python's own, but while torch follows a program -------------------------
def own(values):
    """Values that share memory with no others."""
    return tuple(v.clone(memory_format=torch.contiguous_format) for v in values)


def choose(pred, one, other, values):
    """What ``one`` gives where ``pred`` is true, ``other`` where not."""
    if not torch.compiler.is_compiling():
        return own((one if pred else other)(*values))
    return torch.cond(pred, lambda *v: own(one(*v)), lambda *v: own(other(*v)), values)


def loop_while(test, body, carried, captured):
    """The values after the last iteration."""
    if torch.compiler.is_compiling():
        from torch._higher_order_ops.while_loop import while_loop

        def step(*values):
            return own(body(*values, *captured))

        return while_loop(lambda *values: test(*values, *captured)[0], step, own(carried))
    while test(*carried, *captured)[0]:
        carried = body(*carried, *captured)
    return own(carried)


class Before(nn.Module):
    """Whether a number is less than another, the first of the values that stay."""

    def __init__(self, carried):
        super().__init__()
        self.carried = carried

    def forward(self, number, *values):
        return (number < values[self.carried],)


class Counted(nn.Module):
    """An iteration, and the number of the next."""

    def __init__(self, body, carried):
        super().__init__()
        self.body, self.carried = body, carried

    def forward(self, number, *values):
        carried, captured = values[: self.carried], values[self.carried + 1 :]
        return (number + 1, *self.body(number, *carried, *captured))


def loop_over(lower, upper, body, carried, captured):
    """The values after an iteration for each number from ``lower`` to ``upper``."""
    if torch.compiler.is_compiling():
        first, end = (torch.as_tensor(v, dtype=torch.int64) for v in (lower, upper))
        count = len(carried)
        values = loop_while(Before(count), Counted(body, count), (first, *carried), (end, *captured))
        return tuple(values[1:])
    for number in range(int(lower), int(upper)):
        carried = body(torch.tensor(number), *carried, *captured)
    return own(carried)


# -- indices ---------------------------------------------------------------------------------------
def updated(x, at, values):
    """A copy of ``x`` with other values at an index."""
    x = x.clone()
    parts = at if isinstance(at, tuple) else (at,)
    if {p.dim() for p in parts if torch.is_tensor(p)} == {0}:
        view = x[tuple(slice(None) if torch.is_tensor(p) else p for p in parts)]
        places = [p if torch.is_tensor(p) else None for p in parts if not isinstance(p, int)]
        last = max(i for i, p in enumerate(places) if p is not None)
        torch.ops.aten.index_put_(view, places[: last + 1], torch.as_tensor(values, dtype=x.dtype))
        return x
    x[at] = values
    return x


def taken(x, index, axis):
    """``x`` at one place of an axis, which is a tensor also where torch follows the program."""
    return x.index_select(axis, wrapped(index, x.shape[axis]).reshape(1)).squeeze(axis)


def wrapped(index, size):
    """Positions, of which negative ones count from the end."""
    return torch.where(index < 0, index + size, index)


def gather(x, index, axis):
    """``x`` at the positions that ``index`` has along an axis."""
    return torch.take_along_dim(x, wrapped(index, x.shape[axis]), dim=axis)


def scattered(x, index, axis, mode):
    """An array that is scattered into along an axis, and positions that count from the start. If
    the mode is "drop", the array is longer by one place, for all that is out of range."""
    size = x.shape[axis]
    index = wrapped(index, size)
    if mode == "raise":
        return x, index
    spare = [1 if a == axis % x.ndim else n for a, n in enumerate(x.shape)]
    longer = torch.cat((x, x.new_zeros(spare)), dim=axis)
    return longer, torch.where((index >= 0) & (index < size), index, size)


def scatter_add(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with ``source`` added where ``index`` says along an axis."""
    longer, index = scattered(x, index, axis, mode)
    return longer.scatter_add(axis, index, source).narrow(axis, 0, x.shape[axis])


def scatter_mul(x, index, source, axis, mode="raise"):
    """A copy of ``x``, multiplied by ``source`` where ``index`` says along an axis."""
    longer, index = scattered(x, index, axis, mode)
    return longer.scatter_reduce(axis, index, source, "prod").narrow(axis, 0, x.shape[axis])


def scatter_max(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with the largest of it and of ``source`` where ``index`` says along an
    axis."""
    longer, index = scattered(x, index, axis, mode)
    return longer.scatter_reduce(axis, index, source, "amax").narrow(axis, 0, x.shape[axis])


def scatter_min(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with the smallest of it and of ``source`` where ``index`` says along an
    axis."""
    longer, index = scattered(x, index, axis, mode)
    return longer.scatter_reduce(axis, index, source, "amin").narrow(axis, 0, x.shape[axis])


def scatter_set(x, index, source, axis, mode="raise"):
    """A copy of ``x`` with ``source`` where ``index`` says along an axis; of equal indices the last
    one counts. torch promises no order, so that all that go to one place get its last value."""
    longer, index = scattered(x, index, axis, mode)
    order = torch.ones_like(index).cumsum(axis) - 1
    last = torch.zeros_like(longer, dtype=torch.int64).scatter_reduce(axis, index, order, "amax")
    values = source.gather(axis, last.gather(axis, index))
    return longer.scatter(axis, index, values).narrow(axis, 0, x.shape[axis])


# -- numbers ---------------------------------------------------------------------------------------
def prod(x, axis=None, keepdims=False):
    """The product over axes."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    for number in sorted((a % x.ndim for a in axes), reverse=True):
        x = x.prod(dim=number, keepdim=keepdims)
    return x


def sign(x):
    """-1, 0 or 1; NaN stays NaN."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


def floor_divide(x, y):
    """``x // y`` of integers, where division by 0 gives 0."""
    return torch.where(y == 0, 0, x // torch.where(y == 0, 1, y))


def remainder(x, y):
    """``x % y`` of integers, where division by 0 gives 0."""
    return torch.where(y == 0, 0, x % torch.where(y == 0, 1, y))


def fmod(x, y):
    """The remainder with the sign of ``x``; division of integers by 0 gives 0."""
    if y.is_floating_point():
        return torch.fmod(x, y)
    return torch.where(y == 0, 0, torch.fmod(x, torch.where(y == 0, 1, y)))


def cbrt(x):
    """The cube root, which torch has not: a power, and a step of Newton's method."""
    size = x.double().abs()
    root = size ** (1 / 3)
    near = root - (root * root * root - size) / (3 * root * root)
    usual = (size > 0) & torch.isfinite(size)
    return torch.copysign(torch.where(usual, near, root), x.double()).to(x.dtype)


def heaviside(x, y):
    """0 below zero, 1 above it, ``y`` at it; NaN stays NaN."""
    return torch.where(torch.isnan(x), x, torch.heaviside(x, y))


def exponent(x):
    """The exponent of frexp, which is 0 for infinities and NaN."""
    wide = x if x.dtype.is_floating_point else x.double()
    finite = torch.isfinite(wide)
    return torch.where(finite, torch.frexp(wide)[1], 0)


def bitwise_count(x):
    """How many bits of the absolute value are 1."""
    if x.dtype == torch.bool:
        return x.to(torch.uint8)
    bits = torch.arange(x.element_size() * 8)
    ones = (x.to(torch.int64).abs()[..., None] >> bits) & 1
    return ones.sum(dim=-1).to(torch.uint8)


def cummax(x, axis=0):
    """The largest value so far."""
    return torch.cummax(x, dim=axis).values


def cummin(x, axis=0):
    """The smallest value so far."""
    return torch.cummin(x, dim=axis).values


def sort(x, axis=-1):
    """Ascending, equal elements in their order, NaN last."""
    return torch.sort(x, dim=axis, stable=True).values


def argsort(x, axis=-1):
    """Positions that sort, of equal elements in their order."""
    return torch.sort(x, dim=axis, stable=True).indices


def argtopk(x, k, axis=-1, largest=True):
    """Positions of the k largest or smallest elements; equal ones in their order."""
    order = torch.sort(x, dim=axis, stable=True, descending=largest).indices
    return order.narrow(axis, 0, k)


def searchsorted(x, values, side="left"):
    """Where values would stand in ``x``."""
    found = torch.searchsorted(x, values.contiguous(), side=side)
    if not x.is_floating_point():
        return found
    count = x.numel() if side == "right" else x.numel() - torch.isnan(x).sum()
    return torch.where(torch.isnan(values), count, found)  # NaN is the largest number


def flatnonzero(x, size=None):
    """Positions where x holds, then zeros."""
    size = x.shape[0] if size is None else size
    slot = x.to(torch.int64).cumsum(0) - 1
    slot = torch.where(x & (slot < size), slot, size)  # those that are not wanted share a last one
    places = torch.arange(x.shape[0], device=x.device)
    return torch.zeros(size + 1, dtype=torch.int64, device=x.device).scatter(0, slot, places)[:size]


def wider(x):
    """Half types as float32, in which torch has linear algebra."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def cholesky(x):
    """The lower triangle whose product with itself is ``x``."""
    return torch.linalg.cholesky(wider(x)).to(x.dtype)


def solve(x, b):
    """What ``x`` must be multiplied with for ``b``."""
    return torch.linalg.solve(wider(x), wider(b)).to(x.dtype)


def slogdet(x):
    """Sign and logarithm of determinants, side by side."""
    sign, log = torch.linalg.slogdet(wider(x))
    return torch.stack([sign, log.to(sign.dtype)], dim=-1).to(x.dtype)


def signed(rows, start):
    """Rows, but for their first number, with one sign for all that are alike."""
    sizes = rows[..., start:].abs()
    if not sizes.numel():
        return rows
    first = (sizes > 0.37 * sizes.amax(dim=-1, keepdim=True)).int().argmax(dim=-1, keepdim=True)
    negative = rows[..., start:].gather(-1, first) < 0
    return torch.cat([rows[..., :1], torch.where(negative, -rows[..., 1:], rows[..., 1:])], dim=-1)


def qr_rows(x, complete=False):
    """Columns of Q and rows of R, side by side."""
    q, r = torch.linalg.qr(wider(x), mode="complete" if complete else "reduced")
    return torch.cat([q.mT, r], dim=-1).to(x.dtype)


def eigh_rows(x, vectors=True):
    """Eigenvalues and eigenvectors, side by side."""
    if not vectors:
        return torch.linalg.eigvalsh(wider(x))[..., None].to(x.dtype)
    values, found = torch.linalg.eigh(wider(x))
    return signed(torch.cat([values[..., None], found.mT], dim=-1), 1).to(x.dtype)


def svd_rows(x, vectors=True):
    """Singular values, left and right singular vectors, side by side."""
    if not vectors:
        return torch.linalg.svdvals(wider(x))[..., None].to(x.dtype)
    left, values, right = torch.linalg.svd(wider(x), full_matrices=False)
    return signed(torch.cat([values[..., None], left.mT, right], dim=-1), 1 + x.shape[-2]).to(
        x.dtype
    )


# -- recurrence ------------------------------------------------------------------------------------
def lstm_step(x, hidden, state, cell):
    """The next state and cell from what inputs and state give to the gates i, f, g, o."""
    i, f, g, o = (x + hidden).chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def gru_step(x, hidden, state, cell):
    """The next state from what inputs and state give to the gates r, z, n."""
    (r, z, n), (hidden_r, hidden_z, hidden_n) = (v.chunk(3, dim=-1) for v in (x, hidden))
    new = torch.tanh(n + torch.sigmoid(r + hidden_r) * hidden_n)
    return new + torch.sigmoid(z + hidden_z) * (state - new), cell


def rnn_tanh_step(x, hidden, state, cell):
    """The next state."""
    return torch.tanh(x + hidden), cell


def rnn_relu_step(x, hidden, state, cell):
    """The next state."""
    return F.relu(x + hidden), cell


def recurrence(step, gates, weight_hh, h0, c0=None, bias_hh=None, reverse=False):
    """States [T, B, H] from the inputs' part of the gates [T, B, G*H], then the last state once
    more and, if there is one, the last cell."""
    state, cell, states = h0, c0, []
    for x in gates.flip(0) if reverse else gates:
        state, cell = step(x, F.linear(state, weight_hh, bias_hh), state, cell)
        states.append(state)
    states = states[::-1] if reverse else states
    return torch.stack([*states, state] if cell is None else [*states, state, cell])


def lstm(x, h0, c0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, reverse=False):
    """All states [T, B, H] of a long short-term memory, the last one and the last cell."""
    gates = F.linear(x, weight_ih, bias_ih)
    states = recurrence(lstm_step, gates, weight_hh, h0, c0, bias_hh, reverse)
    return states[:-2], states[-2], states[-1]


def gru(x, h0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, reverse=False):
    """All states [T, B, H] of gated recurrent units, and the last one."""
    gates = F.linear(x, weight_ih, bias_ih)
    states = recurrence(gru_step, gates, weight_hh, h0, None, bias_hh, reverse)
    return states[:-1], states[-1]


def rnn(
    x, h0, weight_ih, weight_hh, bias_ih=None, bias_hh=None, nonlinearity="tanh", reverse=False
):
    """All states [T, B, H] of a plain recurrent network, and the last one."""
    step = rnn_tanh_step if nonlinearity == "tanh" else rnn_relu_step
    gates = F.linear(x, weight_ih, bias_ih)
    states = recurrence(step, gates, weight_hh, h0, None, bias_hh, reverse)
    return states[:-1], states[-1]


# -- integers --------------------------------------------------------------------------------------
def rounded(x, zero_point, dtype, qmin, qmax):
    """``x + zero_point`` as integers from ``qmin`` to ``qmax``; halves go to the even one, NaN to
    the least."""
    info = torch.iinfo(dtype)
    low, high = info.min if qmin is None else qmin, info.max if qmax is None else qmax
    x = torch.round(x) + (0 if zero_point is None else zero_point)
    return torch.nan_to_num(x, nan=low, posinf=high, neginf=low).clamp(low, high).to(dtype)


def quantize(x, scale, zero_point=None, dtype=torch.int8, qmin=None, qmax=None):
    """``x / scale + zero_point`` as integers."""
    scaled = x.float() * (1 / torch.as_tensor(scale, dtype=torch.float32))
    return rounded(scaled, zero_point, dtype, qmin, qmax)


def dequantize(q, scale, zero_point=None):
    """``(q - zero_point) * scale`` as float32."""
    q = q if zero_point is None else q.int() - zero_point
    return q.float() * scale


def requantize(acc, scale, zero_point=None, dtype=torch.int8, qmin=None, qmax=None):
    """``acc * scale + zero_point`` as integers."""
    return rounded(acc.float() * scale, zero_point, dtype, qmin, qmax)


def fake_quantize(x, scale, zero_point=None, dtype=torch.int8, qmin=None, qmax=None):
    """``x`` rounded to what its integers stand for."""
    return dequantize(quantize(x, scale, zero_point, dtype, qmin, qmax), scale, zero_point)


def dynamic_scale(x, axis=None, keepdims=False, qmax=127):
    """The scale by which the largest magnitude becomes ``qmax``, 2**-120 at least."""
    axes = tuple(range(x.ndim)) if axis is None else axis
    largest = x.float().abs().amax(dim=axes, keepdim=keepdims)
    return largest.clamp(min=2.0**-120 * qmax) * torch.tensor(1 / qmax, dtype=torch.float32)


def int_sums(sums, bias=None):
    """Integers as int32, with a bias. They were added up as float64, which is exact up to 2**53 and
    faster than products of integers."""
    return sums.int() if bias is None else sums.int() + bias


def int_linear(x, weight, bias=None, x_zero_point=0):
    """``(x - x_zero_point) @ weight.T + bias`` as int32."""
    return int_sums((x.double() - x_zero_point) @ weight.double().T, bias)


def int_matmul(x, y, x_zero_point=0, y_zero_point=0):
    """``(x - x_zero_point) @ (y - y_zero_point)`` as int32."""
    return int_sums((x.double() - x_zero_point) @ (y.double() - y_zero_point))


def int_conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, x_zero_point=0):
    """The convolution of ``x - x_zero_point`` as int32."""
    x, weight = x.double() - x_zero_point, weight.double()
    sums = F.conv2d(x, weight, None, stride, padding, dilation, groups)
    return int_sums(sums, None if bias is None else bias[:, None, None])


def pack_int4(q):
    """Pairs of integers in -8..7 as bytes, the one with the even index in the low half."""
    return ((q[..., 0::2] & 15) | (q[..., 1::2] << 4)).view(torch.uint8)


def unpack_int4(packed):
    """The integers that ``pack_int4`` packed."""
    signed = packed.view(torch.int8)
    return torch.stack([(signed << 4) >> 4, signed >> 4], dim=-1).flatten(-2)


def dequantize_weight(weight, scale, shape, bits=8, group_size=None):
    """A weight of a shape from integers, or from pairs of int4, whose rows have one scale each or
    one for each group of numbers."""
    depth = math.prod(shape[1:])
    integers = unpack_int4(weight)[:, :depth] if bits == 4 else weight
    scales = scale.reshape(len(integers), -1).repeat_interleave(group_size or depth, dim=1)
    return (integers * scales[:, :depth]).reshape(shape)


def linear_weight_only(x, weight, scale, bias=None, bits=8, group_size=None):
    """``x @ weight.T + bias`` with a weight of integers."""
    shape = (len(weight), x.shape[-1])
    return F.linear(x, dequantize_weight(weight, scale, shape, bits, group_size), bias)


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
    dtype, qmin = (torch.int8, -127) if state_zero_point is None else (torch.uint8, None)
    state, cell, states, scale = h0, c0, [], state_scale
    for x in gates.flip(0) if reverse else gates:
        if state_scale is None:
            scale = dynamic_scale(state, axis=-1, keepdims=True)
        q = quantize(state, scale, state_zero_point, dtype, qmin)
        sums = int_linear(q, weight_hh, x_zero_point=state_zero_point or 0)
        hidden = dequantize(sums, scale * weight_scale)
        hidden = hidden if bias_hh is None else hidden + bias_hh
        state, cell = step(x, hidden, state, cell)
        states.append(state)
    states = states[::-1] if reverse else states
    return torch.stack([*states, state] if cell is None else [*states, state, cell])


def unfold(x, axis, size, step=1):
    """Windows of ``size`` along ``axis``, each ``step`` further; what is in them is the last axis."""
    axis %= x.ndim
    places = step * torch.arange((x.shape[axis] - size) // step + 1)[:, None] + torch.arange(size)
    return x.movedim(axis, -1)[..., places].movedim(-2, axis)


def max_pool_positions(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """Where the largest element of each window stands."""
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.dim() - 3]
    wide = x if x.is_floating_point() else x.double()
    return pool(wide, kernel_size, stride, padding, dilation, ceil_mode, True)[1]


def adaptive_max_pool_positions(x, output_size):
    """Where the largest element of each of ``output_size`` windows stands."""
    pools = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
    wide = x if x.is_floating_point() else x.double()
    return pools[x.dim() - 3](wide, output_size, True)[1]


def resize_weight(mode, distance, coefficient):
    """The weight of what is at a distance."""
    if mode == "linear":
        return torch.clamp(1 - distance, min=0)
    a, d = coefficient, distance
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, (((d - 5) * d + 8) * d - 4) * a
    return torch.where(d < 1, near, torch.where(d < 2, far, 0))


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
    axis, n, m = axis % x.dim(), x.shape[axis], size
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
    at = torch.arange(m, dtype=torch.float64) * step + shift
    if mode == "nearest":
        at = torch.round(at, decimals=9)  # as if it were exact
        rounds = {
            "floor": torch.floor,
            "ceil": torch.ceil,
            "round_prefer_floor": lambda v: torch.ceil(v - 0.5),
            "round_prefer_ceil": lambda v: torch.floor(v + 0.5),
        }
        return x.index_select(axis, rounds[rounding](at).long().clamp(0, n - 1))
    wide = max(step, 1) if antialias else 1
    reach = math.ceil((2 if mode == "cubic" else 1) * wide)
    places = torch.floor(at).long()[:, None] + torch.arange(1 - reach, reach + 1)
    weights = resize_weight(mode, torch.abs(places - at[:, None]) / wide, coefficient)
    if exclude_outside:
        weights = torch.where((places >= 0) & (places < n), weights, 0)
    if exclude_outside or antialias:
        weights = weights / weights.sum(dim=1, keepdim=True)
    weights = weights.to(x.dtype).reshape(m, 2 * reach, *[1] * (x.dim() - 1 - axis))
    chosen = x.index_select(axis, places.clamp(0, n - 1).flatten())
    return (chosen.unflatten(axis, (m, 2 * reach)) * weights).sum(dim=axis + 1)


def grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    """``x`` read at positions between -1 and 1, of which NaN and what is large lie outside."""
    wide = torch.promote_types(x.dtype, torch.float32)
    grid = torch.nan_to_num(grid.to(wide), nan=-1e4).clamp(-1e4, 1e4)
    return F.grid_sample(x.to(wide), grid, mode, padding_mode, align_corners).to(x.dtype)
