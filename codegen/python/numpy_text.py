"""NumPy's spellings of ops: ``x[:, 0]`` for ``ops.select(x, axis=1, index=0)``, ``np.concatenate``,
``x.mean(axis=1)``.

In: a node with types. Out: text that computes the same with NumPy alone. The record of an op, or a method
here, says how it is written; otherwise it is a function of ``in_numpy.py`` (a :class:`Library`), whose text
becomes part of the file. Half types are computed in float32 and rounded once, as in the ops, so the text
casts where NumPy would round in between. bfloat16 is a type of ``ml_dtypes``. Other dialects have a table, a
library and methods of their own.

In the dialect "fxlite" tracing the text must give the graph again. That a spelling means the op is proven by
tracing it on values of the operands' types, which must give the same node. So spellings need no conditions
there, and what is not proven is not written.
"""

from __future__ import annotations

import ast
import copy
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fxlite import ops
from fxlite.base.errors import CodegenError, FxliteError
from fxlite.base.on_demand import is_expression
from fxlite.codegen.python.text import CALL, LEVELS, Text, number_text, slice_text, with_numbers
from fxlite.graph.graph import Node, map_nodes, nodes_in
from fxlite.ops.image.spatial import TO_FIRST, TO_LAST
from fxlite.ops.op import Op
from fxlite.ops.own.foreign import ForeignOp
from fxlite.ops.slicing import cuts_of
from fxlite.scalar.expr import chooses
from fxlite.tracing.tracer import Tracer
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

_PARAMETER = re.compile(r"(\*?)(\w+)([=:?]?)(\w*)")
Method = TypeVar("Method", bound=Callable[..., Any])


class Library:
    """Functions and classes of a Python file, by name: their text, and what they need."""

    def __init__(self, file: str) -> None:
        self.path = Path(__file__).with_name(file)

    @functools.cached_property
    def text(self) -> Mapping[str, str]:
        """The text of each definition, in the order of the file."""
        source = self.path.read_text(encoding="utf-8")
        lines = source.splitlines()
        found = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
        return found

    @functools.cached_property
    def needs(self) -> Mapping[str, frozenset[str]]:
        """The definitions of the file that each definition refers to."""
        found = {}
        for name, text in self.text.items():
            words = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
            found[name] = frozenset(words & self.text.keys() - {name})
        return found

    def definitions(self, names: Iterable[str]) -> str:
        """The text of definitions, and of everything that they need."""
        wanted: set[str] = set()
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += self.needs[name]
        return "".join(f"{text}\n\n\n" for name, text in self.text.items() if name in wanted)


class Verbatim(str):
    """The text of an operand, which is used as it is."""


def spellings(table: str) -> Mapping[str, str]:
    """Spellings by op, from lines with the names of ops, separated by ``|``, and their spelling, in which
    NAME stands for the op's name."""
    rows = (line.split(None, 1) for line in table.strip().splitlines())
    return {name: spelling.replace("NAME", name) for names, spelling in rows for name in names.split("|")}


def uses(*names: str) -> Callable[[Method], Method]:
    """Declare which functions of the library a method of :class:`NumpyText` calls in its text, if they are
    not the one with the op's name."""

    def said(method: Method) -> Method:
        method.uses = names  # type: ignore[attr-defined]
        return method

    return said


def counted(start: Any, stop: Any, step: Any) -> tuple[list[Any], DType]:
    """The arguments of ``arange`` that must be given, and the dtype that NumPy derives from them."""
    bounds = [0, start] if stop is None else [start, stop]
    bounds += [] if step == 1 else [step]
    usual = dtypes.float64 if float in map(type, bounds) else dtypes.int64
    if len(bounds) == 2 and type(bounds[0]) is int and bounds[0] == 0:
        del bounds[0]
    return bounds, usual


#: Kinds of ops whose half results are computed in float32 and rounded once.
_WIDENED = frozenset(("composite", "contraction", "window", "reduction", "scan"))


class NumpyText(Text):
    """Values as NumPy computes them, written with a table of spellings.

    A spelling is a function, or after a dot a method of the first operand, followed by the parameters of the
    op that it gets: ``np.sum x axis= keepdims=``. ``name=`` is passed by that name and ``other=name`` under
    another name, both, like ``name?``, only if the call gives them; with ``:`` in place of ``=`` they are
    always passed. ``*name`` passes all of them, and a number stands for itself."""

    library = Library("in_numpy.py")
    #: The module of arrays, and the method that orders their axes.
    arrays, transpose = "np", "transpose"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        #: What operands are cast to, while the call that reads them is printed.
        self.casts: Mapping[Node, DType] = {}

    # -- what is written how ---------------------------------------------------------------------
    @classmethod
    def is_known(cls, op: Op) -> bool:
        """Whether a call of the op can be written."""
        has_text = op.symbol or op.method or op.ufunc is not None or hasattr(cls, f"op_{op.name}") or cls.spelling(op)
        return bool(has_text) or cls.helper(op) is not None

    @classmethod
    def spelling(cls, op: Op) -> str:
        """The op's spelling; empty where there is none."""
        return op.numpy

    @classmethod
    def helper(cls, op: Op) -> str | None:
        """The library function that computes an op: one with its name, perhaps for any rank."""
        names = (op.name, op.name.removesuffix("1d").removesuffix("2d").removesuffix("3d"))
        return next((name for name in names if name in cls.library.text), None)

    # -- calls -----------------------------------------------------------------------------------
    def call(self, node: Node) -> str:
        return self.spelled(node)[0]

    def level(self, node: Node) -> int:
        return self.spelled(node)[1]

    def spelled(self, node: Node) -> tuple[str, int]:
        """The right-hand side of a node's line, and its binding strength."""
        if node.op != "call_function" or isinstance(node.target, ForeignOp):
            return super().call(node), CALL
        operands, result = self.cast_operands(node)
        self.casts = operands
        try:
            text, level = self.plain(node)
        finally:
            self.casts = {}
        if result is None:
            return text, level
        return self.cast(text if level >= CALL else f"({text})", result), CALL

    def plain(self, node: Node) -> tuple[str, int]:
        """:meth:`spelled` before the result is cast."""
        target: Op = node.target
        write = getattr(self, f"op_{target.name}", None)
        if write is not None:
            found: tuple[str, int] | str = write(node, **node.bound)
            return (found, CALL) if isinstance(found, str) else found
        operator = self._operator(node)
        if operator is not None:
            return operator, super().level(node)
        spelling = self.spelling(target)
        if spelling:
            return self.by_spelling(node, spelling), CALL
        if target.method is not None:
            return super().call(node), CALL
        helper = self.helper(target)
        if helper is None:
            return self.by_spelling(node, self.default_spelling(target)), CALL
        return self.by_helper(node, helper, node.arguments), CALL

    def default_spelling(self, op: Op) -> str:
        """The spelling of an op that is not in the table."""
        if op.ufunc is None:
            raise CodegenError(f"the op {op.name} cannot be written in this dialect")
        return " ".join((f"np.{op.ufunc.__name__}", *op.tensor_kinds))

    def by_spelling(self, node: Node, spelling: str) -> str:
        """A call written by its spelling."""
        head, *parameters = spelling.split()
        given, bound = node.arguments, node.bound
        parts: list[str] = []
        head = f"{self.owner(node.args[0])}{head}" if head.startswith(".") else self.function(head)
        for parameter in parameters:
            star, keyword, sign, name = _PARAMETER.findall(parameter)[0]
            name = name or keyword
            if sign in ("=", "?") and given.get(name) is None:
                continue
            if star:
                parts += map(self.value, bound[name])
            else:
                text = self.value(bound[name]) if name in bound else name
                parts.append(f"{keyword}={text}" if sign in ("=", ":") else text)
        return f"{head}({', '.join(parts)})"

    def by_helper(self, node: Node, helper: str, given: Mapping[str, Any], *first: str) -> str:
        """A call of a helper function in the file, which has the parameters of the op."""
        return self.by_call(self.file.helpers[helper], node, given, *first)

    def by_call(self, function: str, node: Node, given: Mapping[str, Any], *first: str) -> str:
        """A call of a function that has the parameters of the op: operands by position, others by name."""
        parts, by_position = [*first], True
        for name in node.target.tensor_kinds:
            value = given.get(name)
            if value is None:
                by_position = False
                continue
            text = self.named(name, value)
            parts.append(text if by_position else f"{name}={text}")
        others = {n: v for n, v in given.items() if n not in node.target.tensor_kinds}
        parts += [f"{name}={self.named(name, value)}" for name, value in others.items()]
        return f"{function}({', '.join(parts)})"

    # -- parts of text ---------------------------------------------------------------------------
    def named(self, name: str, value: Any) -> str:
        """An argument by name; a number that becomes a parameter of a class gets this name."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number_text(value, name) if is_number and math.isfinite(value) else self.value(value)

    def function(self, name: str) -> str:
        """A function such as ``np.sum``, with the module's name in this file."""
        module, dot, rest = name.partition(".")
        return f"{self.file.imports.get(module, module)}{dot}{rest}"

    def value(self, value: Any) -> str:
        if isinstance(value, Verbatim):
            return str(value)
        text = super().value(value)
        if isinstance(value, Node) and value in self.casts:
            if value in self.inlined and self.inlined[value][1] < CALL:
                text = f"({text})"
            return self.cast(text, self.casts[value])
        return text

    def _operand(self, value: Any, level: int) -> str:
        if isinstance(value, Node) and value in self.casts:
            return self.value(value)
        return super()._operand(value, level)

    def extremum_text(self, name: str) -> str:
        """Python's function of that name, or NumPy's if a parameter has its name."""
        return self.builtin(name, f"np.{name}imum")

    def builtin(self, name: str, instead: str) -> str:
        """Python's builtin of that name, or another function if a parameter has the name."""
        return self.function(instead) if name in self.names.taken else name

    def dtype(self, value: DType) -> str:
        if value is dtypes.bfloat16:
            return f"{self.file.imports['ml_dtypes']}.bfloat16"
        if value.is_bool:
            return self.builtin("bool", "np.bool_")
        return self.function(f"np.{value.long_name}")

    # -- dtypes ----------------------------------------------------------------------------------
    def cast(self, text: str, dtype: DType) -> str:
        """A value, written as a call, converted to another dtype."""
        return f"{text}.astype({self.dtype(dtype)})"

    def cast_operands(self, node: Node) -> tuple[Mapping[Node, DType], DType | None]:
        """The dtypes to which operands of a call must be cast, and that of the cast of its result, if any."""
        op, result = node.target, (node.type[0] if isinstance(node.type, tuple) else node.type)
        # sigmoid and erf, which NumPy does not have
        is_function = op.kind == "pointwise" and len(op.tensor_kinds) == 1 and self.helper(op) is not None
        is_moved = op.moves_values and node.bound.get("mode", "nearest") == "nearest"
        is_sum = op.kind == "scatter" and op.combines != "last" and not chooses(op.combines)
        is_widened = op.kind in _WIDENED or is_sum
        is_computed = is_widened and not is_moved and not op.reads_some_of
        # if nothing is rounded in between, NumPy promotes the operands of products itself
        is_cast = is_function or (is_computed and (op.kind == "composite" or result.dtype.is_half))
        if not result.dtype.is_float or not is_cast:
            return {}, None
        computed = result.dtype.compute
        types = {n: n.type.dtype for n in op.tensors(node.arguments) if isinstance(n, Node)}
        found = {n: computed for n, dtype in types.items() if dtype is not computed and (dtype.is_float or is_function)}
        return found, result.dtype if found and computed is not result.dtype else None

    # -- ops -------------------------------------------------------------------------------------
    def op_cast(self, node: Node, x: Any, dtype: DType) -> str:
        return self.cast(self.owner(x), dtypes.dtype(dtype))

    def op_bitcast(self, node: Node, x: Any, dtype: DType) -> str:
        return f"{self.owner(x)}.view({self.dtype(dtypes.dtype(dtype))})"

    def op_pad(self, node: Node, x: Any, padding: Any, value: Any) -> str:
        if not padding:
            return self.value(x)
        return self.by_spelling(node, "np.pad x padding constant_values=value")

    def op_dft(self, node: Node, x: Any, inverse: bool, axis: int) -> str:
        name, norm = ("ifft", ', norm="forward"') if inverse else ("fft", "")
        along = "" if axis == -1 else f", axis={axis}"
        return f"{self.function(f'np.fft.{name}')}({self.value(x)}{along}{norm})"

    @uses("complex_of")
    def op_complex(self, node: Node, x: Any, y: Any) -> str:
        return f"{self.file.helpers['complex_of']}({self.value(x)}, {self.value(y)})"

    def op_rsqrt(self, node: Node, x: Any) -> tuple[str, int]:
        return f"1 / {self.function('np.sqrt')}({self.value(x)})", LEVELS["/"]

    def op_linear(self, node: Node, x: Any, weight: Any, bias: Any) -> tuple[str, int]:
        text = f"{self._operand(x, LEVELS['@'])} @ {self.owner(weight)}.T"
        if bias is None:
            return text, LEVELS["@"]
        return f"{text} + {self._operand(bias, LEVELS['+'] + 1)}", LEVELS["+"]

    def op_clip(self, node: Node, x: Any, min: Any, max: Any) -> str:
        if min is None and max is None:
            return f"{self.owner(x)}.copy()"
        bounds = [self.value(min)] if min is not None else []
        if max is not None:
            bounds.append(self.value(max) if bounds else f"max={self.value(max)}")
        return f"{self.owner(x)}.clip({', '.join(bounds)})"

    def op_embedding(self, node: Node, x: Any, weight: Any) -> str:
        return f"{self.owner(weight)}[{self.value(x)}]"

    def op_getitem(self, node: Node, x: Any, index: int) -> str:
        return f"{self.owner(x)}[{index}]"

    def op_one_hot(self, node: Node, x: Any, num_classes: Any, dtype: Any) -> str:
        made = f"{self.value(num_classes)}, dtype={self.dtype(dtypes.dtype(dtype))}"
        return f"{self.function(f'{self.arrays}.eye')}({made})[{self.position(x)}]"

    def op_dropout(self, node: Node, x: Any, p: float, training: bool) -> str:
        if not training or p == 0:
            return self.value(x)
        return f"{self.file.helpers['dropout']}({self.value(x)}, {self.value(p)})"

    # -- parts and shapes
    def op_slice(self, node: Node, **bound: Any) -> str:
        return self.subscript(self.subscripts(node))

    op_select = op_unsqueeze = op_slice

    @classmethod
    def is_subscript(cls, node: Node) -> bool:
        """Whether a node is written in brackets after its operand."""
        write = getattr(cls, f"op_{node.target.name}", None) if node.op == "call_function" else None
        return write is cls.op_slice

    def subscript(self, chain: Sequence[Node]) -> str:
        """``x[:, 0]``: slices, ints and new axes, each of which applies to the result of the previous node."""
        items = self._items(chain) or []
        whole = next(i for i, item in enumerate(items) if item != ":")
        if items[-1] == ":":
            while items[-1] == ":":
                items.pop()
        elif whole > 1:
            items = ["...", *items[whole:]]
        return f"{self.owner(chain[0].args[0])}[{', '.join(items)}]"

    def subscripts(self, node: Node) -> list[Node]:
        """The node and those before it that are written as one subscript: ``x[:, None, 0]`` instead of
        ``x[:, None][:, :, 0]``."""
        chain = [node]
        while self.is_subscript(chain[0]):
            operand = chain[0].args[0]
            if operand not in self.inlined or not self.is_subscript(operand):
                break
            if self._items([operand, *chain]) is None:
                break
            chain.insert(0, operand)
        return chain

    def _items(self, chain: Sequence[Node]) -> list[str] | None:
        """The items in the brackets; None if two nodes take parts of one axis."""
        items = [(":", True)] * chain[0].args[0].type.rank  # whether the result has the axis
        for node in chain:
            bound, name = node.bound, node.target.name
            places = [place for place, (_, is_kept) in enumerate(items) if is_kept]
            axis = bound["axis"] % (len(places) + (name == "unsqueeze"))
            if name == "unsqueeze":
                items.insert(places[axis] if axis < len(places) else len(items), ("None", True))
                continue
            if items[places[axis]][0] != ":":
                return None
            is_index = name == "select"
            part = self.value(bound["index"]) if is_index else self.range(**_range(bound))
            items[places[axis]] = part, not is_index
        return [item for item, _ in items]

    def op_index(self, node: Node, x: Any, indices: Sequence[Any], axis: int) -> str:
        return f"{self.owner(x)}[{self.at(x, axis, *map(self.position, indices))}]"

    def op_take(self, node: Node, x: Any, index: Any, axis: int) -> str:
        if axis:
            return self.by_spelling(node, "np.take x index axis:")
        return f"{self.owner(x)}[{self.value(index)}]"

    def position(self, index: Any) -> str:
        """Integers in the form that the library accepts as indices."""
        return self.value(index)

    @uses("updated")
    def op_slice_update(self, node: Node, x: Any, values: Any, at: Sequence[Any]) -> str:
        return f"{self.file.helpers['updated']}({self.value(x)}, {self.place(at)}, {self.value(values)})"

    def place(self, at: Sequence[Any]) -> str:
        """An index of the first axes, as a value."""
        parts = [self.range(*p) if isinstance(p, tuple) else self.value(p) for p in at]
        return f"{self.function('np.s_')}[{', '.join(parts) or '...'}]"

    @uses("updated")
    def op_index_update(self, node: Node, x: Any, values: Any, positions: Sequence[Any], at: Sequence[Any]) -> str:
        given = iter(positions)
        whole = [next(given) if part is None else part for part in at]
        return self.op_slice_update(node, x, values, whole)

    def op_split(self, node: Node, x: Any, sizes: Sequence[Any], axis: int) -> str:
        cuts = [self.value(start) for start, _ in cuts_of(tuple(sizes))[1:]]
        parts = self.value(len(sizes)) if len({*sizes}) == 1 else f"[{', '.join(cuts)}]"
        place = f", axis={self.value(axis)}" if axis else ""
        return f"{self.function('np.split')}({self.value(x)}, {parts}{place})"

    def op_expand(self, node: Node, x: Any, shape: Sequence[Any]) -> str:
        added = len(shape) - x.type.rank
        sizes = [
            f"{self.owner(x)}.shape[{axis - added}]" if isinstance(size, int) and size == -1 else self.value(size)
            for axis, size in enumerate(shape)
        ]
        made = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        return f"{self.function('np.broadcast_to')}({self.value(x)}, {made})"

    def range(self, start: Any, stop: Any, step: Any) -> str:
        """``1:-1``, or ``: T - 1`` if a bound is an expression."""
        parts = ["" if start == 0 else self.value(start), "" if stop is None else self.value(stop)]
        parts += [] if step == 1 else [self.value(step)]
        return slice_text(*parts, *([""] if step == 1 else []))

    def at(self, x: Node, axis: int, *parts: str) -> str:
        """An index of an axis, or of it and the ones after it."""
        rank = x.type.rank
        axis %= rank
        is_last = rank > 2 and axis + len(parts) == rank
        return ", ".join(("...", *parts) if is_last else (*[":"] * axis, *parts))

    # -- made of nothing
    def op_full(self, node: Node, shape: Any, value: Any, dtype: Any) -> str:
        return self.filled("np", shape, value, self.dtype(node.type.dtype))

    def filled(self, module: str, shape: Any, value: Any, *dtype: str) -> str:
        """``np.zeros(shape, dtype)``, with ``dtype`` as it is given there."""
        is_short = repr(value) in ("0", "1", "0.0", "1.0", "False", "True")
        name = "full" if not is_short else "ones" if value else "zeros"
        given = [self.value(shape), *([] if is_short else [self.value(value)]), *dtype]
        return f"{self.function(f'{module}.{name}')}({', '.join(given)})"

    def op_arange(self, node: Node, start: Any, stop: Any, step: Any, dtype: Any) -> str:
        bounds, usual = counted(start, stop, step)
        text = f"{self.function('np.arange')}({', '.join(map(self.value, bounds))})"
        return text if node.type.dtype is usual else self.cast(text, node.type.dtype)

    # -- functions of the file
    def op_batch_norm(self, node: Node, **given: Any) -> str:
        found = {name: value for name, value in node.arguments.items() if name != "momentum"}
        return self.by_helper(node, node.target.name, found)

    op_instance_norm = op_batch_norm

    def op_conv2d(self, node: Node, **bound: Any) -> str:
        """Convolutions and pools, whose functions take images [N, C, H, W]; padding that is not the same
        everywhere is given as (low, high) for each axis."""
        found = dict(node.arguments)
        if node.target.role == "product":  # so that more layers share a class
            found = {n: v for n, v in bound.items() if n in found or n in ("stride", "padding")}
        padding = found.get("padding")
        if isinstance(padding, tuple) and not node.target.transposes:
            found["padding"] = tuple(p if isinstance(p, tuple) else (p, p) for p in padding)
        return self.channels_first(found, lambda: self.by_helper(node, self.helper(node.target) or "", found))

    def channels_first(self, given: dict[str, Any], write: Callable[[], str]) -> str:
        """The text that ``write`` gives for images [N, C, H, W]; other layouts are transposed before and after."""
        if given.pop("layout", "NCHW") == "NCHW":
            return write()
        before, after = (f".{self.transpose}({', '.join(map(str, order))})" for order in (TO_FIRST, TO_LAST))
        given["x"] = Verbatim(self.owner(given["x"]) + before)
        return write() + after

    op_conv1d = op_int_conv2d = op_conv_transpose1d = op_conv_transpose2d = op_conv2d
    op_conv3d = op_conv_transpose3d = op_max_pool3d = op_avg_pool3d = op_conv2d
    op_max_pool1d = op_max_pool2d = op_avg_pool1d = op_avg_pool2d = op_max_pool_positions = op_conv2d

    @uses("recurrence", "int_recurrence", "lstm_step", "gru_step", "rnn_tanh_step", "rnn_relu_step")
    def op_recurrence(self, node: Node, mode: str, **bound: Any) -> str:
        found = {name: value for name, value in node.arguments.items() if name != "mode"}
        step = self.file.helpers[f"{mode}_step"]
        return self.by_helper(node, node.target.name, found, step)

    op_int_recurrence = op_recurrence


def _range(bound: Mapping[str, Any]) -> dict[str, Any]:
    return {name: bound[name] for name in ("start", "stop", "step")}


# -- spellings that are proven ---------------------------------------------------------------------
_proven: dict[Any, bool] = {}
_MOST_PROVEN = 100_000
_MODULES = {"np": np, "ops": ops, "shapes": shapes}


class FxliteText(NumpyText):
    """Writes ops with NumPy's spelling if that is proven, otherwise with ``nn.functional`` or ``ops``."""

    extremum_text, dtype = Text.extremum_text, Text.dtype

    def spelled(self, node: Node) -> tuple[str, int]:
        return Text.call(self, node), Text.level(self, node)

    def in_numpy(self, node: Node) -> str | None:
        """See :meth:`Text.in_numpy`; also None if types are unknown."""
        if isinstance(node.target, ForeignOp):
            return None
        operand = node.args[0] if node.args else None
        is_typed = isinstance(operand, Node) and isinstance(operand.type, TensorType)
        chain = self.subscripts(node) if is_typed else [node]
        while chain:
            if self._is_proven(chain):
                return self._in_table(chain)
            chain = chain[1:]
        return None

    def _in_table(self, chain: Sequence[Node]) -> str | None:
        """The text for nodes each of which reads the previous one."""
        target = chain[0].target
        if self.is_subscript(chain[0]):
            return self.subscript(chain)
        if target.symbol and target.ufunc is not None:  # if no operator can be used
            return self.by_spelling(chain[0], self.default_spelling(target))
        text, level = self.plain(chain[0])
        return text if level == CALL else None

    def cast(self, text: str, dtype: DType) -> str:
        return f"{text}.astype({NumpyText.dtype(self, dtype)})"

    def op_full(self, node: Node, shape: Any, value: Any, dtype: Any) -> str:
        given = [] if dtype is None else [f"dtype={self.value(dtype)}"]
        return self.filled("ops", shape, value, *given)

    # -- the proof -------------------------------------------------------------------------------
    def _is_proven(self, chain: Sequence[Node]) -> bool:
        """Whether the text gives the nodes of a chain, and NumPy rounds in the same places."""
        operands = _operands(chain)
        types = [n.type for n in operands]
        if not all(isinstance(type, TensorType) for type in types):
            return False
        key = (repr(_calls(chain, operands)), *types)
        if key not in _proven:
            if len(_proven) >= _MOST_PROVEN:
                _proven.clear()
            is_rounded = any(self.cast_operands(node)[0] for node in chain)
            _proven[key] = not is_rounded and self._gives(chain, operands)
        return _proven[key]

    def _gives(self, chain: Sequence[Node], operands: Sequence[Node]) -> bool:
        """Trace a spelling, and compare the result with the chain."""
        proof = copy.copy(self)
        proof.listed = {}
        types = {f"_{i}": node.type for i, node in enumerate(operands)}
        proof.inlined = {node: (name, 99) for node, name in zip(operands, types)}
        own: dict[str, Any] = {alias: _MODULES.get(n) for n, alias in self.file.imports.items()}
        for value in (v for node in chain for v in node.kwargs.values()):
            own |= {s.name: shapes.for_user(s) for s in _symbols(value)}
        try:
            code = proof._in_table(chain)
            if code is None:
                return False
            program = eval(f"lambda {', '.join(types)}: {with_numbers(code)}", own)
            graph = Tracer().trace(program, inputs=types)
        except (FxliteError, AttributeError, LookupError, SyntaxError, TypeError, ValueError):
            return False
        made = [n for n in graph.nodes if n.op == "call_function"]
        parts = made[len(chain) :]
        if len(made) < len(chain) or any(n.target.name != "getitem" for n in parts):
            return False
        made = made[: len(chain)]
        return repr(_calls(made, graph.placeholders)) == repr(_calls(chain, operands))


def _symbols(value: Any) -> Iterator[Any]:
    """The named dims in an attribute."""
    if isinstance(value, tuple):
        for part in value:
            yield from _symbols(part)
    elif is_expression(value):
        yield from value.free_symbols


def _operands(chain: Sequence[Node]) -> list[Node]:
    """The values that a chain reads from outside, each once."""
    read = (n for node in chain for n in nodes_in((node.args, node.kwargs)))
    return [n for n in dict.fromkeys(read) if n not in chain]


def _calls(chain: Sequence[Node], operands: Sequence[Node]) -> list[Any]:
    """What calls compute, independent of the names of their operands and results."""
    names = {node: f"\2{i}" for i, node in enumerate((*operands, *chain))}
    return [(n.target.name, map_nodes((n.args, n.kwargs), names.__getitem__)) for n in chain]
