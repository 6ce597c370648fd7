"""Contractions: matmul, linear and einsum, which are sums of products over shared axes.

dtypes are promoted as in NumPy. Products of half types are summed in float32 and rounded once. Sums of
integers wrap around in their dtype, and sums of bools are "any", as in ``np.matmul``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, ShapeError, number_of
from fxlite.ops.image.spatial import rewrite
from fxlite.ops.op import OptionalTensor, Tensor, Tensors, broadcast_shapes, lookup, op
from fxlite.ops.samples import Bad, S
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


def common_dtype(*operands: Any) -> DType:
    """NumPy's common dtype of tensors, readers or arrays (None is ignored)."""
    return dtypes.result_type(*(dtypes.dtype(o.dtype) for o in operands if o is not None))


def matmul_dtype(x: Any, y: Any) -> DType:
    """The result dtype of ``x @ y``. NumPy has no bfloat16 matrix product: it computes and returns float32,
    and so does the op, so that a traced program agrees with the original."""
    common = common_dtype(x, y)
    return dtypes.float32 if common is dtypes.bfloat16 else common


def multiply(a: Expr, b: Expr, computed: DType) -> Expr:
    """The product in the dtype of the sum to which it is added; "and" for bools."""
    a, b = expr.cast(a, computed), expr.cast(b, computed)
    return expr.apply("and" if computed.is_bool else "mul", a, b)


def sum_kind(computed: DType) -> str:
    """The kind of reduction that adds products: "any" for bools, else "sum"."""
    return "any" if computed.is_bool else "sum"


def _tensor(value: Any, what: str) -> TensorType:
    if not isinstance(value, TensorType):
        raise ArgumentError(f"{what} must be a tensor, not {value!r}")
    return value


# -- matmul ----------------------------------------------------------------------------------------
@op(
    "contraction",
    gives_number=True,
    weight="y",
    is_matrix_product=True,
    role="product",
    reads_views=True,
    symbol="@",
    ufunc=np.matmul,
    aliases=("mm", "bmm"),
    samples=[
        "f32[B,4] f32[4,5] B=3; f32[3,K] f32[K,2] K=7; f32[4] f32[4]; f32[4] f32[4,3]; f32[2,3,4] f32[4]",
        "f32[2,1,3,4] f32[5,4,2]; f32[B,H,T,4] f32[B,H,4,T] B=2 H=3 T=5; f64[3,4] f64[4,2]; f16[3,40] f16[40,2]",
        "bf16[3,8] bf16[8,2]; f16[2,3] f32[3,2]; i32[3,4] i32[4,2]; i8[3,4] i8[4,2]; u16[3,4] u16[4,2]",
        "c64[B,40] c64[40,3] B=2; c128[3,4] f64[4]; f32[2,3] c64[3]; i32[2,3] f32[3,2]; bool[3,4] bool[4,2]",
        "f32[0,4] f32[4,3]; f32[3,0] f32[0,2]; f32[3,4]! f32[4,2]; f32[B,1,3,4] f32[1,B,4,2] B=2",
    ],
    bad=[
        Bad("f32[3,4]", "f32[5,6]", match="last axis of x is 4, but axis -2 of y is 5"),
        Bad("f32[3,4]", "f32[5]", match="but axis 0 of y is 5"),
        Bad("f32[]", "f32[4]", match="rank 0"),
        Bad("f32[4]", 2.0, match="use *"),
        Bad("f32[2,3,4]", "f32[3,4,5]", match="do not broadcast"),
        Bad("f32[3,K]", "f32[L,2]", dims={"K": 3, "L": 4}, match="same name"),
    ],
)
def matmul(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product ``x @ y``, as ``np.matmul``: ``[..., M, K] @ [..., K, N]`` is ``[..., M, N]``.

    Leading axes broadcast. An operand of rank 1 is a row on the left and a column on the right, and the
    result lacks its axis. bfloat16 gives float32, as in NumPy; cast the result back if that matters.
    Raises ShapeError for rank 0 or different K."""
    x, y = np.asarray(x), np.asarray(y)
    result = matmul_dtype(x, y)
    wide = result.compute.numpy
    with np.errstate(all="ignore"):
        total = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
        return np.asarray(total).astype(result.numpy, copy=False)[()]


@matmul.infer
def _(x: Any, y: Any) -> TensorType:
    for value, what in ((x, "x"), (y, "y")):
        if not isinstance(value, TensorType) or value.rank == 0:
            shown = "rank 0" if isinstance(value, TensorType) else repr(value)
            raise ShapeError(f"{what} is {shown}: matmul takes rank 1 or more; use * for numbers")
    inner = y.shape[-2] if y.rank > 1 else y.shape[0]
    if not shapes.equal(x.shape[-1], inner):
        hint = "the two must be equal"
        if not (type(x.shape[-1]) is int and type(inner) is int):
            hint = "give both the same name if they are always equal"
        axis = "-2" if y.rank > 1 else "0"
        raise ShapeError(f"the last axis of x is {x.shape[-1]}, but axis {axis} of y is {inner}; {hint}")
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return TensorType((*batch, *x.shape[-2:-1], *(y.shape[-1:] if y.rank > 1 else ())), matmul_dtype(x, y))


@matmul.body
def _(i: MultiIndex, x: Reader, y: Reader) -> Expr:
    result = matmul_dtype(x, y)
    column = i[-1:] if len(y.shape) > 1 else ()
    rest = i[: len(i) - len(column)]
    row = rest[-1:] if len(x.shape) > 1 else ()
    batch = rest[: len(rest) - len(row)]

    def element(k: Index) -> Expr:
        a = x[(*_batch_index(x, batch), *row, k)]
        b = y[(*_batch_index(y, batch), k, *column)]
        return multiply(a, b, result.compute)

    return expr.cast(expr.reduce(sum_kind(result), [x.shape[-1]], element), result)


def _batch_index(x: Reader, batch: MultiIndex) -> MultiIndex:
    """The index into the leading axes of an operand, with axes aligned at the end."""
    leading = x.shape[:-2]
    offset = len(batch) - len(leading)
    return tuple(Index.of(0) if s.constant == 1 else batch[offset + a] for a, s in enumerate(leading))


# -- linear ----------------------------------------------------------------------------------------
@op(
    "contraction",
    weight="weight",
    is_matrix_product=True,
    is_linear=True,
    role="product",
    reads_views=True,
    samples=[
        "f32[B,4] f32[3,4] f32[3] B=5; f32[2,3,4] f32[5,4]; f32[B,T,D] f32[2*D,D] f32[2*D] B=2 T=3 D=4",
        "f32[4] f32[3,4] f32[3]; f64[2,4] f64[3,4] f64[3]; f16[2,40] f16[3,40] f16[3]; bf16[2,4] bf16[3,4] bf16[3]",
        "bf16[2,4] f32[3,4] f32[3]; i32[2,4] i32[3,4] i32[3]; f32[0,4] f32[3,4] f32[3]; f32[2,0] f32[3,0] f32[3]",
        "f32[3,4] f32[1,4] f32[1]",
    ],
    bad=[
        Bad("f32[2,4]", "f32[3,5]", match="x has 4 features, but weight takes 5"),
        Bad("f32[2,4]", "f32[4]", match="weight must be [out, in]"),
        Bad("f32[2,4]", "f32[3,4]", "f32[4]", match="bias must be [3]"),
        Bad("f32[2,4]", "f32[4,3]", match="transpose the weight"),
        Bad("f32[]", "f32[4,3]", match="rank 0"),
    ],
)
def linear(x: Tensor, weight: Tensor, bias: OptionalTensor = None) -> Tensor:
    """``x @ weight.T + bias``: ``x [..., in]``, ``weight [out, in]``, ``bias [out]`` to
    ``[..., out]`` (torch.nn.functional.linear). Half types are rounded once, after the bias.

    Raises ShapeError if the numbers of features do not fit."""
    x, weight = np.asarray(x), np.asarray(weight)
    result = common_dtype(x, weight, bias)
    wide = result.compute.numpy
    with np.errstate(all="ignore"):
        total = np.matmul(x.astype(wide, copy=False), weight.astype(wide, copy=False).T)
        if bias is not None:
            total = total + np.asarray(bias).astype(wide, copy=False)
        return np.asarray(total).astype(result.numpy, copy=False)


@linear.infer
def _(x: Any, weight: Any, bias: Any) -> TensorType:
    x, weight = _tensor(x, "x"), _tensor(weight, "weight")
    if x.rank == 0:
        raise ShapeError("x is rank 0: linear takes [..., in]")
    if weight.rank != 2:
        raise ShapeError(f"weight must be [out, in] (rank 2), not rank {weight.rank}")
    outputs, features = weight.shape
    if not shapes.equal(x.shape[-1], features):
        hint = "the last axis of x must be weight.shape[1]"
        if shapes.equal(x.shape[-1], outputs):
            hint = "transpose the weight: it is [out, in]"
        raise ShapeError(f"x has {x.shape[-1]} features, but weight takes {features}; {hint}")
    if bias is not None:
        require_bias(bias, outputs)
    return TensorType((*x.shape[:-1], outputs), common_dtype(x, weight, bias))


def require_bias(bias: Any, outputs: Any) -> None:
    """Raise ShapeError unless ``bias`` has one number for each output."""
    if not isinstance(bias, TensorType) or not shapes.shapes_equal(bias.shape, (outputs,)):
        found = list(bias.shape) if isinstance(bias, TensorType) else repr(bias)
        raise ShapeError(f"bias must be [{outputs}], one number for each output, not {found}")


@linear.body
def _(i: MultiIndex, x: Reader, weight: Reader, bias: Reader | None) -> Expr:
    result = common_dtype(x, weight, bias)
    computed = result.compute

    def element(k: Index) -> Expr:
        return multiply(x[(*i[:-1], k)], weight[i[-1], k], computed)

    total = expr.reduce(sum_kind(computed), [x.shape[-1]], element)
    if bias is not None:
        function = "or" if computed.is_bool else "add"
        total = expr.apply(function, total, expr.cast(bias[i[-1:]], computed))
    return expr.cast(total, result)


@linear.expansion
def _(x: Any, weight: Any, bias: Any) -> Any:
    result = common_dtype(x, weight, bias)
    x, weight, bias = (_computed(v, result) for v in (x, weight, bias))
    total = matmul(x, lookup("permute")(weight, (1, 0)))
    if bias is not None:
        total = lookup("add")(total, bias)
    return total if dtypes.dtype(total.dtype) is result else lookup("cast")(total, result)


def _computed(value: Any, result: DType) -> Any:
    """An operand in the dtype in which a result of a half type is computed before it is rounded once."""
    if value is None or result.compute is result or dtypes.dtype(value.dtype) is result.compute:
        return value
    return lookup("cast")(value, result.compute)


# -- einsum ----------------------------------------------------------------------------------------
Labels = tuple[str, ...]  # the letter of each axis


def parse_equation(equation: Any, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The letters of the axes of the operands and of the result, from ``"bij,bjk->bik"``.

    Without ``->`` the result has the letters that occur once, in alphabetical order (np.einsum).
    ``...`` stands for axes that broadcast; they get numbers instead of letters. Raises ArgumentError."""
    if not isinstance(equation, str):
        raise ArgumentError(f"the equation must be text like 'ij,jk->ik', not {equation!r}")
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ArgumentError(
            f"the equation {equation!r} has {number_of(len(terms), 'operand')}, but {len(ranks)} are given"
        )
    inputs = [_letters(term, equation, rank) for term, rank in zip(terms, ranks)]
    extra = max((sum(letter.isdigit() for letter in labels) for labels in inputs), default=0)
    ellipsis = tuple(str(n) for n in range(extra, 0, -1))
    if arrow:
        output = _letters(right, equation, None, ellipsis)
    else:
        every = [letter for labels in inputs for letter in labels if letter.isalpha()]
        output = (*ellipsis, *sorted(letter for letter in every if every.count(letter) == 1))
    unknown = [letter for letter in output if not any(letter in labels for labels in inputs)]
    if unknown:
        raise ArgumentError(f"{unknown[0]!r} is in the result of {equation!r} but in no operand")
    return inputs, output


def _letters(term: str, equation: str, rank: int | None, ellipsis: Labels = ()) -> Labels:
    before, dots, after = term.partition("...")
    if not (before + after).isalpha() and before + after:
        raise ArgumentError(f"{term!r} in the equation {equation!r} is not made of letters and '...'")
    if rank is not None:
        missing = rank - len(before) - len(after)
        if missing < 0 or (missing and not dots):
            raise ArgumentError(
                f"{term!r} in the equation {equation!r} has {len(before) + len(after)} letters for "
                f"an operand of rank {rank}"
            )
        ellipsis = tuple(str(n) for n in range(missing, 0, -1))
    labels = (*before, *(ellipsis if dots else ()), *after)
    for letter in labels:
        if labels.count(letter) > 1:
            raise ArgumentError(
                f"{letter!r} occurs twice in {term!r}: diagonals are not supported; take the "
                f"diagonal first, or multiply by an identity and sum"
            )
    return labels


def _sizes(inputs: Sequence[Labels], operands: Sequence[Any]) -> dict[str, Any]:
    """The size of each letter; size 1 broadcasts. Raises ShapeError if two sizes do not agree."""
    sizes: dict[str, Any] = {}
    for labels, operand in zip(inputs, operands, strict=True):
        for axis, (letter, size) in enumerate(zip(labels, operand.shape, strict=True)):
            size = shapes.normalize(size)
            have = sizes.setdefault(letter, size)
            if have == 1:
                sizes[letter] = size
            elif size != 1 and not shapes.equal(have, size):
                what = f"axis {letter!r}" if letter.isalpha() else "an axis of '...'"
                raise ShapeError(f"{what} is {have} in one operand and {size} in another (axis {axis})")
    return sizes


@op(
    "composite",
    numpy="np.einsum equation *operands",
    shares_memory="perhaps",
    any_order=True,
    opened_in=("static",),
    samples=[
        S(["f32[B,3]", "f32[3,4]"], "bi,ij->bj", dims={"B": 2}),
        S(["f32[3,4]"], "ij->ji"),
        S(["f32[B,H,T,4]", "f32[B,H,S,4]"], "bhtd,bhsd->bhts", dims={"B": 2, "H": 3, "T": 4, "S": 5}),
        S(["f32[3,4]", "f32[4,5]"], "ij, jk"),
        S(["f32[3]", "f32[4]"], "i,j->ij"),
        S(["f32[3]", "f32[3]"], "i,i->"),
        S(["f32[3,4]"], "ij->"),
        S(["f32[3,4]"], "ij->j"),
        S(["f32[2,3,4]", "f32[4,5]"], "...i,ij->...j"),
        S(["f32[2,3,4]", "f32[3,4,2]"], "b...i,...ij->bj..."),
        S(["f32[2,3]", "f32[3,4]", "f32[4,5]"], "ij,jk,kl->il"),
        S(["f32[2,3,4]", "f32[4,3,5]"], "bij,jik->bk"),
        S(["f32[2,3]", "f32[2,3]"], "bi,bi->bi"),
        S(["f32[1,3]", "f32[2,3]"], "bi,bi->b"),
        S(["f32[2,3,4]", "f32[2,5]"], "bij,bk->bik"),
        S(["f64[2,3]", "f64[3]"], "ij,j->i"),
        S(["f16[3,4]", "f16[4,2]"], "ij,jk->ik"),
        S(["bf16[3,4]", "bf16[4,2]"], "ij,jk->ki"),
        S(["i32[3,4]", "i32[4,2]"], "ij,jk->ik"),
        S(["c64[3,4]", "c64[4,2]"], "ij,jk->ik"),
        S(["i8[3,4]"], "ij->i"),
        S(["u8[3,4]"], "ij->i"),
        S(["f32[2,3]", "f32[]"], "ij,->ji"),
        S(["f32[0,3]", "f32[3,4]"], "bi,ij->bj"),
    ],
    bad=[
        Bad(["f32[3,3]"], "ii->i", match="diagonals are not supported"),
        Bad(["f32[3,4]", "f32[5,6]"], "ij,jk->ik", match="axis 'j' is 4 in one operand and 5"),
        Bad(["f32[3,4]"], "ij,jk->ik", match="has 2 operands, but 1 are given"),
        Bad(["f32[3,4]"], "ijk->i", match="has 3 letters for an operand of rank 2"),
        Bad(["f32[3,4]"], "ij->k", match="in no operand"),
        Bad(["f32[3,4]"], "i1->i", match="not made of letters"),
    ],
)
def einsum(operands: Tensors, equation: str) -> Tensor:
    """A sum of products in Einstein's notation, as np.einsum: ``einsum((a, b), "bij,bjk->bik")``.

    There may be any number of operands, which are contracted from the left; ``...`` and axes of size 1
    broadcast. The result has the common dtype of the operands; half types are rounded once, at the end.

    Raises ArgumentError for an equation that does not fit or has a letter twice in one operand (a
    diagonal), and ShapeError for sizes that do not agree."""
    operands = [np.asarray(o) for o in operands]
    einsum.result_type(
        {"operands": [TensorType(o.shape, dtypes.dtype(o.dtype)) for o in operands], "equation": equation}
    )
    result = common_dtype(*operands)
    wide = [o.astype(result.compute.numpy, copy=False) for o in operands]
    with np.errstate(all="ignore"):
        total = np.einsum(equation, *wide, optimize=_from_the_left(len(wide)))
    return np.asarray(total).astype(result.numpy, copy=False)[()]


def _from_the_left(count: int) -> Any:
    """The path for np.einsum that contracts this many operands from the left; the product so far is the last
    in its list."""
    if count < 3:
        return True
    return ["einsum_path", (0, 1), *((0, left) for left in range(count - 2, 0, -1))]


@einsum.canonical
def _(operands: Any, equation: Any) -> Any:
    if not isinstance(equation, str):
        return None
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        right = "".join(sorted(c for c in letters if letters.count(c) == 1))
        right = f"...{right}" if "..." in left else right
    new = {"equation": f"{left}->{right}"}
    return rewrite(einsum, {"operands": operands, "equation": equation}, new)


@einsum.infer
def _(operands: Any, equation: Any) -> TensorType:
    tensors = [_tensor(o, f"operand {n}") for n, o in enumerate(operands)]
    inputs, output = parse_equation(equation, [t.rank for t in tensors])
    sizes = _sizes(inputs, tensors)
    return TensorType(tuple(sizes[letter] for letter in output), common_dtype(*tensors))


@einsum.expansion
def _(operands: Any, equation: Any) -> Any:
    inputs, output = parse_equation(equation, [len(o.shape) for o in operands])
    sizes = _sizes(inputs, operands)
    result = common_dtype(*operands)
    operands = [_computed(o, result) for o in operands]
    terms = [_drop_ones(o, labels, sizes) for o, labels in zip(operands, inputs, strict=True)]
    value, labels = terms[0]
    for position, (other, other_labels) in enumerate(terms[1:], start=2):
        needed = {*output, *(letter for _, later in terms[position:] for letter in later)}
        value, labels = _contract(value, labels, other, other_labels, needed, sizes)
    value, labels = _sum_out(value, labels, output)
    value = _arrange(value, labels, output)
    return value if value.dtype == result.numpy else lookup("cast")(value, result)


def _drop_ones(value: Any, labels: Labels, sizes: dict[str, Any]) -> tuple[Any, Labels]:
    """Drop the axes of size 1 that broadcast against another operand."""
    for axis in reversed(range(len(labels))):
        size = shapes.normalize(value.shape[axis])
        if type(size) is int and size == 1 and sizes[labels[axis]] != 1:
            value = lookup("squeeze")(value, axis=axis)
            labels = labels[:axis] + labels[axis + 1 :]
    return value, labels


def _sum_out(value: Any, labels: Labels, kept: Any) -> tuple[Any, Labels]:
    """Sum over the axes whose letters are not kept."""
    axes = tuple(a for a, letter in enumerate(labels) if letter not in kept)
    if not axes:
        return value, labels
    dtype = dtypes.dtype(value.dtype)
    value = lookup("sum")(value, axis=axes)
    if dtype is not dtype.accumulator:  # einsum does not widen integers
        value = lookup("cast")(value, dtype)
    return value, tuple(letter for letter in labels if letter in kept)


def _arrange(value: Any, labels: Labels, wanted: Labels) -> Any:
    """The value with its axes in the wanted order."""
    if labels == wanted:
        return value
    return lookup("permute")(value, tuple(labels.index(letter) for letter in wanted))


def _contract(
    a: Any, a_labels: Labels, b: Any, b_labels: Labels, needed: set[str], sizes: dict[str, Any]
) -> tuple[Any, Labels]:
    """The product of two operands, summed over the letters that are no longer needed."""
    a, a_labels = _sum_out(a, a_labels, needed | set(b_labels))
    b, b_labels = _sum_out(b, b_labels, needed | set(a_labels))
    batch = tuple(c for c in a_labels if c in b_labels and c in needed)
    inner = tuple(c for c in a_labels if c in b_labels and c not in needed)
    rows = tuple(c for c in a_labels if c not in b_labels)
    columns = tuple(c for c in b_labels if c not in a_labels)
    labels = (*batch, *rows, *columns)

    def reshaped(value: Any, *groups: Labels | int) -> Any:
        """The value with one axis for each group of letters (an int: that many axes of size 1)."""
        shape = [shapes.product(sizes[c] for c in g) for g in groups if not isinstance(g, int)]
        own = tuple(map(shapes.normalize, value.shape))
        return (
            value
            if shapes.shapes_equal(own, tuple(map(shapes.normalize, shape)))
            else lookup("reshape")(value, tuple(shape))
        )

    a = _arrange(a, a_labels, (*batch, *rows, *inner))
    single = [(c,) for c in batch]
    if not inner:
        b = _arrange(b, b_labels, (*batch, *columns))
        for _ in columns:
            a = lookup("unsqueeze")(a, -1)
        for _ in rows if columns or batch else ():
            b = lookup("unsqueeze")(b, len(batch))
        return lookup("mul")(a, b), labels
    b = _arrange(b, b_labels, (*batch, *inner, *columns))
    flat = matmul(reshaped(a, *single, rows, inner), reshaped(b, *single, inner, columns))
    return reshaped(flat, *single, *((c,) for c in (*rows, *columns))), labels
