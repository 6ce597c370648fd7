"""NumPy's spellings of ops: ``x[:, 0]`` for ``ops.select(x, axis=1, index=0)``, ``np.concatenate``,
``x.mean(axis=1)``.

In: a node with types. Out: text that computes the same with NumPy alone. The record of an op, or a
method here, says how it is written; else it is a function of ``in_numpy.py``, whose text becomes
part of the file. Half types are computed in float32 and rounded once, as the ops do, so that the
text casts where NumPy would round in between. bfloat16 is a type of ``ml_dtypes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fxlite.codegen.python.by_table import Library, TableText, Verbatim, counted, uses
from fxlite.codegen.python.text import LEVELS, slice_text
from fxlite.graph.graph import Node
from fxlite.ops.image.spatial import TO_FIRST, TO_LAST
from fxlite.ops.op import Op
from fxlite.ops.slicing import cuts_of
from fxlite.scalar.expr import chooses
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

#: Kinds of ops whose half results are computed in float32 and rounded once.
_WIDENED = frozenset(("composite", "contraction", "window", "reduction", "scan"))


class NumpyText(TableText):
    """Values as NumPy computes them."""

    library = Library("in_numpy.py")

    @classmethod
    def spelling(cls, op: Op) -> str:
        return op.numpy

    def extremum_text(self, name: str) -> str:
        """Python's function of that name, or NumPy's where a parameter has its name."""
        return self.builtin(name, f"np.{name}imum")

    def builtin(self, name: str, instead: str) -> str:
        """What Python means by a name, or another function where a parameter has that name."""
        return self.function(instead) if name in self.names.taken else name

    def dtype(self, value: DType) -> str:
        if value is dtypes.bfloat16:
            return f"{self.file.imports['ml_dtypes']}.bfloat16"
        if value.is_bool:
            return self.builtin("bool", "np.bool_")
        return self.function(f"np.{value.long_name}")

    # -- dtypes ----------------------------------------------------------------------------------
    def cast(self, text: str, dtype: DType) -> str:
        return f"{text}.astype({self.dtype(dtype)})"

    def cast_operands(self, node: Node) -> tuple[Mapping[Node, DType], DType | None]:
        op, result = node.target, (node.type[0] if isinstance(node.type, tuple) else node.type)
        # sigmoid and erf, which are none of NumPy's
        is_function = op.kind == "pointwise" and len(op.tensor_kinds) == 1 and self.helper(op) is not None
        is_moved = op.moves_values and node.bound.get("mode", "nearest") == "nearest"
        is_sum = op.kind == "scatter" and op.combines != "last" and not chooses(op.combines)
        is_widened = op.kind in _WIDENED or is_sum
        is_computed = is_widened and not is_moved and not op.reads_some_of
        # where nothing is rounded in between, NumPy promotes the operands of products itself
        is_cast = is_function or (is_computed and (op.kind == "composite" or result.dtype.is_half))
        if not result.dtype.is_float or not is_cast:
            return {}, None
        computed = result.dtype.compute
        types = {n: n.type.dtype for n in op.tensors(node.arguments) if isinstance(n, Node)}
        found = {n: computed for n, dtype in types.items() if dtype is not computed and (dtype.is_float or is_function)}
        return found, result.dtype if found and computed is not result.dtype else None

    # -- ops -------------------------------------------------------------------------------------
    @classmethod
    def is_known(cls, op: Op) -> bool:
        return super().is_known(op) or op.ufunc is not None

    def default_spelling(self, op: Op) -> str:
        if op.ufunc is None:
            return super().default_spelling(op)
        return " ".join((f"np.{op.ufunc.__name__}", *op.tensor_kinds))

    def op_cast(self, node: Node, x: Any, dtype: DType) -> str:
        return self.cast(self.owner(x), dtypes.dtype(dtype))

    def op_pad(self, node: Node, x: Any, padding: Any, value: Any) -> str:
        if not padding:
            return self.value(x)
        return self.by_spelling(node, "np.pad x padding constant_values=value")

    def op_dft(self, node: Node, x: Any, inverse: bool) -> str:
        name, norm = ("ifft", ', norm="forward"') if inverse else ("fft", "")
        return f"{self.function(f'np.fft.{name}')}({self.value(x)}{norm})"

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
        return f"{self.function('np.eye')}({made})[{self.value(x)}]"

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
        """Whether a node is written in brackets behind its operand."""
        write = getattr(cls, f"op_{node.target.name}", None) if node.op == "call_function" else None
        return write is cls.op_slice

    def subscript(self, chain: Sequence[Node]) -> str:
        """``x[:, 0]``: slices, ints and new axes, of which each applies to the result of the one
        before."""
        items = self._items(chain) or []
        whole = next(i for i, item in enumerate(items) if item != ":")
        if items[-1] == ":":
            while items[-1] == ":":
                items.pop()
        elif whole > 1:
            items = ["...", *items[whole:]]
        return f"{self.owner(chain[0].args[0])}[{', '.join(items)}]"

    def subscripts(self, node: Node) -> list[Node]:
        """The node and those before it that are written as one subscript: ``x[:, None, 0]`` in
        place of ``x[:, None][:, :, 0]``."""
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
        """What stands in the brackets; None where two nodes take parts of one axis."""
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
        return f"{self.owner(x)}[{self.at(x, axis, *map(self.value, indices))}]"

    def op_take(self, node: Node, x: Any, index: Any, axis: int) -> str:
        if axis:
            return self.by_spelling(node, "np.take x index axis:")
        return f"{self.owner(x)}[{self.value(index)}]"

    @uses("updated")
    def op_slice_update(self, node: Node, x: Any, values: Any, at: Sequence[Any]) -> str:
        parts = [self.range(*p) if isinstance(p, tuple) else self.value(p) for p in at]
        place = f"{self.function('np.s_')}[{', '.join(parts) or '...'}]"
        function = self.file.helpers["updated"]
        return f"{function}({self.value(x)}, {place}, {self.value(values)})"

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
        """``1:-1``, or ``: T - 1`` where a bound is an expression."""
        parts = ["" if start == 0 else self.value(start), "" if stop is None else self.value(stop)]
        parts += [] if step == 1 else [self.value(step)]
        return slice_text(*parts, *([""] if step == 1 else []))

    def at(self, x: Node, axis: int, *parts: str) -> str:
        """An index of an axis, or of it and those behind it."""
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
        """Convolutions and pools, whose functions take images [N, C, H, W] and, for padding that is
        not the same everywhere, (low, high) for each axis."""
        found = dict(node.arguments)
        if node.target.role == "product":  # so that more layers share a class
            found = {n: v for n, v in bound.items() if n in found or n in ("stride", "padding")}
        padding, layout = found.get("padding"), found.pop("layout", "NCHW")
        if isinstance(padding, tuple) and not node.target.transposes:
            found["padding"] = tuple(p if isinstance(p, tuple) else (p, p) for p in padding)
        if layout == "NCHW":
            return self.by_helper(node, self.helper(node.target) or "", found)
        axes = [", ".join(map(str, order)) for order in (TO_FIRST, TO_LAST)]
        found["x"] = Verbatim(f"{self.owner(found['x'])}.transpose({axes[0]})")
        made = self.by_helper(node, self.helper(node.target) or "", found)
        return f"{made}.transpose({axes[1]})"

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
