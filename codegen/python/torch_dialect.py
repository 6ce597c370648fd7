"""The dialect "torch": a file with an ``nn.Module`` for users of PyTorch.

In: a graph with types. Out: modules of ``torch.nn`` where the program had those of ``fxlite.nn``, which have
the same names, arguments and state_dict keys; functions of torch for ops. Operands are cast where torch's
promotion differs from NumPy's. Half types are left to torch, which also computes its functions in float32
and rounds once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.base.outside_text import python_string
from fxlite.codegen.python.dialect import FUNCTION, TableDialect, is_trained, shape_text
from fxlite.codegen.python.layers import Layer, layer_of
from fxlite.codegen.python.numpy_text import Library, NumpyText, Verbatim, counted, spellings, uses
from fxlite.codegen.python.text import CALL, LEVELS
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import types_of
from fxlite.ops.image.convolution import padding_pairs
from fxlite.ops.image.spatial import per_axis
from fxlite.ops.op import Op, lookup
from fxlite.ops.own.foreign import ForeignOp
from fxlite.passes.rules.complex_parts import without_complex
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType, type_of


class TorchText(NumpyText):
    """Values as torch computes them; parts of arrays are written as for NumPy."""

    library, arrays, transpose = Library("in_torch.py"), "torch", "permute"
    calls = spellings("""
        relu|silu|relu6|hardsigmoid|hardswish|selu|softsign|mish|tanhshrink|logsigmoid F.NAME x
        real|erf|sigmoid torch.NAME x
        sum|any|all|mean|argmax|argmin .NAME dim=axis keepdim=keepdims
        max .amax dim=axis keepdim=keepdims
        min .amin dim=axis keepdim=keepdims
        var .var dim:axis correction:correction keepdim=keepdims
        cumsum|cumprod|squeeze|flip .NAME axis
        roll .roll shift axis
        tril|triu .NAME diagonal=k
        concat torch.cat tensors dim=axis
        stack torch.stack tensors dim=axis
        fabs torch.abs x
        embedding|prelu F.NAME x weight
        linear F.linear x weight bias?
        softmax|log_softmax F.NAME x dim:axis
        logsumexp torch.logsumexp x dim:axis keepdim=keepdims
        normalize F.normalize x p= dim=axis eps=
        cosine_similarity F.cosine_similarity x y dim=axis eps=
        layer_norm F.layer_norm x normalized_shape weight= bias= eps=
        group_norm F.group_norm x num_groups weight= bias= eps=
        dropout F.dropout x p: training:
        gelu F.gelu x approximate=
        hardtanh F.hardtanh x min_val max_val
        elu|celu F.NAME x alpha=
        leaky_relu F.leaky_relu x negative_slope=
        hardshrink|softshrink F.NAME x lambd=
        threshold F.threshold x threshold value
        glu F.glu x dim=axis
        adaptive_avg_pool2d|adaptive_max_pool2d|adaptive_avg_pool3d|adaptive_max_pool3d F.NAME x output_size
        interpolate F.interpolate x size= scale_factor= mode= align_corners=
        mse_loss|l1_loss F.NAME x target reduction=
        nll_loss F.nll_loss x target weight= ignore_index= reduction=
        cross_entropy F.cross_entropy x target weight= ignore_index= reduction= label_smoothing=
        binary_cross_entropy_with_logits F.binary_cross_entropy_with_logits x target weight= pos_weight= reduction=
        scaled_dot_product_attention F.scaled_dot_product_attention query key value attn_mask= is_causal= scale=
    """)

    @classmethod
    def spelling(cls, op: Op) -> str:
        return cls.calls.get(op.name, "")

    def dtype(self, value: DType) -> str:
        return self.function(f"torch.{value.long_name}")

    # -- dtypes ----------------------------------------------------------------------------------
    def cast(self, text: str, dtype: DType) -> str:
        return f"{text}.to({self.dtype(dtype)})"

    def cast_operands(self, node: Node) -> tuple[Mapping[Node, DType], DType | None]:
        op, result = node.target, (node.type[0] if isinstance(node.type, tuple) else node.type)
        operands = {name: v for name, v in node.arguments.items() if name in op.tensor_kinds}
        given = [v for v in op.tensors(operands) if isinstance(v, Node)]
        if op.looks_up is not None:
            index = node.bound[op.looks_up[0]]
            others = [n for n in given if n is not index and n.type.dtype.is_float]
            casts, kept = self.mixed(op, others, result.dtype)
            is_other = index.type.dtype.is_integer and index.type.dtype is not dtypes.int64
            return {**casts, **({index: dtypes.int64} if is_other else {})}, kept
        if (
            op.kind == "control"
            or op is lookup("cast")
            or op is lookup("bitcast")
            or (op.kind == "gather" and not op.moves_values)
        ):
            return {}, None
        if op.kind == "pointwise":
            return self.pointwise(node, operands, result.dtype)
        return self.mixed(op, given, result.dtype)

    def pointwise(
        self, node: Node, operands: Mapping[str, Any], result: DType
    ) -> tuple[Mapping[Node, DType], DType | None]:
        """Casts of the operands of an elementwise op; NumPy decides in which dtype it is computed."""
        op: Op = node.target
        computed = result
        if self.helper(op) is not None and not op.symbol and not result.is_float:
            return {}, None
        if result.is_bool:
            kinds = [v.type.dtype if isinstance(v, Node) else v for v in operands.values()]
            if (op.commutative and op.associative) or len(kinds) == 1:
                return {}, None  # truth values
            computed = dtypes.result_type(*kinds)
        if op.name == "reciprocal" and not result.is_float:
            computed = dtypes.float64  # torch does not compute it for integers
        others = [v for n, v in operands.items() if isinstance(v, Node) and n != "condition"]
        others = [v for v in others if v.type.dtype.is_complex is result.is_complex]  # without real parts
        casts = {v: computed for v in others if v.type.dtype is not computed}
        return casts, None if computed is result or result.is_bool else result

    def mixed(self, op: Op, given: Sequence[Node], result: DType) -> tuple[Mapping[Node, DType], DType | None]:
        """Casts of operands to one dtype, in which torch computes: that of the result, or float32 if half types
        are combined with others."""
        if self.helper(op) is not None:
            return {}, None
        if op.kind == "composite" and not op.moves_values:  # masks keep their dtype
            given = [n for n in given if n.type.dtype.is_float] or given
        own = {n.type.dtype for n in given}
        if op.kind in ("contraction", "window") and not result.is_float:
            computed = dtypes.float64  # torch has products of integers, but no windows of them
            if op.is_matrix_product:
                computed = dtypes.int32 if result.is_bool else result
            casts = {n: computed for n in given if n.type.dtype is not computed}
            return casts, None if computed is result else result
        is_sum = op.kind in ("reduction", "scan") and not result.is_float
        if own == {result} or is_sum:
            return {}, None
        computed = result.compute
        casts = {n: computed for n in given if n.type.dtype is not computed}
        return casts, None if computed is result else result

    # -- ops -------------------------------------------------------------------------------------
    def default_spelling(self, op: Op) -> str:
        return " ".join((f"torch.{op.name}", *op.tensor_kinds))

    def plain(self, node: Node) -> tuple[str, int]:
        op: Op = node.target
        is_binary = op.kind == "pointwise" and len(op.tensor_kinds) == 2
        if is_binary and op.ufunc is not None and self._operator(node) is None:
            return self.binary(node), CALL
        return super().plain(node)

    def binary(self, node: Node) -> str:
        """A function of two tensors; a number becomes a tensor."""
        kinds = {v.type.dtype for v in node.args if isinstance(v, Node)}
        common = self.casts.get(node.all_input_nodes[0], next(iter(kinds)))
        parts = [v if isinstance(v, Node) else self.tensor(v, common) for v in node.args]
        name = node.target.name
        function = self.file.helpers.get(name) or self.function(f"torch.{name}")
        return f"{function}({', '.join(map(self.value, parts))})"

    def tensor(self, number: Any, dtype: DType) -> Verbatim:
        """A number as a tensor."""
        made = f"{self.value(number)}, dtype={self.dtype(dtype)}"
        return Verbatim(f"{self.function('torch.tensor')}({made})")

    def bound_of(self, node: Node, keyword: str) -> tuple[str, int]:
        """``x.clamp(min=0)`` if one side is a number."""
        x, y = node.args
        number, value = (x, y) if isinstance(y, Node) else (y, x)
        if isinstance(number, Node):
            return self.binary(node), CALL
        return f"{self.owner(value)}.clamp({keyword}={self.value(number)})", CALL

    def op_maximum(self, node: Node, **bound: Any) -> tuple[str, int]:
        return self.bound_of(node, "min")

    def op_minimum(self, node: Node, **bound: Any) -> tuple[str, int]:
        return self.bound_of(node, "max")

    @uses("sign")
    def op_sign(self, node: Node, x: Any) -> str:
        """torch gives 0 as the sign of NaN."""
        is_float = node.type.dtype.is_float
        function = self.file.helpers["sign"] if is_float else self.function("torch.sign")
        return f"{function}({self.value(x)})"

    @uses("floor_divide")
    def op_floor_divide(self, node: Node, x: Any, y: Any) -> tuple[str, int]:
        """torch raises an error if an integer is divided by 0."""
        name = node.target.name
        is_safe = not isinstance(y, Node) and y != 0
        if node.type.dtype.is_float or is_safe:
            return self._operator(node) or self.binary(node), LEVELS["//"]
        kinds = [v if isinstance(v, Node) else self.tensor(v, node.type.dtype) for v in (x, y)]
        return f"{self.file.helpers[name]}({', '.join(map(self.value, kinds))})", CALL

    @uses("remainder")
    def op_remainder(self, node: Node, x: Any, y: Any) -> tuple[str, int]:
        return self.op_floor_divide(node, x, y)

    def op_softplus(self, node: Node, x: Any, beta: float, threshold: float) -> str:
        """torch uses the exponential up to the given threshold; from 40 on the result is x in any case."""
        given = {"beta": (beta, 1.0), "threshold": (min(threshold, 40.0), 20.0)}
        options = "".join(f", {name}={value!r}" for name, (value, default) in given.items() if value != default)
        return f"{self.function('F.softplus')}({self.value(x)}{options})"

    def op_where(self, node: Node, condition: Any, x: Any, y: Any) -> str:
        if not isinstance(x, Node) and not isinstance(y, Node):
            x = self.tensor(x, node.type.dtype)
        text = self.value(condition)
        if isinstance(condition, Node) and not condition.type.dtype.is_bool:
            text = self.cast(self.owner(condition), dtypes.bool_)
        return f"{self.function('torch.where')}({text}, {self.value(x)}, {self.value(y)})"

    @uses("choose")
    def op_cond(self, node: Node, pred: Any, operands: Sequence[Any], **bodies: Any) -> str:
        """A call of the function that :meth:`TorchDialect.control` writes."""
        values = ", ".join(map(self.value, (pred, *operands)))
        return f"{node.meta[FUNCTION]}({values})"

    @uses("loop_while")
    def op_while_loop(self, node: Node, carried: Sequence[Any], captured: Sequence[Any], **bodies: Any) -> str:
        values = ", ".join(map(self.value, (*carried, *captured)))
        return f"{node.meta[FUNCTION]}({values})"

    @uses("loop_over")
    def op_fori_loop(
        self, node: Node, lower: Any, upper: Any, carried: Sequence[Any], captured: Sequence[Any], **bodies: Any
    ) -> str:
        values = ", ".join(map(self.value, (lower, upper, *carried, *captured)))
        return f"{node.meta[FUNCTION]}({values})"

    def op_complex(self, node: Node, x: Any, y: Any) -> str:
        return f"{self.function('torch.complex')}({self.value(x)}, {self.value(y)})"

    def op_imag(self, node: Node, x: Any) -> str:
        """torch does not give an imaginary part of real numbers."""
        return f"{self.function('torch.imag' if x.type.dtype.is_complex else 'torch.zeros_like')}({self.value(x)})"

    def op_rsqrt(self, node: Node, x: Any) -> tuple[str, int]:
        return f"{self.function('torch.rsqrt')}({self.value(x)})", CALL

    def op_clip(self, node: Node, x: Any, min: Any, max: Any) -> str:
        bounds = [f"{n}={self.value(v)}" for n, v in (("min", min), ("max", max)) if v is not None]
        if not bounds:
            return f"{self.owner(x)}.clone()"
        return f"{self.owner(x)}.clamp({', '.join(bounds)})"

    def op_permute(self, node: Node, x: Any, axes: Sequence[int]) -> str:
        return f"{self.owner(x)}.permute({', '.join(map(self.value, axes)) or '()'})"

    def op_expand(self, node: Node, x: Any, shape: Sequence[Any]) -> str:
        return f"{self.owner(x)}.expand({', '.join(map(self.value, shape))})"

    def op_pad(self, node: Node, x: Any, padding: Any, value: Any) -> str:
        if not padding:
            return self.value(x)
        pairs = [size for pair in reversed(padding) for size in pair]
        given = f"{self.value(x)}, {self.value(tuple(pairs))}"
        return f"{self.function('F.pad')}({given}{f', value={self.value(value)}' if value else ''})"

    def op_split(self, node: Node, x: Any, sizes: Sequence[Any], axis: int) -> str:
        if len({*sizes}) == 1:
            return f"{self.owner(x)}.chunk({self.value(len(sizes))}, dim={self.value(axis)})"
        return f"{self.owner(x)}.split({self.value([*sizes])}, dim={self.value(axis)})"

    def place(self, at: Sequence[Any]) -> str:
        parts = [self.value(slice(*p)) if isinstance(p, tuple) else self.position(p) for p in at]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    @uses("taken")
    def op_take(self, node: Node, x: Any, index: Any, axis: int) -> str:
        if isinstance(index, Node) and not index.type.rank:
            return f"{self.file.helpers['taken']}({self.value(x)}, {self.value(index)}, {self.value(axis)})"
        return f"{self.owner(x)}[{self.at(x, axis, self.value(index))}]"

    def op_full(self, node: Node, shape: Any, value: Any, dtype: Any) -> str:
        return self.filled("torch", shape, value, f"dtype={self.dtype(node.type.dtype)}")

    def op_arange(self, node: Node, start: Any, stop: Any, step: Any, dtype: Any) -> str:
        bounds, usual = counted(start, stop, step)
        given = ", ".join(map(self.value, bounds))
        given += f", dtype={self.dtype(usual)}" if usual.is_float else ""
        text = f"{self.function('torch.arange')}({given})"
        return text if node.type.dtype is usual else self.cast(text, node.type.dtype)

    def op_batch_norm(self, node: Node, **bound: Any) -> str:
        text = "F.batch_norm x running_mean running_var weight= bias= training= eps="
        return self.by_spelling(node, text + (" momentum:0" if bound["training"] else ""))

    def op_instance_norm(self, node: Node, **bound: Any) -> str:
        text = "F.instance_norm x running_mean= running_var= weight= bias= use_input_stats= eps="
        return self.by_spelling(node, f"{text} momentum:0")

    def op_rms_norm(self, node: Node, eps: float | None, **bound: Any) -> str:
        epsilon = float(np.finfo(node.type.dtype.compute.numpy).eps) if eps is None else eps
        text = self.by_spelling(node, "F.rms_norm x normalized_shape weight=")
        return f"{text[:-1]}, eps={self.value(epsilon)})"

    def op_conv2d(self, node: Node, **bound: Any) -> str:
        """Convolutions and pools of images [N, C, H, W]; padding that differs between the two ends of an axis
        is added separately before."""
        given, padding = dict(node.arguments), bound.get("padding")

        def write() -> str:
            if isinstance(padding, tuple) and any(isinstance(p, tuple) for p in padding):
                pairs = [size for pair in reversed(padding) for size in pair]
                padded = f"{self.value(given['x'])}, {self.value(tuple(pairs))}"
                given["x"] = Verbatim(f"{self.function('F.pad')}({padded})")
                del given["padding"]
            if self.helper(node.target) is not None:
                return self.by_helper(node, node.target.name, given)
            return self.by_call(self.function(f"F.{node.target.name}"), node, given)

        return self.channels_first(given, write)

    op_conv1d = op_int_conv2d = op_conv_transpose1d = op_conv_transpose2d = op_conv2d
    op_conv3d = op_conv_transpose3d = op_max_pool3d = op_avg_pool3d = op_conv2d
    op_max_pool1d = op_max_pool2d = op_avg_pool1d = op_avg_pool2d = op_max_pool_positions = op_conv2d

    def op_adaptive_avg_pool1d(self, node: Node, x: Any, output_size: Any) -> str:
        if output_size is None:  # the size that x has
            return self.value(x)
        function = self.function(f"F.{node.target.name}")
        return f"{function}({self.value(x)}, {self.value(output_size)})"

    op_adaptive_max_pool1d = op_adaptive_avg_pool1d

    def op_einsum(self, node: Node, operands: Sequence[Any], equation: str) -> str:
        text = self.by_spelling(node, "torch.einsum equation *operands")
        return text if node.type.dtype.is_float else self.cast(text, node.type.dtype)

    def position(self, index: Any) -> str:
        if not isinstance(index, Node) or index.type.dtype is dtypes.int64:
            return self.value(index)
        return self.cast(self.owner(index), dtypes.int64)


#: What torch.nn.Module has, so that no weight or module can be called so.
OF_MODULES = frozenset(
    "T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda "
    "double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter "
    "get_submodule half ipu load_state_dict modules mtia named_buffers named_children "
    "named_modules named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state "
    "set_submodule share_memory state_dict to to_empty train training type xpu zero_grad".split()
)


@dataclass(frozen=True)
class Code:
    """An argument of a layer as Python text."""

    text: str

    def __repr__(self) -> str:
        return self.text


class TorchDialect(TableDialect):
    """Modules of torch, and weights in a ``.safetensors`` file."""

    name = "torch"
    text = TorchText
    imports = ("torch", "F", "math")
    values = "tensors"
    copy = ".clone()"
    has_control = True
    overlaps = False
    parts = ("Weights", "Before", "Counted")
    loaded = "load_file(path)"
    modules = (("torch", "torch"), ("torch.nn.functional", "F"))
    names = (("load_file", "from safetensors.torch import load_file"), ("nn", "from torch import nn"))

    def control(self, node: Node, bodies: Sequence[str]) -> list[str]:
        """A function that ``torch.fx`` does not trace into."""
        made = ", ".join(f"{body}()" for body in bodies)
        count = len(node.bound.get("carried", ()))
        head, call = {
            "cond": ("pred, *values", f"choose(pred, {made}, values)"),
            "while_loop": ("*values", f"loop_while({made}, values[:{count}], values[{count}:])"),
            "fori_loop": (
                "lower, upper, *values",
                f"loop_over(lower, upper, {made}, values[:{count}], values[{count}:])",
            ),
        }[node.target.name]
        return ["@torch.fx.wrap", f"def {node.meta[FUNCTION]}({head}):", f"    return {call}"]

    def is_kept(self, node: Node) -> bool:
        """Attention that torch's function does not compute is expanded."""
        bound = node.bound
        mask = bound.get("attn_mask")
        if "empty_rows" in bound:
            is_mask = mask is None or mask.type.dtype in (dtypes.bool_, node.type.dtype)
            is_usual = bound["empty_rows"] == "zero" and bound["masked_score"] == -math.inf
            return is_mask and (is_usual or mask is None)
        return super().is_kept(node)

    def check(self, node: Node) -> None:
        super().check(node)
        for type in (t for n in (node, *node.all_input_nodes) for t in types_of(n)):
            if isinstance(type, TensorType) and type.dtype.name in ("u16", "u32", "u64"):
                raise CodegenError(
                    f"{node.describe()}: torch does not compute with {type.dtype.long_name}; cast "
                    f"the operand of {node.target.name} to a signed type in the program"
                )

    def prepared(self, gm: GraphModule) -> GraphModule:
        gm = without_complex(gm, "a program for torch", CodegenError, pairs=False)
        for node in gm.graph.nodes:
            taken = OF_MODULES.intersection(node.target.split(".")) if node.op == "get_attr" else ()
            for name in taken:
                raise CodegenError(
                    f"{node.describe()}: the weight {node.target} needs an attribute {name!r}, "
                    f"which torch.nn.Module has already; rename it in the program"
                )
        gm = super().prepared(gm)
        for node in gm.graph.nodes:
            if isinstance(node.target, ForeignOp):
                raise CodegenError(
                    f"{node.describe()}: {node.target.title} is a function of NumPy arrays, which "
                    f"the dialect 'torch' cannot call; {node.target.said_by}"
                )
        return gm

    def layer(self, module: GraphModule) -> Layer | None:
        found = layer_of(module)
        if found is None or "layout" in found.arguments:
            return None
        arguments = dict(found.arguments)
        padding = arguments.get("padding")
        if isinstance(padding, tuple) and any(isinstance(p, tuple) for p in padding):
            if padding != _same_padding(arguments, len(padding)):
                return None
            arguments["padding"] = "same"
        if arguments.get("align_corners") is False:
            del arguments["align_corners"]  # torch accepts it only for some modes
        if "dtype" in arguments:
            arguments["dtype"] = Code(f"torch.{dtypes.dtype(arguments['dtype']).long_name}")
        return replace(found, arguments=arguments)

    def array(self, module: GraphModule, part: str, value: Any, imports: Mapping[str, str]) -> str:
        if is_trained(value):
            return f"self.{part} = {self.held_array(value, imports)}"
        return f"self.register_buffer({python_string(part)}, {_zeros(value)})"

    def held_array(self, value: Any, imports: Mapping[str, str]) -> str:
        if not is_trained(value):
            return f"nn.Buffer({_zeros(value)})"
        is_float = type_of(value).dtype.is_float
        return f"nn.Parameter({_zeros(value)}{'' if is_float else ', requires_grad=False'})"


def _same_padding(arguments: Mapping[str, Any], rank: int) -> Any:
    """The padding that "same" means in a convolution; None if torch refuses it."""
    sizes = ("kernel_size", "stride", "dilation")
    kernel, steps, gaps = (per_axis(arguments.get(name, 1), rank, name) for name in sizes)
    return padding_pairs("same", kernel, steps, gaps) if {*steps} == {1} else None


def _zeros(value: Any) -> str:
    type = type_of(value)
    dtype = "" if type.dtype is dtypes.float32 else f", dtype=torch.{type.dtype.long_name}"
    sizes = shape_text(type)[1:-1].removesuffix(",") or "()"
    return f"torch.zeros({sizes}{dtype})"
