"""The dialect "numpy": source that needs NumPy alone.

In: a graph with types. Out: plain classes with ``__call__``, whose arrays come from an ``.npz``
file. An op is NumPy's function, method or operator where there is one; else it is a function of
``in_numpy.py``, whose text becomes part of the file. Half types are computed in float32 and rounded
once, as the ops do, so that the text casts where NumPy would round in between. bfloat16 is a type
of ``ml_dtypes``, which a program with such values imports, too.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.codegen.python.by_table import (
    Library,
    TableDialect,
    TableText,
    Verbatim,
    counted,
    spellings,
    uses,
)
from fxlite.codegen.python.dialect import Imports, shape_text
from fxlite.codegen.python.layers import size_names
from fxlite.codegen.python.text import LEVELS, slice_text
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.spatial import TO_FIRST, TO_LAST
from fxlite.ops.op import Op
from fxlite.ops.slicing import cuts_of
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import type_of

#: Kinds of ops whose half results are computed in float32 and rounded once.
_WIDENED = frozenset(("composite", "contraction", "window", "reduction", "scan"))
_SHORT = {"absolute": "abs"}  # NumPy's other names of ufuncs


class NumpyText(TableText):
    """Values as NumPy computes them."""

    library = Library("in_numpy.py")
    calls = spellings("""
        relu        np.maximum x 0
        relu6       np.clip x 0 6
        hardtanh    np.clip x min_val max_val
        where       np.where condition x y
        cast        .astype dtype
        sum         .sum axis= keepdims=
        prod        .prod axis= keepdims=
        max         .max axis= keepdims=
        min         .min axis= keepdims=
        any         .any axis= keepdims=
        all         .all axis= keepdims=
        mean        .mean axis= keepdims=
        var         .var axis= ddof=correction keepdims=
        argmax      .argmax axis= keepdims=
        argmin      .argmin axis= keepdims=
        cumsum      .cumsum axis
        squeeze     .squeeze axis
        flip        np.flip x axis
        roll        np.roll x shift axis
        tril        np.tril x k=
        triu        np.triu x k=
        concat      np.concatenate tensors axis=
        stack       np.stack tensors axis=
        take        np.take x index axis
        gather      np.take_along_axis x index axis
        einsum      np.einsum equation *operands
    """)

    @property
    def extremes(self) -> tuple[str, str]:
        return self.extreme("min"), self.extreme("max")

    def extreme(self, name: str) -> str:
        """Python's function of that name, or NumPy's where a parameter has its name."""
        hidden = name in self.names.parameters.values()
        return self.function(f"np.{name}imum") if hidden else name

    def dtype(self, value: DType) -> str:
        if value is dtypes.bfloat16:
            return f"{self.file.imports['ml_dtypes']}.bfloat16"
        return f"{self.file.imports['np']}.{'bool_' if value.is_bool else value.long_name}"

    # -- dtypes ----------------------------------------------------------------------------------
    def cast(self, text: str, dtype: DType) -> str:
        return f"{text}.astype({self.dtype(dtype)})"

    def cast_operands(self, node: Node) -> tuple[Mapping[Node, DType], DType | None]:
        op, result = node.target, (node.type[0] if isinstance(node.type, tuple) else node.type)
        # sigmoid and erf, which are none of NumPy's
        is_function = (
            op.kind == "pointwise" and len(op.tensor_kinds) == 1 and self.helper(op) is not None
        )
        is_moved = op.moves_values and node.bound.get("mode", "nearest") == "nearest"
        is_computed = op.kind in _WIDENED and not is_moved and not op.reads_some_of
        # where nothing is rounded in between, NumPy promotes the operands of products itself
        is_cast = is_function or (is_computed and (op.kind == "composite" or result.dtype.is_half))
        if not result.dtype.is_float or not is_cast:
            return {}, None
        computed = result.dtype.compute
        types = {n: n.type.dtype for n in op.tensors(node.arguments) if isinstance(n, Node)}
        found = {
            n: computed for n, dtype in types.items()
            if dtype is not computed and (dtype.is_float or is_function)
        }  # fmt: skip
        return found, result.dtype if found and computed is not result.dtype else None

    # -- ops -------------------------------------------------------------------------------------
    @classmethod
    def is_known(cls, op: Op) -> bool:
        return super().is_known(op) or op.ufunc is not None

    def default_spelling(self, op: Op) -> str:
        if op.ufunc is None:
            return super().default_spelling(op)
        name = op.ufunc.__name__
        return " ".join((f"np.{_SHORT.get(name, name)}", *op.tensor_kinds))

    def op_pad(self, node: Node, x: Any, padding: Any, value: Any) -> str:
        if not padding:
            return self.value(x)
        return self.by_spelling(node, "np.pad x padding constant_values=value")

    def op_rsqrt(self, node: Node, x: Any) -> tuple[str, int]:
        return f"1 / {self.function('np.sqrt')}({self.value(x)})", LEVELS["/"]

    def op_linear(self, node: Node, x: Any, weight: Any, bias: Any) -> tuple[str, int]:
        text = f"{self._operand(x, LEVELS['@'])} @ {self.owner(weight)}.T"
        if bias is None:
            return text, LEVELS["@"]
        return f"{text} + {self._operand(bias, LEVELS['+'] + 1)}", LEVELS["+"]

    def op_clip(self, node: Node, x: Any, min: Any, max: Any) -> str:
        text = self.value(x)
        if min is None and max is None:
            return f"{self.owner(x)}.copy()"
        if min is None or max is None:
            name, bound = ("np.maximum", min) if max is None else ("np.minimum", max)
            return f"{self.function(name)}({text}, {self.value(bound)})"
        return f"{self.function('np.clip')}({text}, {self.value(min)}, {self.value(max)})"

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
    def op_slice(self, node: Node, x: Any, axis: int, start: Any, stop: Any, step: int) -> str:
        return f"{self.owner(x)}[{self.at(x, axis, self.range(start, stop, step))}]"

    def op_select(self, node: Node, x: Any, axis: int, index: Any) -> str:
        return f"{self.owner(x)}[{self.at(x, axis, self.value(index))}]"

    def op_unsqueeze(self, node: Node, x: Any, axis: int) -> str:
        return f"{self.owner(x)}[{self.at(node, axis, 'None')}]"

    def op_index(self, node: Node, x: Any, indices: Sequence[Any], axis: int) -> str:
        return f"{self.owner(x)}[{self.at(x, axis, *map(self.value, indices))}]"

    @uses("updated")
    def op_slice_update(self, node: Node, x: Any, values: Any, at: Sequence[Any]) -> str:
        parts = [self.range(*p) if isinstance(p, tuple) else self.value(p) for p in at]
        place = f"{self.function('np.s_')}[{', '.join(parts) or '...'}]"
        function = self.file.helpers["updated"]
        return f"{function}({self.value(x)}, {place}, {self.value(values)})"

    def op_split(self, node: Node, x: Any, sizes: Sequence[Any], axis: int) -> str:
        is_even = len({*sizes}) == 1 and type(sizes[0]) is int
        cuts = [self.value(start) for start, _ in cuts_of(tuple(sizes))[1:]]
        parts = self.value(len(sizes)) if is_even else f"[{', '.join(cuts)}]"
        return f"{self.function('np.split')}({self.value(x)}, {parts}, axis={self.value(axis)})"

    def op_expand(self, node: Node, x: Any, shape: Sequence[Any]) -> str:
        added = len(shape) - x.type.rank
        sizes = [
            f"{self.owner(x)}.shape[{axis - added}]"
            if isinstance(size, int) and size == -1 else self.value(size)
            for axis, size in enumerate(shape)
        ]  # fmt: skip
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
        sizes, kind = self.value(shape), self.dtype(node.type.dtype)
        if repr(value) in ("0", "1", "0.0", "1.0", "False", "True"):
            return f"{self.function('np.ones' if value else 'np.zeros')}({sizes}, {kind})"
        return f"{self.function('np.full')}({sizes}, {self.value(value)}, {kind})"

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
    op_max_pool1d = op_max_pool2d = op_avg_pool1d = op_avg_pool2d = op_conv2d

    @uses("recurrence", "int_recurrence", "lstm_step", "gru_step", "rnn_tanh_step", "rnn_relu_step")
    def op_recurrence(self, node: Node, mode: str, **bound: Any) -> str:
        found = {name: value for name, value in node.arguments.items() if name != "mode"}
        step = self.file.helpers[f"{mode}_step"]
        return self.by_helper(node, node.target.name, found, step)

    op_int_recurrence = op_recurrence


class NumpyDialect(TableDialect):
    """Plain classes and functions, and weights in an ``.npz`` file."""

    name = "numpy"
    text = NumpyText
    imports = ("np", "math", "ml_dtypes")
    method = "__call__"
    base = ""
    by_position = 1
    identity = "Identity()"
    has_sequential = False
    suffix = ".npz"
    parts = ("Identity", "Weights", "load_weights")

    def is_kept(self, node: Node) -> bool:
        several = node.type if isinstance(node.type, tuple) else ()  # results, each to be rounded
        return super().is_kept(node) and not any(type.dtype.is_half for type in several)

    def array(
        self, module: GraphModule, part: str, value: Any, imports: Mapping[str, str]
    ) -> str:  # fmt: skip
        return f"self.{part} = {_zeros(value, size_names(module, value))}"

    def held_array(self, value: Any, imports: Mapping[str, str]) -> str:
        return _zeros(value)

    def module_list(self, listed: str, is_called: bool) -> str:
        return f"[{listed}]"

    def lacking(self, made: str) -> str:
        return "[]" if made.startswith("[") else self.identity

    def import_lines(self, used: Callable[[str], bool], alias: Mapping[str, str]) -> Imports:
        lines = []
        for module, short in (("ml_dtypes", "ml_dtypes"), ("numpy", "np")):
            names = [name for name in sorted({short, alias[short]}) if used(name)]
            lines += [f"import {module}" + f" as {n}" * (n != module) for n in names]
        if used("sliding_window_view"):
            lines.append("from numpy.lib.stride_tricks import sliding_window_view")
        return [], lines

    def load(self) -> list[str]:
        return [
            "    @classmethod",
            "    def load(cls, path=WEIGHTS):",
            '        """The model with its weights."""',
            "        return load_weights(cls(), path)",
        ]

    def save(self, arrays: Mapping[str, Any], path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, value in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)


def _zeros(value: Any, names: Iterable[str] = ()) -> str:
    type = type_of(value)
    dtype = type.dtype.long_name if not type.dtype.is_bool else "bool_"
    module = "ml_dtypes" if type.dtype is dtypes.bfloat16 else "np"
    shape = shape_text(type, names)
    return f"np.zeros({shape[1:-2] if type.rank == 1 else shape}, {module}.{dtype})"
