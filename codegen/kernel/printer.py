"""Print kernels as C. CUDA C uses the same printer with another way to print loops.

In: a :class:`~fxlite.codegen.kernel.kernel_ir.Kernel`. Out: readable text: names from the program, no
needless parentheses, and a comment that says what is computed and where that comes from.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from fxlite.codegen.kernel.kernel_ir import (
    Alloc,
    Assign,
    Buffer,
    Comment,
    For,
    If,
    Kernel,
    Let,
    Range,
    Stmt,
    Store,
    Text,
)
from fxlite.codegen.kernel.names import dim_name, resolved
from fxlite.codegen.kernel.text import comment, signature, wrap
from fxlite.scalar.expr import (
    Apply,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    IndexValue,
    Load,
    Local,
    remainder_of_neighbour,
    walk,
)
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import Index, flatten, to_text
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

#: Scalar operations from which a second thread pays for its fork and join (about 1 microsecond).
PARALLEL_OPERATIONS = 65536

#: Characters of a line, from which the head of a loop is two of them.
LONGEST_LINE = 98

# precedence: higher binds tighter
_CHOICE, _OR, _AND, _BITS, _EQUAL, _ORDER, _SHIFT, _SUM, _PRODUCT, _UNARY, _ATOM = range(-1, 10)
_PRECEDENCE = {
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "<": _ORDER,
    "<=": _ORDER,
    ">": _ORDER,
    ">=": _ORDER,
    "==": _EQUAL,
    "!=": _EQUAL,
    "&": _BITS,
    "|": _BITS,
    "^": _BITS,
    "&&": _AND,
    "||": _OR,
}
_OF_BOOLS = {"&": "&&", "|": "||", "^": "!="}
#: C's operators of complex numbers that mean what NumPy's do: its products take infinities for
#: special, its quotients may overflow on the way, and it does not order them.
_OF_COMPLEX = frozenset(("+", "-", "==", "!="))
#: C's types of which squares are transposed in registers.
_TRANSPOSED = frozenset(("float", "double", "int32_t", "int64_t"))
_ASSOCIATIVE = frozenset(("+", "*", "&&", "||", "&", "|", "^"))


def narrowed(value: Expr, dtype: DType) -> Expr:
    """The value to store as ``dtype``: if it is a float32 that is rounded to a half type, the number before
    rounding, because storing rounds it."""
    if not isinstance(value, Cast) or value.dtype is not dtype or not dtype.is_half:
        return value
    return value.operand if value.operand.dtype in (dtype, dtypes.float32) else value


class CPrinter:
    """Prints one kernel (or one expression). ``locations`` collects the texts to which run-time index errors
    refer by number."""

    restrict = "restrict"
    index_type = "int64_t"
    extremum_text: Callable[[str], str] = "fx_{}".format
    """The functions that give the min or max of two indices."""

    def register_type(self, dtype: DType) -> str:
        """The type of a value in a register."""
        return dtype.c_name

    def __init__(self, buffers: Sequence[Buffer], locations: list[str] | None = None) -> None:
        self.shapes = {b.name: b.shape for b in buffers}
        self.dtypes = {b.name: b.dtype for b in buffers}
        self.locations = [] if locations is None else locations
        self.uses_error = self.uses_threads = False

    # -- expressions ---------------------------------------------------------------------------
    def value(self, e: Expr, minimum: int = 0) -> str:
        """Text of an expression, in parentheses if it binds less tightly than ``minimum``."""
        text, precedence = self._text(e)
        return f"({text})" if precedence < minimum else text

    def index(self, i: Index) -> str:
        """Text of an integer expression."""
        value = functools.partial(self.value, minimum=_ATOM)
        return to_text(i, value, "/", self.extremum_text, dim_name)

    def bare(self, i: Index) -> str:
        """Text of an integer expression, without parentheses around the whole."""
        text = self.index(i)
        depths = list(itertools.accumulate({"(": 1, ")": -1}.get(c, 0) for c in text))
        return text[1:-1] if text[0] == "(" and 0 not in depths[:-1] else text

    def address(self, buffer: str, index: Sequence[Index]) -> str:
        """``name[linear address]``"""
        return f"{buffer}[{self.index(flatten(index, self.shapes[buffer]))}]"

    def _text(self, e: Expr) -> tuple[str, int]:
        if isinstance(e, Const):
            is_negative = not e.dtype.is_complex and str(e.value).startswith("-")
            return self.constant(e), _UNARY if is_negative else _ATOM
        if isinstance(e, IndexValue):
            text = self.index(e.index)
            if text.isidentifier() or text.isdecimal():
                return text, _ATOM
            return text, _SUM if re.search(r" [+-] |^-", text) else _PRODUCT
        if isinstance(e, Load):
            return self._load(e)
        if isinstance(e, Local):
            return (f"{e.name}[{self.index(e.index[0])}]" if e.index else e.name), _ATOM
        if isinstance(e, Cast):
            return self._cast(e)
        if isinstance(e, CheckedIndex):
            text = self.checked_index(e)
            if e.guard is None:
                return text, _ATOM
            return f"{self.value(e.guard, _OR + 1)} ? {text} : -1", _CHOICE
        assert isinstance(e, Apply), e
        return self._apply(e)

    def constant(self, e: Const) -> str:
        """A literal in the type it is computed in."""
        dtype, value = e.dtype, e.value
        if isinstance(value, complex):
            parts = (self.constant(Const(dtype.real, v)) for v in (value.real, value.imag))
            return f"fx_complex_{dtype.real.name}({', '.join(parts)})"
        if dtype.is_bool:
            return "true" if value else "false"
        if dtype.is_integer:
            bits = 8 * dtype.itemsize
            if bits >= 32 and value == -(2 ** (bits - 1)):
                return f"INT{bits}_MIN"
            fits_int = not dtype.is_unsigned and abs(value) < 2**31
            return str(value) if fits_int else f"{value}{dtype.c_suffix}"
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        if dtype.compute is dtypes.float32:
            rounded = np.float32(value)
            if np.isinf(rounded):
                return "INFINITY" if value > 0 else "-INFINITY"
            text = np.format_float_scientific(rounded, trim="-") if _is_long(value) else str(rounded)
            return f"{text}f"
        return repr(float(value))

    def _load(self, e: Load) -> tuple[str, int]:
        text = self._unguarded(e)
        if e.guard is None:
            return text, _ATOM
        return f"{self.value(e.guard, _OR + 1)} ? {text} : 0", _CHOICE

    def _unguarded(self, e: Load) -> str:
        return self.widen(self.address(e.buffer, e.index), self.dtypes[e.buffer])

    def widen(self, text: str, dtype: DType) -> str:
        """Convert from memory to register."""
        return f"fx_f32_from_{dtype.name}({text})" if dtype.is_half else text

    def narrow(self, text: str, dtype: DType) -> str:
        """Convert from register to memory."""
        return f"fx_{dtype.name}_from_f32({text})" if dtype.is_half else text

    def _cast(self, e: Cast) -> tuple[str, int]:
        source, target = e.operand.dtype, e.dtype
        inner = self.value(e.operand)
        if target.is_half:
            return (f"fx_f32_from_{target.name}(fx_{target.name}_from_{_wide(source)}({inner}))", _ATOM)
        if target.compute is source.compute:
            return self._text(e.operand)
        if source.is_complex and target.is_complex:
            return f"fx_cast_{source.name}_{target.name}({inner})", _ATOM
        if source.is_float and target.is_integer:
            return f"fx_cast_{source.compute.name}_{target.name}({inner})", _ATOM
        if target.is_bool:
            return f"{self.value(e.operand, _EQUAL + 1)} != 0", _EQUAL
        return f"({self.register_type(target)}){self.value(e.operand, _UNARY)}", _UNARY

    def checked_index(self, e: CheckedIndex) -> str:
        """Bounds check of a run-time index."""
        self.uses_error = True
        number = len(self.locations)
        if e.where in self.locations:
            number = self.locations.index(e.where)
        else:
            self.locations.append(e.where)
        return f"fx_index({self.value(e.operand)}, {self.index(e.extent)}, {number}, error)"

    def _apply(self, e: Apply) -> tuple[str, int]:
        name, dtype = e.function, e.args[-1].dtype.compute
        first = e.args[0]
        if name == "ge" and isinstance(first, CheckedIndex) and first.guard is not None and _is_zero(e.args[1]):
            return f"{self.value(first.guard, _AND)} && {self.checked_index(first)} >= 0", _AND  # -1 if not read
        if name == "where":
            return self._choice(*e.args), _CHOICE
        if (near := remainder_of_neighbour(e)) is not None:
            return self._text(near)
        function = FUNCTIONS[name]
        symbol = function.operator
        if not symbol or (dtype.is_complex and symbol not in _OF_COMPLEX):
            args = ", ".join(self.value(a) for a in e.args)
            kind = e.args[-1].dtype if function.halves else dtype
            return f"fx_{name}_{kind.name}({args})", _ATOM
        if function.arity == 1:
            text = f"{symbol}{self.value(e.args[0], _UNARY if symbol == '!' else _UNARY + 1)}"
            return (f"({dtype.c_name})({text})" if _is_small(dtype) else text), _UNARY
        a, b = e.args
        is_logical = dtype.is_bool and not (symbol in "&|" and _reads_memory(b))
        symbol = _OF_BOOLS.get(symbol, symbol) if is_logical else symbol
        precedence = _PRECEDENCE[symbol]
        same = isinstance(b, Apply) and b.function == name and symbol in _ASSOCIATIVE
        on_left, on_right = precedence, precedence if same and not dtype.is_inexact else precedence + 1
        if precedence in (_BITS, _AND, _OR):  # parentheses make mixed logic clearer and avoid warnings
            of_bits = _UNARY if dtype.is_bool and not is_logical else _EQUAL
            on_left = of_bits if not _same(a, name) else precedence
            on_right = of_bits if not _same(b, name) else precedence + 1
        text = f"{self.value(a, on_left)} {symbol} {self.value(b, on_right)}"
        if _is_small(dtype) and symbol in ("+", "-", "*"):
            return f"({dtype.c_name})({text})", _UNARY
        return text, precedence

    def _choice(self, condition: Expr, chosen: Expr, other: Expr) -> str:
        test, text = self.value(condition, _OR + 1), self.value(chosen, 0)
        if isinstance(chosen, Load) and chosen.guard is not None and self.value(chosen.guard, _OR + 1) == test:
            text = self._unguarded(chosen)  # one choice is enough
        return f"{test} ? {text} : {self.value(other, 0)}"

    # -- statements ------------------------------------------------------------------------------
    def block(self, body: Sequence[Stmt], depth: int) -> list[str]:
        """Indented lines of statements."""
        lines: list[str] = []
        for s in body:
            for line in self.statement(s, depth):
                lines += wrap(line)
        return lines

    def statement(self, s: Stmt, depth: int) -> list[str]:
        pad = "    " * depth
        if isinstance(s, Let):
            is_index = isinstance(s.value, IndexValue)
            ctype = self.index_type if is_index else self.register_type(s.value.dtype)
            return [f"{pad}const {ctype} {s.name} = {self.value(s.value, _CHOICE)};"]
        if isinstance(s, Alloc):
            return self._alloc(s, pad)
        if isinstance(s, Assign):
            return [pad + self._assign(s)]
        if isinstance(s, Store):
            stored = narrowed(s.value, self.dtypes[s.buffer])
            value = self.narrow(self.value(stored, _CHOICE), self.dtypes[s.buffer])
            target = self.address(s.buffer, s.index)
            if s.accumulate and self.dtypes[s.buffer].is_half:
                total = f"{self.widen(target, self.dtypes[s.buffer])} + {self.value(s.value)}"
                value = self.narrow(total, self.dtypes[s.buffer])
                return [f"{pad}{target} = {value};"]
            return [f"{pad}{target} {'+=' if s.accumulate else '='} {value};"]
        if isinstance(s, If):
            head = f"{pad}if ({self.value(s.condition)}) {{"
            return [head, *self.block(s.body, depth + 1), f"{pad}}}"]
        if isinstance(s, Comment):
            return [f"{pad}// {s.text}"]
        if isinstance(s, Text):
            return self._spelled(s, depth)
        return self.loop(s, depth)

    def _spelled(self, s: Text, depth: int) -> list[str]:
        """Lines of a template; a block's brace comes after its head, unless that is a pragma."""
        pad = "    " * depth
        lines = [pad + line if line else "" for line in s.lines]
        if s.body is None:
            return lines
        if not lines or not lines[-1].strip() or "#" in lines[-1]:
            lines = [*filter(str.strip, lines), f"{pad}{{"]
        else:
            lines[-1] += " {"
        return [*lines, *self.block(s.body, depth + 1), f"{pad}}}"]

    def _alloc(self, s: Alloc, pad: str) -> list[str]:
        ctype, start = self.register_type(s.dtype), self.value(s.init)
        if not s.size:
            return [f"{pad}{ctype} {s.name} = {start};"]
        if s.used is not None and s.used.constant == 0:  # it is written before it is read
            return [f"{pad}{ctype} {s.name}[{s.size}];"]
        if s.used is None and isinstance(s.init, Const) and s.init.value == 0:
            return [f"{pad}{ctype} {s.name}[{s.size}] = {{0}};"]
        kind, end = ("int", str(s.size)) if s.used is None else (self.index_type, self.index(s.used))
        return [f"{pad}{ctype} {s.name}[{s.size}];", f"{pad}for ({kind} e = 0; e < {end}; ++e) {s.name}[e] = {start};"]

    def _assign(self, s: Assign) -> str:
        target = self.value(s.target)
        if (
            isinstance(s.value, Apply)
            and FUNCTIONS[s.value.function].operator in ("+", "*")
            and not _is_small(s.value.dtype)
            and not (s.value.dtype.is_complex and s.value.function != "add")
        ):
            first, second = s.value.args
            if self.value(first) == target:
                return f"{target} {FUNCTIONS[s.value.function].operator}= {self.value(second)};"
        return f"{target} = {self.value(s.value, _CHOICE)};"

    def loop(self, s: For, depth: int) -> list[str]:
        """A loop with its pragma."""
        pad = "    " * depth
        if s.kind == "transpose" and (copied := self._transposed(s)):
            return [f"{pad}{copied}"]
        if s.kind == "row":
            return [f"{pad}{self._row(s)}"]
        step = f"{s.var.name} += {s.step}" if s.step != 1 else f"++{s.var.name}"
        start, ctype = "0", self.index_type
        if isinstance(s, Range):
            start, ctype = self.bare(s.start), s.ctype
        end = f"{s.var.name} < {self.bare(s.var.extent)}"
        head = f"{pad}for ({ctype} {s.var.name} = {start}; {end}; {step})"
        lines = [pad + p for p in self.pragma(s)]
        if isinstance(s, Range) and len(head) > LONGEST_LINE:
            start, rest = head.split("; ", 1)
            lines, head = [*lines, f"{start};"], f"{pad}     {rest}"
        return [*lines, head + " {", *self.block(s.body, depth + 1), f"{pad}}}"]

    def _row(self, s: For) -> str:
        """The call that applies a function to a local array."""
        (applied,) = s.body
        assert isinstance(applied, Assign) and isinstance(applied.value, Apply)
        name, dtype = applied.value.function, applied.target.dtype
        return f"fx_{name}_row_{dtype.name}({applied.target.name}, {self.bare(s.var.extent)});"

    def _transposed(self, s: For) -> str:
        """The call that copies a square; empty if it does not support the type of the elements (`tiles/matrix.h`)."""
        (inner,) = s.body
        assert isinstance(inner, For)
        (copied,) = inner.body
        assert isinstance(copied, (Assign, Store)) and isinstance(copied.value, (Load, Local))
        load, begin = copied.value, {s.var: Index.of(0), inner.var: Index.of(0)}
        if isinstance(load, Load):
            dtype, source, name = self.dtypes[load.buffer], flatten(load.index, self.shapes[load.buffer]), load.buffer
        else:
            dtype, source, name = load.dtype, load.index[0], load.name
        if isinstance(copied, Store):
            kind, target = self.dtypes[copied.buffer], flatten(copied.index, self.shapes[copied.buffer])
            to = f"&{copied.buffer}[{self.index(target.substitute(begin))}]"
        else:
            kind, target, to = copied.target.dtype, copied.target.index[0], copied.target.name
        if dtype.c_name not in _TRANSPOSED or dtype is not kind or dtype.compute is not dtype:
            return ""
        steps = (source.coefficient(s.var), target.coefficient(inner.var))
        row, pitch = (self.bare(step or Index.of(0)) for step in steps)
        start = f"&{name}[{self.index(source.substitute(begin))}]"
        return (
            f"copy_transposed_{dtype.c_name}({self.bare(s.var.extent)}, {self.bare(inner.var.extent)}, "
            f"{start}, {row}, {to}, {pitch});"
        )

    def pragma(self, s: For) -> list[str]:
        """The line for OpenMP, or for a compiler, before a loop."""
        if isinstance(s, Range):
            return [s.pragma] if s.pragma else []
        if s.kind == "rolled":
            return ["#pragma GCC unroll 1"]
        if s.kind == "simd" or s.kind == "lanes":
            return ["#pragma omp simd"]
        if s.kind.startswith("parallel"):
            simd = " simd" if s.kind.endswith("simd") else ""
            only = "parallel: " if simd else ""  # else no vectors where there are no threads
            constant = self.work.constant
            if constant is not None and constant < PARALLEL_OPERATIONS:
                return ["#pragma omp simd"] if simd else []
            condition = "" if constant is not None else f" if ({only}{self.index(self.work)} >= PARALLEL_OPERATIONS)"
            depth = _perfect_depth(s)
            joined = f" collapse({depth})" if depth > 1 else ""
            return [f"#pragma omp parallel for{simd}{joined} num_threads(n_threads){condition}"]
        return []

    # -- functions -------------------------------------------------------------------------------
    work: Index = Index.of(PARALLEL_OPERATIONS)

    def parameters(self, kernel: Kernel) -> list[str]:
        """C parameters of a kernel: inputs, outputs, dims."""
        parts = [
            f"{'' if b.is_output else 'const '}{b.dtype.c_stored} *{self.restrict} {b.name}" for b in kernel.buffers
        ]
        return [*parts, *(f"int64_t {dim_name(d)}" for d in kernel.dims)]

    def function(self, kernel: Kernel) -> str:
        """The kernel as a static C function; ``error`` and ``n_threads`` are the last
        parameters."""
        self.work = kernel.work
        body = self.block(kernel.body, 1)
        parameters = self.parameters(kernel)
        if self.uses_error:
            parameters.append("fx_error *error")
        self.uses_threads = bool(re.search(r"\bn_threads\b", "\n".join(body)))
        if self.uses_threads:
            parameters.append("int n_threads")
        return "\n".join([comment(kernel.doc), *signature(kernel.name, parameters), *body, "}"])


def _wide(dtype: DType) -> str:
    """The float type from which a value of another dtype is narrowed to 16 bits."""
    return "f64" if dtype.itemsize >= (4 if dtype.is_integer else 8) else "f32"


def _perfect_depth(s: For) -> int:
    """How many perfectly nested loops have independent iterations and known extents: OpenMP shares all their
    iterations. Loops inside SIMD are unrolled there."""
    depth = 1
    if s.kind.endswith("simd"):
        return depth
    while len(s.body) == 1 and isinstance(s.body[0], For) and s.body[0].kind == "independent":
        s = s.body[0]
        if s.var.extent.variables():
            break
        depth += 1
    return depth


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _reads_memory(e: Expr) -> bool:
    """Whether an operand of a logical operator is read from memory. C reads it only if the other operand asks for it,
    which no vector does, so bits are combined instead."""
    return any(isinstance(node, Load) for node in walk(e))


def _same(e: Expr, name: str) -> bool:
    return isinstance(e, Apply) and e.function == name


def _is_small(dtype: DType) -> bool:
    """True for integers that C would compute as int."""
    return dtype.is_integer and dtype.itemsize < 4


def _is_long(value: float) -> bool:
    return value != 0 and not 1e-4 <= abs(value) < 1e7


def kernel_text(kernel: Kernel) -> str:
    """A kernel as C, for reading."""
    return resolved(CPrinter(kernel.buffers).function(kernel))
