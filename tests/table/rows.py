"""The calls of the table: every NumPy name that the tracer knows, on every dtype.

In: the tables of :mod:`fxlite.tracing.numpy_api`. Out: :class:`Row` records: an expression over
``a``, ``b``, ``c``, their types and what values they are to have. A ufunc comes from the table by
itself; a function with arguments of its own has its calls in :data:`CALLS`, and tests/test_table.py
fails for one that has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from fxlite.tracing import numpy_api
from fxlite.tracing.functions import fourier
from fxlite.types import dtypes
from tests.table import numpy_page

#: Sizes that rows with the named dim N are called with.
LENGTHS = (0, 1, 7, 1037)
NAMES = tuple(d.name for d in dtypes.ALL if not d.is_complex)
#: Complex numbers have rows of their own: :func:`complex_numbers`.
COMPLEX = tuple(d.name for d in dtypes.COMPLEX)


@dataclass(frozen=True)
class Row:
    """One call. ``text`` is an expression, or statements of which the last line is one;
    ``function`` is its name in :mod:`bounds`; sizes are the values of N."""

    function: str
    text: str
    types: tuple[str, ...]
    roles: tuple[str, ...]
    sizes: tuple[int, ...] = (0,)

    @property
    def label(self) -> str:
        shown = ", ".join(f"{n}={t}" for n, t in zip("abcdefgh", self.types))
        return f"{self.text}  [{shown}]".replace("\n", "; ")


def ufuncs(arity: int) -> list[str]:
    """Names of the ufuncs with an op, of one or two operands."""
    known = [u for u in numpy_api._UFUNCS if u.nin == arity and u.signature is None]
    return sorted(u.__name__ for u in known)


def elementwise() -> Iterator[Row]:
    """Ufuncs of one value, of all pairs of dtypes, and beside numbers."""
    for name, dtype in itertools.product(ufuncs(1), NAMES):
        text = f"np.{name}(a)"
        yield Row(name, text, (f"{dtype}[N]",), ("hard",), LENGTHS)
        yield Row(name, text, (f"{dtype}[]",), ("hard",))
        yield Row(name, text, (f"{dtype}[3,0]",), ("hard",))
    for name, x, y in itertools.product(ufuncs(2), NAMES, NAMES):
        counted = name in ("power", "left_shift", "right_shift") and y[0] in "ui"
        roles = ("hard", "count") if counted else (f"left:{y}", f"right:{x}")
        text = f"np.{name}(a, b)"
        yield Row(name, text, (f"{x}[N]", f"{y}[N]"), roles, LENGTHS)
        if x == y or {x, y} <= {"u8", "i8", "f32"}:
            yield Row(name, text, (f"{x}[]", f"{y}[2,5]"), roles)
            yield Row(name, text, (f"{x}[3,0]", f"{y}[]"), roles)


#: Numbers beside arrays: within the dtype or not, whole or not, NumPy scalars, arrays of rank 0.
NUMBERS = """
True | 0 | 1 | 2 | -1 | 3 | 127 | 128 | 200 | 255 | 256 | 300 | -129 | 32768 | 70000 | 2**31
2**63 - 1 | 2**63 | -2**63 | -2**63 - 1 | 2**70 | 0.5 | -0.0 | 2.0 | 1e-50 | 65520.0 | 1e39
1e300 | np.nan | np.inf | -np.inf | np.float32(0.1) | np.float64(0.1) | np.int8(3)
np.uint8(200) | np.int64(300) | np.array(0.1)
np.bool_(True) | np.float16(2.5) | np.array(300) | np.array(3, np.int8)
"""
#: Two operands, one of them a number.
BESIDE = """
np.add(a, {}) | np.subtract({}, a) | np.multiply(a, {}) | np.true_divide(a, {})
np.floor_divide(a, {}) | np.remainder({}, a) | np.maximum(a, {}) | np.minimum({}, a)
np.equal(a, {}) | np.less(a, {}) | np.greater_equal({}, a) | np.not_equal({}, a)
np.less_equal(a, {}) | np.greater(a, {}) | np.arctan2(a, {}) | np.bitwise_and(a, {})
np.bitwise_xor({}, a) | np.logical_or(a, {})
np.where(a > 0, a, {}) | np.where(a > 0, {}, a) | np.clip(a, {}, None) | np.clip(a, None, {})
a.clip({}) | a.clip(max={}) | np.full_like(a, {}) | np.pad(a, 2, constant_values={})
np.clip(a, {0}, {0}) | np.clip(a, -1, {})
a + {} | {} - a | a * {} | a // {} | a < {} | a == {} | np.zeros_like(a) + {}
y = a.copy(); y[...] = {}; y | y = a.copy(); y += {}; y | y = a.copy(); y *= {}; y
y = a.copy(); y[a > 0] = {}; y | y = a.copy(); y.fill({}); y | y = a.copy(); y[:1] = {}; y
y = a.copy(); np.copyto(y, {}); y
"""


def _split(text: str) -> list[str]:
    return text.strip().replace("\n", " | ").split(" | ")


def beside_numbers() -> Iterator[Row]:
    """An array beside a number."""
    numbers = _split(NUMBERS)
    forms = [f.replace("; ", "\n") for f in _split(BESIDE)]
    for form, number, dtype in itertools.product(forms, numbers, NAMES):
        function = form.split("(")[0].removeprefix("np.") if form.startswith("np.") else "operator"
        yield Row(function, form.format(number), (f"{dtype}[N]",), ("hard",), (9,))
    for exponent, dtype in itertools.product(numbers, NAMES):
        if exponent not in ("2**31", "2**63 - 1", "-2**63"):  # warnings of overflow apart, slow
            yield Row("power", f"np.power(a, {exponent})", (f"{dtype}[N]",), ("hard",), (67,))
            yield Row("power", f"a ** {exponent}", (f"{dtype}[N]",), ("hard",), (67,))
    for base, dtype in itertools.product(("2", "-1", "3.0", "0.5", "300", "np.float32(2)"), NAMES):
        role = "count" if dtype[0] in "uib" and dtype != "bf16" else "hard"
        yield Row("power", f"np.power({base}, a)", (f"{dtype}[N]",), (role,), (67,))
    for form in ("np.left_shift(a, {})", "np.right_shift(a, {})", "a << {}", "{} >> a"):
        for number, dtype in itertools.product(("0", "1", "7", "8", "64", "300", "True"), NAMES):
            yield Row("shift", form.format(number), (f"{dtype}[N]",), ("hard",), (67,))


#: Functions that keep, drop or take an axis: calls for every dtype on some shapes.
REDUCTIONS = "sum mean prod any all max min argmax argmin var std cumsum cumprod".split()
_OPTIONS = {
    "[]": ("", "axis=None", "axis=0", "axis=-1", "keepdims=True", "axis=()"),
    "[0]": ("", "axis=0", "axis=-1", "keepdims=True"),
    "[N]": ("", "axis=0"),
    "[1]": ("", "axis=0, keepdims=True"),
    "[7]": ("", "axis=0", "axis=1", "axis=0, keepdims=True"),
    "[0,0]": ("axis=0", "axis=1, keepdims=True"),
    "[3,0]": ("", "axis=0", "axis=1", "axis=(0, 1)", "axis=1, keepdims=True", "axis=()"),
    "[0,3]": ("", "axis=0", "axis=-1", "axis=(0, 1)"),
    "[2,5,3]": ("", "axis=1", "axis=(0, 2)", "axis=-1, keepdims=True", "axis=(0, 0)", "axis=()"),
    "[N,3]": ("axis=0", "axis=1", "axis=0, keepdims=True"),
    "[1000]": ("",),
}

#: Dtypes of totals, ``dtype=``.
_TOTALS = "np.float32 np.int64 np.float64 np.int8 bool np.float16 np.uint16 np.uint64".split()


def reductions() -> Iterator[Row]:
    """Reductions and scans over every axis, of empty arrays too."""
    for name, dtype, (shape, options) in itertools.product(REDUCTIONS, NAMES, _OPTIONS.items()):
        role = "hard" if name in ("any", "all", "max", "min", "argmax", "argmin") else "mild"
        sizes = (0, 1, 7, 1037) if "N" in shape else (0,)
        for option in options:
            if name in ("cumsum", "cumprod", "argmax", "argmin") and ("keepdims" in option or "(" in option):
                continue  # no such argument
            arguments = ", ".join(filter(None, ("a", option)))
            kind = (f"{dtype}{shape}",)
            if "N" in shape:  # one size each: what NumPy refuses for 0 it computes for 1
                for size in sizes:
                    yield Row(name, f"np.{name}({arguments})", kind, (role,), (size,))
            else:
                yield Row(name, f"np.{name}({arguments})", kind, (role,), sizes)
    for name, dtype in itertools.product(("sum", "prod", "mean", "cumsum", "cumprod"), NAMES):
        for target in _TOTALS:
            text = f"np.{name}(a, axis=0, dtype={target})"
            yield Row(name, text, (f"{dtype}[7,2]",), ("mild",))
    for name, dtype in itertools.product(("var", "std"), NAMES):
        for option in ("ddof=1", "ddof=1, axis=0", "ddof=2, axis=1, keepdims=True"):
            yield Row(name, f"np.{name}(a, {option})", (f"{dtype}[4,5]",), ("mild",))
    for name, dtype in itertools.product(("add", "multiply", "maximum", "minimum", "logical_and"), NAMES):
        yield Row("sum", f"np.{name}.reduce(a)", (f"{dtype}[7,2]",), ("mild",))
        yield Row("sum", f"np.{name}.reduce(a, axis=None)", (f"{dtype}[7,2]",), ("mild",))


#: Functions with arguments of their own, "name: call | shapes | role" (no role: hard).
_CALLS = """
reshape: np.reshape(a, (5, 2)) | [2,5]
reshape: np.reshape(a, -1) | [2,5] [3,0] []
transpose: np.transpose(a) | [2,5] [] [7]
swapaxes: np.swapaxes(a, 0, -1) | [2,5] [2,5,3]
moveaxis: np.moveaxis(a, 0, -1) | [2,5,3]
ravel: np.ravel(a) | [2,5] [] [3,0]
squeeze: np.squeeze(a) | [2,1] [1] []
expand_dims: np.expand_dims(a, 0) | [2,5] []
concatenate: np.concatenate([a, a]) | [7] [3,0] [N]
concatenate: np.concatenate([a, a], axis=None) | [2,5]
stack: np.stack([a, a], axis=-1) | [7] [] [3,0]
vstack: np.vstack([a, a]) | [7] [2,5] []
hstack: np.hstack([a, a]) | [7] [2,5] []
split: np.split(a, 2)[1] | [8] [2,5]
split: np.split(a, [1, 3])[2] | [8]
array_split: np.array_split(a, 3)[2] | [8] [2,5]
array_split: np.array_split(a, 3, axis=-1)[0] | [2,5]
clip: np.clip(a, 1, 3) | [N] [] [2,5]
clip: np.clip(a, a, None) | [7]
clip: np.clip(a, None, None) | [7]
clip: np.clip(a, 3, 1) | [7]
take: np.take(a, [0, 1, -1]) | [7] [2,5]
take: np.take(a, [1, 0], axis=1) | [2,5]
take: np.take(a, 1) | [7]
repeat: np.repeat(a, 3) | [7] [] [2,5]
repeat: np.repeat(a, 0, axis=0) | [2,5]
tile: np.tile(a, 2) | [7] [2,5] []
tile: np.tile(a, (2, 0)) | [2,5]
pad: np.pad(a, 1) | [7] [2,5] [0]
pad: np.pad(a, ((1, 0), (0, 2)), constant_values=1) | [2,5]
where: np.where(a, a, 0) | [N] [] [2,5]
where: np.where(a, 1, 0) | [7]
where: np.where(a, 0.5, 1) | [7]
where: np.where(a, True, 2) | [7]
flip: np.flip(a) | [7] [2,5] []
flip: np.flip(a, 1) | [2,5]
roll: np.roll(a, 2) | [7] [2,5] [0]
roll: np.roll(a, -8, axis=1) | [2,5]
tril: np.tril(a) | [2,5] [5,2] [2,3,3]
tril: np.tril(a, -1) | [5,5]
triu: np.triu(a) | [2,5] [5,2]
triu: np.triu(a, 1) | [5,5]
einsum: np.einsum('ij->ji', a) | [2,5]
einsum: np.einsum('ij,kj->ik', a, a) | [2,5] [3,0] | mild
einsum: np.einsum('ii', a) | [5,5] | mild
dot: np.dot(a, a) | [7] [] [5,5] [0] [N] | mild
dot: a.dot(a) | [7] | mild
outer: np.outer(a, a) | [7] [2,5]
broadcast_to: np.broadcast_to(a, (2, 7)) | [7] []
take_along_axis: np.take_along_axis(a, np.array([[1, 0], [2, 2]]), 1) | [2,5]
zeros_like: np.zeros_like(a) | [N] [] [2,5]
zeros_like: np.zeros_like(a, dtype=np.int8) | [7]
ones_like: np.ones_like(a) | [N] [] [2,5]
full_like: np.full_like(a, 1.5) | [7]
full_like: np.full_like(a, np.nan) | [7]
full_like: np.full_like(a, 2, dtype=np.float16) | [7]
norm: np.linalg.norm(a) | [7] [2,5] [0] | mild
norm: np.linalg.norm(a, 1) | [7] | mild
norm: np.linalg.norm(a, np.inf) | [7] [0] | mild
norm: np.linalg.norm(a, axis=1) | [2,5] [3,0] | mild
norm: np.linalg.norm(a, axis=1, keepdims=True) | [2,5] | mild
norm: np.linalg.norm(a, 1, axis=0) | [2,5] [0,3] | mild
norm: np.linalg.norm(a, 1) | [2,5] | mild
norm: np.linalg.norm(a, np.inf) | [2,5] | mild
norm: np.linalg.norm(a, axis=(0, 1)) | [2,5] | mild
round: np.round(a) | [N] [] [2,5]
round: np.round(a, 1) | [N] [] [2,5]
round: np.round(a, -1) | [N]
round: np.round(a, 3) | [N]
round: a.round(2) | [N]
round: a.round(-2) | [N]
round: a.round(7) | [N]
copy: np.copy(a) | [N] [] [2,5]
copy: a.copy() | [N] [] [2,5]
shape: np.reshape(a, np.shape(a)) | [2,5]
ndim: a + np.ndim(a) | [2,5]
size: a + np.size(a) | [2,5]
size: a * np.size(a, 0) | [2,5]
copyto: y = np.ones_like(a); np.copyto(y, a); y | [7]
matmul: np.matmul(a, a) | [7] [5,5] [2,3,3] [0] [N] | mild
matmul: a @ a.T | [2,5] [3,0] [0,3] | mild
index: a[0] | [7] [2,5]
index: a[-1] | [7]
index: a[1:] | [7] [1] [0]
index: a[::-2] | [7] [0]
index: a[..., None] | [7] []
index: a[()] | []
index: a[np.array([2, 0])] | [7]
index: np.argmin(a[1]) | [7]
index: np.argmax(a[1], axis=0) | [7]
index: -a | [N] [] [2,5]
index: abs(a) | [N] [] [2,5]
index: ~a | [N] [] [2,5]
index: a / a | [7]
"""
_CASTS = [d.long_name for d in dtypes.ALL if d is not dtypes.bfloat16]


def _read_calls() -> dict[str, list[tuple[str, list[str], str]]]:
    """Calls by function: text, shapes, role."""
    found: dict[str, list[tuple[str, list[str], str]]] = {}
    for line in _CALLS.strip().splitlines():
        name, _, rest = line.partition(": ")
        text, shapes, *role = rest.split(" | ")
        call = (text.replace("; ", "\n"), shapes.split(), role[0] if role else "hard")
        found.setdefault(name, []).append(call)
    found["astype"] = [(f"a.astype(np.{n})", ["[9]"], "whole") for n in _CASTS]
    return found


def integers() -> Iterator[Row]:
    """What integers are for: positions; and their ends as other dtypes."""
    for dtype in dtypes.INTEGERS:
        for text in ("b[a]", "np.take(b, a)", "y = b.copy()\ny[a] = 3\ny"):
            yield Row("take", text, (f"{dtype}[6]", "f32[5]"), ("index", "hard"))
        for target in _CASTS:
            yield Row("astype", f"a.astype(np.{target})", (f"{dtype}[N]",), ("hard",), (67,))


CALLS = _read_calls()
#: Calls that are computed in another dtype.
COMPUTED = """
np.add(a, a, dtype=np.{}) | np.sqrt(a, dtype=np.{}) | np.maximum(a, 3, dtype=np.{})
np.concatenate([a, a], dtype=np.{}) | np.zeros_like(a, dtype=np.{}, shape=(2, 3))
np.var(a, dtype=np.{}) | np.multiply.reduce(a, dtype=np.{}) | np.einsum('i->i', a, dtype=np.{})
"""
JOINS = (
    "np.concatenate([a, b])",
    "np.stack([a, b])",
    "np.matmul(a, b)",
    "np.einsum('i,i', a, b)",
    "np.einsum('i,i->i', a, b)",
    "np.clip(a, b, None)",
    "np.clip(a, None, b)",
    "y = a.copy()\ny[...] = b\ny",
    "y = a.copy()\ny += b\ny",
)


def functions() -> Iterator[Row]:
    """Functions with arguments of their own, on every dtype and pair of dtypes."""
    for form, dtype, target in itertools.product(_split(COMPUTED), NAMES, _CASTS):
        name = form.partition("(")[0].split(".")[1]
        yield Row(name, form.format(target), (f"{dtype}[9]",), ("mild",))
    for name, calls in CALLS.items():
        for (text, shapes, role), dtype in itertools.product(calls, NAMES):
            for shape in shapes:
                sizes = LENGTHS if "N" in shape else (0,)
                yield Row(name, text, (f"{dtype}{shape}",), (role,), sizes)
    for x, y in itertools.product(NAMES, NAMES):
        kinds = (f"{x}[7]", f"{y}[7]")
        for text in JOINS:
            yield Row("matmul", text, kinds, ("mild", "mild"))
        yield Row("where", "np.where(c, a, b)", (*kinds, "bool[7]"), ("mild", "mild", "truth"))


#: Numbers beside complex arrays.
_BESIDE_COMPLEX = (
    "2",
    "-0.5",
    "1j",
    "(1 - 2j)",
    "np.float32(0.1)",
    "np.complex64(2j)",
    "np.float64(0.1)",
    "np.int8(3)",
)


def complex_numbers() -> Iterator[Row]:
    """Complex numbers, in calls that NumPy takes and in those that it refuses. Their values are
    mild: what infinities become depends on whether a product is fused with a sum."""
    for name, dtype in itertools.product(ufuncs(1), COMPLEX):
        yield Row(f"complex.{name}", f"np.{name}(a)", (f"{dtype}[N]",), ("mild",), (0, 37))
        yield Row(f"complex.{name}", f"np.{name}(a)", (f"{dtype}[]",), ("mild",))
    for name, x, y in itertools.product(ufuncs(2), COMPLEX, (*NAMES, *COMPLEX)):
        if y != "bf16":  # with ml_dtypes' own rules of promotion
            yield Row(f"complex.{name}", f"np.{name}(a, b)", (f"{x}[N]", f"{y}[N]"), ("mild", "mild2"), (37,))
            yield Row(f"complex.{name}", f"np.{name}(a, b)", (f"{y}[]", f"{x}[2,5]"), ("mild", "mild2"))
    operators = ("a + {}", "{} - a", "a * {}", "{} / a", "a ** {}", "a == {}", "a < {}", "a // {}")
    for form, number in itertools.product(operators, _BESIDE_COMPLEX):
        for dtype in (*COMPLEX, "f32", "f64", "f16", "i32", "u8", "bool"):
            yield Row("complex.operator", form.format(number), (f"{dtype}[9]",), ("mild",))
    for name, dtype in itertools.product(REDUCTIONS, COMPLEX):
        for shape, option in (("[7]", ""), ("[2,5]", "axis=1"), ("[0,3]", "axis=0"), ("[]", "")):
            arguments = ", ".join(filter(None, ("a", option)))
            yield Row(f"complex.{name}", f"np.{name}({arguments})", (f"{dtype}{shape}",), ("mild",))
    for (name, calls), dtype in itertools.product(CALLS.items(), COMPLEX):
        for text, shapes, _ in calls:
            for shape in shapes:
                yield Row(f"complex.{name}", text, (f"{dtype}{shape}",), ("mild",), (5,))
    for x, y in itertools.product(COMPLEX, ("i16", "f32", "f64", *COMPLEX)):
        for text in JOINS:
            yield Row("complex.matmul", text, (f"{x}[7]", f"{y}[7]"), ("mild", "mild2"))
    for name, dtype in itertools.product(("real", "imag", "angle"), (*COMPLEX, "f32", "i32")):
        yield Row(f"complex.{name}", f"np.{name}(a)", (f"{dtype}[N]",), ("mild",), (7,))
    for name, dtype in itertools.product(("isreal", "iscomplex"), (*COMPLEX, "f64")):
        yield Row(f"complex.{name}", f"np.{name}(a)", (f"{dtype}[7]",), ("mild",))


def every() -> list[Row]:
    """The whole table, each call once."""
    parts = (elementwise(), beside_numbers(), reductions(), functions(), integers(), complex_numbers())
    return list(dict.fromkeys(itertools.chain(*parts)))


def names_without_calls() -> list[str]:
    """NumPy names that the tracer knows and the table does not try."""
    tried = {*ufuncs(1), *ufuncs(2), *REDUCTIONS, *CALLS, "amax", "amin"}
    tried |= {row.function.removeprefix("complex.") for row in complex_numbers()}
    tried |= {f.__name__ for f in fourier.FUNCTIONS}  # tests/codegen/test_fourier.py
    tried |= {"iscomplexobj", "isrealobj"}  # tests/core/test_numpy_functions.py
    tried |= {"sliding_window_view"}  # tests/core/test_programs_people_write.py
    tried |= {n.name for n in numpy_page.calls()}  # on one dtype: tests/test_numpy_page.py
    return sorted({*numpy_api.function_names()} - tried)
