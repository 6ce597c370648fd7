"""Programs that try what templates claim: products, convolutions, attention and recurrences, of
floats and of integers, on odd operands (transposed, flipped, sliced, broadcast, cast, one value
twice, of rank 0 or of no elements), with epilogues that read odd things.

In: a seed. Out: a program of few statements, of which one or two are such calls. Phrases as in
:mod:`tests.fuzz.programs.expressions`.
"""

from __future__ import annotations

from tests.fuzz.programs.expressions import binary, cast, fancy, joined, longer, moved, product, reduced, sliced, viewed
from tests.fuzz.programs.layers import activation, attention, convolution
from tests.fuzz.programs.program import Program
from tests.fuzz.programs.writer import Phrase, Writer


def bytes_of(w: Writer, rank: int) -> str:
    """A value of 8-bit integers made of a variable of at least this rank, by casts and views."""
    x = w.variable(lambda v: v.ndim >= rank) or w.choose(list(w.values))
    if w.values[x].dtype.str[1:] in ("i1", "u1"):
        return x
    dtype = w.choose(("np.int8", "np.uint8"))
    low = 0 if dtype == "np.uint8" else -100
    return f"np.clip({x} * {w.choose((1, 10))}, {low}, 100).astype({dtype})"


def narrow(w: Writer, shape: tuple[int, ...], low: int = -127) -> str:
    """A constant of int8."""
    name, seed = f"W{len(w.weights)}", w.number(0, 99)
    text = f'{name} = np.random.default_rng({seed}).integers({low}, 127, {shape!r}).astype("i1")'
    exec(text, w.space)
    w.weights.append(text)
    w.callers.append(w.space[name])
    return name


def integer_product(w: Writer) -> str | None:
    """Products and convolutions of 8-bit integers."""
    if w.hard:
        return None
    x, zero = bytes_of(w, 2), w.choose((0, 0, 3, 128))
    value = w.evaluated(x)
    if value is None or value.ndim < 2 or not w.known(value.shape[1], value.shape[-1]):
        return None
    last, columns = value.shape[-1], w.choose((1, 3, 5, 16, 17))
    scaled = w.choose(("", " * np.float32(0.01)", ".astype(np.float32)"))
    if value.ndim == 4 and w.chance(0.6):
        groups = w.choose([g for g in (1, 1, 2, value.shape[1]) if value.shape[1] % g == 0])
        kernel = w.choose(((1, 1), (3, 3), (2, 3), (3, 1)))
        weight = narrow(w, (groups * w.choose((1, 2, 5)), value.shape[1] // groups, *kernel))
        return (
            f"fx.ops.int_conv2d({x}, {weight}, groups={groups}, padding={w.number(0, 2)}, "
            f"stride={w.choose((1, 2))}, x_zero_point={zero}){scaled}"
        )
    if w.chance(0.3):
        view = w.choose((".swapaxes(-1, -2)", ".swapaxes(-1, -2)[..., ::-1]"))
        return f"fx.ops.int_matmul({x}, {x}{view}, x_zero_point={zero}){scaled}"
    if w.chance(0.4):
        return f"fx.ops.int_linear({x}, {narrow(w, (columns, last))}, x_zero_point={zero}){scaled}"
    y = w.variable(lambda v: v.shape[-1:] == (last,) and v.dtype == "f4")
    if y is None:
        return None
    if last % 8 == 0 and w.chance():
        weight, scale = narrow(w, (columns, last)), w.weight((columns, last // 4))
        return f"fx.ops.linear_weight_only({y}, {weight}, np.abs({scale}), group_size=4)"
    return f"fx.ops.linear_weight_only({y}, {narrow(w, (columns, last))}, {w.weight((columns,))})"


def recurrence(w: Writer) -> str | None:
    """Recurrences whose gates are a product."""
    x = w.variable(lambda v: v.ndim == 3 and v.dtype == "f4" and w.known(v.shape[-1]))
    if x is None:
        return None
    size, mode = w.choose((1, 3, 5, 16)), w.choose(("lstm", "gru"))
    gates = 4 if mode == "lstm" else 3
    into, hidden = w.weight((w.values[x].shape[-1], gates * size)), w.weight((gates * size, size))
    start = f"np.zeros(({x}.shape[1], {size}), np.float32)" if w.chance(0.2) else (f"({x} @ {into})[0, :, :{size}]")
    cell = f", {start}" if mode == "lstm" else ""
    weight = w.choose((hidden, f"{hidden}[::-1]", f"({hidden} * 2)"))
    return f"fx.ops.recurrence({x} @ {into}, {weight}, {start}{cell}, mode='{mode}', reverse={w.chance()})"


CALLS: tuple[Phrase, ...] = (product, product, convolution, attention, integer_product, recurrence)
BEFORE: tuple[Phrase, ...] = (viewed, sliced, sliced, moved, viewed, cast, binary, fancy)
BEHIND: tuple[Phrase, ...] = (binary, binary, longer, activation, viewed, sliced, reduced, joined, moved, cast)


def write_template(seed: tuple[int, int]) -> Program:
    """The program of a seed: views, a call, an epilogue, and now and then the same again."""
    w = Writer(seed)
    for _ in range(w.number(1, 2)):
        for kinds, most in ((BEFORE, w.number(0, 2)), (CALLS, 1), (BEHIND, w.number(0, 3))):
            wanted, tries = len(w.statements) + most, 0
            while len(w.statements) < wanted and tries < 30:
                text = w.choose(kinds)(w)
                tries += 1
                if text is not None:
                    w.assign(text)
    return w.program()
