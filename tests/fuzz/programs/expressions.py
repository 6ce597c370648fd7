"""Expressions of NumPy: each phrase takes a Writer and gives the text of an expression, or None
where no variable fits. Whether NumPy accepts it is not asked here.
"""

from __future__ import annotations

from typing import Any

from tests.fuzz.programs.writer import Writer

FLOATS = (
    "exp",
    "sin",
    "cos",
    "tanh",
    "sqrt",
    "log",
    "expm1",
    "log1p",
    "log2",
    "arctan",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "reciprocal",
    "isnan",
    "isfinite",
    "isinf",
    "sinh",
    "cosh",
    "arcsin",
)
NUMBERS = ("abs", "absolute", "square", "sign", "negative", "fabs")
BINARY = ("+", "-", "*", "/", "+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!=")
BITS = ("&", "|", "^")
FUNCTIONS = (
    "maximum",
    "minimum",
    "arctan2",
    "logical_and",
    "logical_or",
    "logical_xor",
    "add",
    "multiply",
    "floor_divide",
    "remainder",
    "subtract",
    "divide",
    "hypot",
    "logaddexp",
    "copysign",
    "nextafter",
)
SCALARS = (
    "2",
    "0.5",
    "-1",
    "3",
    "1.5",
    "np.float32(0.25)",
    "np.float64(2.5)",
    "np.int32(3)",
    "True",
    "0",
    "7",
    "1e-3",
    "np.int64(-2)",
    "np.pi",
    "np.float16(1.5)",
)
DTYPES = (
    "np.float32",
    '"f4"',
    "float",
    "np.float16",
    '"int64"',
    "np.int32",
    "np.uint8",
    "bool",
    "np.int8",
    "np.int16",
    "int",
    "np.float64",
)


# -- elements --------------------------------------------------------------------------------------
def unary(w: Writer) -> str | None:
    """A function of one operand."""
    if w.chance(0.6):
        x = w.floating()
        return x and f"np.{w.choose(FLOATS)}({x})"
    x = w.variable()
    kind = w.number(0, 4)
    if kind == 0:
        return f"-{x}"
    if kind == 1:
        x = w.variable(lambda v: v.dtype.kind in "bi")
        return x and w.choose((f"~{x}", f"np.logical_not({x})", f"np.invert({x})"))
    return f"np.{w.choose(NUMBERS)}({x})"


def operand(w: Writer, x: str) -> str:
    """What stands beside a variable: another that broadcasts, a number, a size, or a part of it."""
    value = w.values[x]
    kind = w.number(0, 9)
    if kind < 5:
        return w.like(value.shape) or x
    if kind < 8 or not value.ndim:
        return str(w.choose(SCALARS))
    axis = w.number(0, value.ndim - 1)
    if kind == 8:
        return f"{x}.shape[{w.choose((axis, axis - value.ndim))}]"
    reduced = w.choose(("mean", "max", "sum", "min"))
    return f"{x}.{reduced}({w.choose((axis, axis - value.ndim))}, keepdims=True)"


def binary(w: Writer) -> str | None:
    """Two operands that broadcast, or one and a number."""
    x = w.variable()
    if x is None:
        return None
    y = operand(w, x)
    if w.chance(0.1):
        return w.choose((f"{x} ** 2", f"{x} ** 3", f"np.power({x}, 2)", f"{x} ** 0.5"))
    if w.chance(0.1) and w.values[x].dtype.kind in "bi":
        return f"{x} {w.choose(BITS)} {y}" if w.chance(0.7) else f"{x} {w.choose(('<<', '>>'))} 2"
    if w.chance(0.25):
        return f"np.{w.choose(FUNCTIONS)}({x}, {y})"
    left, right = (x, y) if w.chance(0.7) else (y, x)
    return f"{left} {w.choose(BINARY)} {right}"


def longer(w: Writer) -> str | None:
    """A formula of several operations, as people write them."""
    x = w.floating()
    if x is None:
        return None
    y, n = operand(w, x), w.choose(SCALARS)
    return w.choose(
        (
            f"({x} - {x}.mean()) / ({x}.std() + 1e-5)",
            f"{x} * {n} + {y}",
            f"1 / (1 + np.exp(-{x}))",
            f"np.exp({x} - {x}.max(keepdims=True))",
            f"np.sqrt({x} * {x} + 1e-6) - {y}",
            f"np.tanh({x} * {n}) * {y}",
            f"({x} > {n}) * {y}",
            f"abs({x} - {y}).mean()",
            f"np.where({x} > 0, {x}, {n} * {x})",
            f"({x} + {y}) * ({x} - {y})",
            f"np.log(np.maximum({x}, 1e-3)) / {y}",
            f"-({x} ** 2) + {n}",
        )
    )


def chosen(w: Writer) -> str | None:
    """where and clip."""
    x = w.variable()
    if x is None:
        return None
    if w.chance(0.4):
        low, high = w.choose((("-1", "1"), ("0", "None"), ("None", "2"), ("-3", "5"), ("0", "6")))
        return w.choose((f"np.clip({x}, {low}, {high})", f"{x}.clip({low}, {high})"))
    c = w.variable(lambda v: v.dtype == bool)
    condition = c if c and w.chance() else f"{x} {w.choose(('>', '<=', '=='))} {operand(w, x)}"
    return f"np.where({condition}, {x}, {operand(w, x)})"


def cast(w: Writer) -> str | None:
    """A cast; of floats to integers only what integers can hold."""
    dtype = w.choose(DTYPES)
    x = w.variable()
    if x is None:
        return None
    whole = "int" in dtype
    if whole and w.values[x].dtype.kind == "f":
        if w.hard:
            return None
        low = "0" if "uint" in dtype else "-100"
        return f"np.clip({x}, {low}, 100).astype({dtype})"
    return f"{x}.astype({dtype})"


# -- subscripts ------------------------------------------------------------------------------------
def slices(w: Writer, size: int) -> str:
    """One axis of a basic subscript."""
    return str(
        w.choose(
            (
                ":",
                ":",
                ":",
                "0",
                "-1",
                "1",
                "1:",
                ":-1",
                "::2",
                "::-1",
                "1:-1",
                "-2:",
                ":2",
                "::-2",
                "-1::-1",
                "2::3",
                "1:3",
                "-3:-1",
                ":0",
                "5:",
                "3:0:-1",
                ":100",
                "-100:2",
                "0:1",
            )
        )
    )


def basic(w: Writer, x: str) -> str:
    """A basic subscript of a variable, without brackets."""
    value = w.values[x]
    items = [slices(w, n) for n in value.shape]
    if w.chance(0.2):
        items.insert(w.number(0, len(items)), w.choose(("None", "np.newaxis")))
    if w.chance(0.3):
        first = w.number(0, len(items))
        items[first : w.number(first, len(items))] = ["..."]
    elif w.chance(0.3):
        items = items[: w.number(1, max(1, len(items)))]
    return ", ".join(items) or "..."


def sliced(w: Writer) -> str | None:
    """A basic subscript."""
    x = w.variable(lambda v: v.ndim > 0)
    return x and f"{x}[{basic(w, x)}]"


def fancy(w: Writer) -> str | None:
    """Subscripts with arrays of integers, constant masks, and both beside slices."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    value = w.values[x]
    kind = w.number(0, 6)
    axis = w.number(0, value.ndim - 1)
    before = ":, " * axis if w.chance(0.8) else "..., " * (axis == value.ndim - 1)
    if kind == 0:
        return f"{x}[{before}{w.choose(('[0, 1, 0]', '[-1]', '[[0, 1], [1, 0]]', '[1, -2, 0]'))}]"
    if kind == 1:
        kept = [bool(w.number(0, 1)) for _ in range(value.shape[axis])]
        return f"{x}[{before}np.array({kept})]" if w.known(len(kept)) else None
    if kind == 2 and value.ndim > 1:
        middle = w.choose(("", "", ":, ", "None, "))
        return f"{x}[[0, 1], {middle}[1, 0]]"
    if kind == 3 and value.ndim > 1:
        return f"{x}[{w.choose(('1:', '::-1', '0', '...'))}, {w.choose(('[0, 1]', '[1, 1, 0]'))}]"
    i = w.variable(lambda v: v.dtype.kind == "i" and v.dtype.itemsize > 1 and v.ndim < 3)
    if i is None:
        return None
    n = f"{x}.shape[{axis}]"
    index = f"{i} % {n}" if not w.hard or w.chance() else f"np.clip({i}, 0, {n} - 1)"
    if kind == 4:
        return f"np.take({x}, {index}, {w.choose((axis, axis - value.ndim))})"
    if kind == 5 and w.values[i].ndim == value.ndim:
        return f"np.take_along_axis({x}, {index}, axis={axis})"
    return f"{x}[{before}{index}]"


# -- views and joins -------------------------------------------------------------------------------
def axes_text(w: Writer, rank: int) -> str:
    """An axis, or a tuple of some, counted from either end."""
    first = w.number(0, rank - 1)
    if rank > 1 and w.chance(0.3):
        second = (first + w.number(1, rank - 1)) % rank
        return f"({first}, {w.choose((second, second - rank))})"
    return str(w.choose((first, first - rank)))


def viewed(w: Writer) -> str | None:
    """Other shapes of one variable."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    rank, shape = w.values[x].ndim, w.values[x].shape
    one, two = w.number(-rank, rank - 1), w.number(-rank, rank - 1)
    order = ", ".join(str(a) for a in w.rng.permutation(rank))
    n = [f"{x}.shape[{a}]" for a in range(rank)]
    choices = [
        f"{x}.T",
        f"{x}.reshape(-1)",
        f"{x}.ravel()",
        f"{x}.flatten()",
        f"np.swapaxes({x}, {one}, {two})",
        f"np.moveaxis({x}, {one}, {two})",
        f"{x}.transpose({order})",
        f"np.transpose({x}, ({order},))",
        f"np.expand_dims({x}, {one})",
        f"np.squeeze({x})",
        f"{x}.reshape({n[0]}, -1)",
        f"{x}.reshape(1, *{x}.shape)",
        f"{x}.reshape(-1, {n[-1]})",
        f"{x}.reshape({x}.shape[::-1])",
        f"np.squeeze({x}, {one})",
        f"np.expand_dims({x}, (0, -1))",
        f"np.broadcast_to({x}, (3, *{x}.shape))",
        f"{x}.swapaxes({one}, {two})",
    ]
    if rank > 1:
        choices += [
            f"{x}.reshape({n[0]} * {n[1]}, *{x}.shape[2:])",
            f"{x}.swapaxes(-1, -2).reshape({', '.join([*n[:-2], '-1'])})",
        ]
    for axis, size in enumerate(shape):
        if size in (4, 8, 16):
            parts = [*n[:axis], str(size // 2), "2", *n[axis + 1 :]]
            choices += [f"{x}.reshape({', '.join(parts)})"] * 2
    return str(w.choose(choices))


def moved(w: Writer) -> str | None:
    """flip, roll, tile, repeat, pad, triangles."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    rank = w.values[x].ndim
    axis = w.number(-rank, rank - 1)
    pads = ", ".join(f"({w.number(0, 2)}, {w.number(0, 1)})" for _ in range(rank))
    choices = [
        f"np.flip({x}, {axes_text(w, rank)})",
        f"np.flip({x})",
        f"np.roll({x}, {w.number(-3, 7)}, {axis})",
        f"np.roll({x}, {w.number(-3, 7)})",
        f"np.tile({x}, {w.choose((2, '(2, 1)', '(1, 3)', '(2, 1, 2)'))})",
        f"np.repeat({x}, {w.number(1, 3)}, axis={axis})",
        f"np.repeat({x}, 2)",
        f"np.pad({x}, ({pads},))",
        f"np.pad({x}, {w.number(0, 2)}, constant_values={w.number(-1, 2)})",
        f"np.roll({x}, (1, -2), (0, {axis}))",
        f"{x}.repeat(2, {axis})",
    ]
    if w.chance(0.02):
        return f"np.pad({x}, 1, mode='{w.choose(('edge', 'reflect', 'wrap'))}')"
    if rank > 1:
        k = w.number(-2, 2)
        choices += [f"np.tril({x}, {k})", f"np.triu({x}, k={k})", f"np.tril({x})"]
    return str(w.choose(choices))


def joined(w: Writer) -> str | None:
    """Several values as one, and one as several of which one is taken."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    value = w.values[x]
    axis = w.number(-value.ndim, value.ndim - 1)
    y = w.variable(lambda v: v.shape == value.shape)
    z = w.variable(lambda v: v.ndim == value.ndim)
    if w.chance(0.3):
        size = value.shape[axis]
        parts = next((n for n in (2, 3, 4, 5, 7) if size % n == 0), None)
        how = (
            f"np.split({x}, {parts}, {axis})"
            if parts and w.chance()
            else w.choose((f"np.split({x}, [1, 2], axis={axis})", f"np.array_split({x}, 3, {axis})"))
        )
        return f"{how}[{w.choose((0, -1, 1))}]"
    return str(
        w.choose(
            (
                f"np.concatenate([{x}, {y}], axis={axis})",
                f"np.concatenate(({x}, {z}), {axis})",
                f"np.stack([{x}, {y}], axis={axis})",
                f"np.stack(({y}, {x}, {y}), -1)",
                f"np.vstack([{x}, {z}])",
                f"np.hstack([{z}, {x}])",
                f"np.concatenate([{x}, np.zeros_like({x})], axis={axis})",
                f"np.concatenate([{x}[:1], {x}])",
                f"np.concatenate([{x}, {z}], axis=None)",
            )
        )
    )


# -- reductions ------------------------------------------------------------------------------------
def reduced(w: Writer) -> str | None:
    """Reductions over an axis, several, or all."""
    x = w.variable()
    if x is None:
        return None
    rank = w.values[x].ndim
    name = w.choose(
        ("sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin", "var", "std", "sum", "mean", "max")
    )
    arguments = []
    if rank and w.chance(0.75):
        axis = axes_text(w, rank)
        if name.startswith("arg") and "(" in axis:
            axis = "-1"
        arguments.append(w.choose((f"axis={axis}", axis)))
    if w.chance(0.3):
        arguments.append("keepdims=True")
    if name in ("sum", "mean", "prod", "var") and w.chance(0.12):
        arguments.append(f"dtype={w.choose(('np.float32', 'np.float64', 'np.int64'))}")
    if name in ("var", "std") and w.chance(0.2):
        arguments.append("ddof=1")
    if w.chance():
        return f"{x}.{name}({', '.join(arguments)})"
    return f"np.{name}({', '.join([x, *arguments])})"


def scanned(w: Writer) -> str | None:
    """cumsum, norms, differences and ufunc.reduce."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    rank = w.values[x].ndim
    axis = w.number(-rank, rank - 1)
    return str(
        w.choose(
            (
                f"np.cumsum({x}, axis={axis})",
                f"{x}.cumsum({axis})",
                f"np.cumsum({x})",
                f"np.linalg.norm({x}, axis={axis})",
                f"np.linalg.norm({x})",
                f"{x}[1:] - {x}[:-1]",
                f"np.add.reduce({x}, {axis})",
                f"np.maximum.reduce({x}, axis={axis})",
                f"np.cumsum({x}[::-1], 0)[::-1]",
                f"np.linalg.norm({x}, axis={axis}, keepdims=True)",
                f"np.minimum.reduce({x})",
                f"np.argmax({x}, {axis}) + 1",
                f"np.round({x}, {w.number(0, 2)})",
            )
        )
    )


# -- products --------------------------------------------------------------------------------------
def product(w: Writer) -> str | None:
    """matmul with a transpose, a weight, itself; einsum, dot, outer."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    value = w.values[x]
    rank, last = value.ndim, value.shape[-1]
    y = w.variable(lambda v: v.ndim > 0 and v.shape[-1] == last) or x
    z = w.variable(lambda v: v.ndim > 0 and last == v.shape[max(v.ndim - 2, 0)]) or x
    dtype = w.choose(("f4", "f4", "f8")) if value.dtype != float else "f8"
    choices: list[Any] = [f"{x} @ {z}", f"np.outer({x}, {y})", f"np.dot({x}, {z})", f"np.matmul({x}, {z})"]
    if w.known(last):
        columns = w.choose((1, 2, 3, 5, 16, 17))
        choices += [f"{x} @ {w.weight((last, columns), dtype)}", f"F.linear({x}, {w.weight((columns, last), dtype)})"]
    if rank > 1:
        letters = "abcd"[:rank]
        choices += [
            f"{x} @ {x}.swapaxes(-1, -2)",
            f"{y} @ {x}.swapaxes(-1, -2)",
            f"{x}.swapaxes(-1, -2) @ {x}",
            f"{x} @ {y}.T",
            f"{x} @ {x}[..., 0, :]",
            f'np.einsum("...ij,...kj->...ik", {x}, {y})',
            f'np.einsum("{letters}->{letters[::-1]}", {x})',
            f'np.einsum("{letters}->{letters[0]}", {x})',
            f'np.einsum("{letters},{letters}->{letters[1:]}", {x}, {y})',
            f"({x} * 0.5) @ {y}.swapaxes(-1, -2) + {operand(w, x)}",
            f"{x}[..., ::-1] @ {x}.swapaxes(-1, -2)",
            f"{x}[..., 1:, :] @ {x}.swapaxes(-2, -1)[..., ::2]",
        ]
    else:
        choices += [f'np.einsum("i,i->", {x}, {x})', f'np.einsum("i,j->ij", {x}, {y})', f"{x} @ {x}"]
    return str(w.choose(choices))


PHRASES_OF_NUMPY = (
    (unary, 8),
    (binary, 14),
    (longer, 7),
    (chosen, 5),
    (cast, 4),
    (sliced, 11),
    (fancy, 6),
    (viewed, 9),
    (moved, 6),
    (joined, 7),
    (reduced, 9),
    (scanned, 4),
    (product, 6),
)
"""What can be written, and how often."""
