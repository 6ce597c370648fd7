"""Expressions of ``nn.functional`` in odd configurations: activations, norms, linear layers,
convolutions, pooling, attention. As in :mod:`tests.fuzz.programs.expressions`.
"""

from __future__ import annotations

import numpy as np

from tests.fuzz.programs.writer import Writer

ACTIVATIONS = (
    "relu",
    "gelu",
    "silu",
    "elu",
    "softplus",
    "hardswish",
    "leaky_relu",
    "relu6",
    "mish",
    "selu",
    "hardtanh",
    "logsigmoid",
    "softsign",
    "tanhshrink",
    "hardsigmoid",
    "softshrink",
    "sigmoid",
    "tanh",
    "hardshrink",
    "celu",
)


def single(value: np.ndarray) -> bool:  # type: ignore[type-arg]
    """float32 or float64, which layers are made for."""
    return value.dtype in (np.float32, np.float64)


def activation(w: Writer) -> str | None:
    """An activation, softmax or glu."""
    x = w.floating()
    if x is None:
        return None
    rank = w.values[x].ndim
    if rank and w.chance(0.4):
        axis = w.number(-rank, rank - 1)
        return str(
            w.choose(
                (
                    f"F.softmax({x}, {axis})",
                    f"F.log_softmax({x}, dim={axis})",
                    f"F.softmin({x}, {axis})",
                    f"F.glu({x}, {axis})",
                    f"F.normalize({x}, dim={axis})",
                )
            )
        )
    return f"F.{w.choose(ACTIVATIONS)}({x})"


def norm(w: Writer) -> str | None:
    """layer_norm, rms_norm, group_norm, instance_norm, batch_norm."""
    x = w.variable(lambda v: single(v) and v.ndim > 0)
    if x is None:
        return None
    shape, dtype = w.values[x].shape, w.values[x].dtype.str[1:]
    last = shape[-1]
    choices = [f"F.layer_norm({x}, ({x}.shape[-1],))", f"F.rms_norm({x}, ({x}.shape[-1],))"]
    if w.known(last):
        first, second = w.weight((last,), dtype), w.weight((last,), dtype)
        choices += [
            f"F.layer_norm({x}, ({last},), {first}, {second})",
            f"F.rms_norm({x}, ({last},), {first}, eps=1e-3)",
        ]
    if len(shape) > 1:
        channels = shape[1]
        if channels % 2 == 0 and w.known(channels):
            choices.append(f"F.group_norm({x}, 2)")
        choices.append(f"F.layer_norm({x}, {x}.shape[1:])")
        if w.known(channels):
            mean, scale = w.weight((channels,), dtype), w.weight((channels,), dtype)
            choices.append(f"F.batch_norm({x}, {mean}, np.abs({scale}) + 0.5)")
        if len(shape) > 2:
            choices.append(f"F.instance_norm({x})")
    return str(w.choose(choices))


def convolution(w: Writer) -> str | None:
    """Convolutions with odd strides, padding, dilation and groups, from either layout."""
    x = w.variable(lambda v: single(v) and v.ndim in (2, 3, 4) and v.shape[-1] > 1)
    if x is None:
        return None
    value = w.values[x]
    text = x if value.ndim > 2 else f"{x}[None]"
    shape = value.shape if value.ndim > 2 else (1, *value.shape)
    dtype = value.dtype.str[1:]
    two = len(shape) == 4
    channels = shape[1]
    if not w.known(channels):
        return None
    groups = w.choose([g for g in (1, 1, 1, 2, channels) if channels % g == 0])
    outputs = groups * w.choose((1, 1, 2, 3, 5))
    kernel = [w.choose((1, 2, 3, 3, 5)) for _ in shape[2:]]
    weight = w.weight((outputs, channels // groups, *kernel), dtype)
    bias = w.weight((outputs,), dtype) if w.chance(0.4) else "None"
    stride = w.choose((1, 1, 1, 2, 3, "(2, 1)" if two else 2))
    padding = w.choose((0, 1, 1, 2, 3, "(1, 0)" if two else 1))
    dilation = w.choose((1, 1, 1, 2))
    given = f"stride={stride}, padding={padding}, dilation={dilation}"
    if w.chance(0.15) and groups == 1:
        turned = w.weight((channels, outputs, *kernel), dtype)
        return f"F.conv_transpose{2 if two else 1}d({text}, {turned}, stride={stride})"
    return f"F.conv{2 if two else 1}d({text}, {weight}, {bias}, {given}, groups={groups})"


def pooling(w: Writer) -> str | None:
    """Pooling windows, adaptive ones, resizing."""
    x = w.variable(lambda v: single(v) and v.ndim in (3, 4) and min(v.shape[2:]) > 1)
    if x is None:
        return None
    d = w.values[x].ndim - 2
    size, stride = w.choose((2, 3, 2)), w.choose((1, 2, "None", 3))
    ceil = w.choose(("", ", ceil_mode=True"))
    choices = [
        f"F.max_pool{d}d({x}, {size}, {stride}, padding={w.number(0, 1)}{ceil})",
        f"F.avg_pool{d}d({x}, {size}, {stride}, padding={w.number(0, 1)}{ceil})",
        f"F.adaptive_avg_pool{d}d({x}, {w.choose((1, 2, 3))})",
        f"F.adaptive_max_pool{d}d({x}, {w.choose((1, 2))})",
        f'F.interpolate({x}, scale_factor=2, mode="nearest")',
    ]
    return str(w.choose(choices))


def attention(w: Writer) -> str | None:
    """Attention over odd operands: one value three times, transposed, with masks of all ranks; the
    call, and written out."""
    q = w.variable(lambda v: single(v) and v.ndim in (2, 3, 4))
    if q is None:
        return None
    value = w.values[q]
    k = w.variable(lambda v: v.shape[-1:] == value.shape[-1:] and v.ndim == value.ndim and v.dtype == value.dtype) or q
    v = w.choose((k, k, f"{k}[..., ::2]", f"({k} * 2)"))
    rows, keys = f"{q}.shape[-2]", f"{k}.shape[-2]"
    scores = f"{q} @ {k}.swapaxes(-1, -2)"
    bias = w.choose(
        (
            "",
            "* 0.5",
            "* 0.5 + np.float32(1)",
            "/ 2.0",
            "* 0.25 + 1",
            f"+ {w.like(value.shape[:-1])}",
            f"* 0.5 - {w.weight((1,), value.dtype.str[1:])}",
        )
    )
    m = w.like((*value.shape[:-1], w.values[k].shape[-2]))
    return str(
        w.choose(
            (
                f"F.softmax({scores} {bias}, -1) @ {v}",
                f"F.scaled_dot_product_attention({q}, {k}, {v})",
                f"F.scaled_dot_product_attention({q}, {q}, {q}, is_causal=True)",
                f"F.softmax(np.where({m} > 0, {scores} {bias}, -np.inf), axis=-1) @ {v}",
                f"F.softmax(np.where(np.triu(np.ones((6, 6), bool), 1)[:{rows}, :{keys}], -1e9, {scores}), -1) @ {v}",
                f"F.scaled_dot_product_attention({q}, {k}, {v}, {m} > 0)",
                f"F.softmax({scores} {bias}, -1) + 1",
            )
        )
    )


LAYERS = ((activation, 5), (norm, 3), (convolution, 4), (pooling, 3), (attention, 4))
"""What can be written, and how often."""
