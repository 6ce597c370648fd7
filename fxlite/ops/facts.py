"""What is known of an op besides its rules: the facts that a record may state.

Passes, the tracer and code generation ask an op for them, so that none of these keeps a list of the
ops it knows and a new op is whole when its record is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False, repr=False)
class Facts:
    """The facts of one op, each with what holds where a record says nothing."""

    # -- spelling
    #: Python's operator, for printing.
    symbol: str | None = None
    #: Whether Python has it for numbers, too, besides as an operator.
    keeps_python_numbers: bool = False
    #: NumPy's method of arrays that takes the elements of the op's only attribute one by one:
    #: ``x.reshape(2, 3)``, for printing.
    method: str | None = None
    #: How NumPy spells the op, for printing: its function or method and what that is given, as
    #: ``np.where condition x y`` or ``.mean axis= keepdims=``.
    numpy: str = ""
    #: ONNX's op that is this one, behind it its attributes with the parameters that they are:
    #: ``LeakyRelu alpha=negative_slope``.
    onnx: str = ""
    #: NumPy's ufunc that is this op.
    ufunc: np.ufunc | None = None

    # -- algebra
    commutative: bool = False
    associative: bool = False
    #: The op that undoes this one (of logical_not: on bools).
    inverse: str | None = None
    #: Whether no result is below 0 (or -0.0).
    nonnegative: bool = False
    #: Whether f(s x) = s f(x) for s > 0, for each channel by itself.
    scales: bool = False
    #: The largest error of a float32 result in units in the last place, where that is known and not
    #: 0.
    ulp: float = 0.0
    #: The rule of the derivative, where it is not that of what the op computes.
    gradient: str | None = None

    # -- elements and memory
    #: Whether the result holds numbers of the operands and nothing else: the same op on integers
    #: gives the integers of the result.
    moves_values: bool = False
    #: Whether the elements keep their row-major order, and only the shape changes.
    keeps_order: bool = False
    #: How many axes the result has more than the operand, of an op with an ``axis`` that counts in
    #: the larger of the two.
    added_axes: int = 0
    #: The attribute that says where along ``axis`` the part starts that is taken.
    starts_at: str | None = None
    #: The operand of which only some elements are read: no more than the result holds.
    reads_some_of: str | None = None
    #: An operand of positions, what they are positions in, and along which axis (None: ``axis``).
    looks_up: tuple[str, str, int | None] | None = None
    #: The reduction by which a scatter combines what meets at a place ("last": the last one stays), or a scan all
    #: up to a place.
    combines: str = ""
    #: Whether the result is several parts of the operand, of each of which ``shares_memory`` holds.
    gives_parts: bool = False
    #: Which triangle of each matrix stays, ``lower`` or ``upper``; the rest becomes zero.
    keeps_triangle: str = ""
    #: Whether writing into the result changes the operand, in NumPy: ``always``; if the operand is
    #: ``contiguous`` enough; always, the ``parts`` of its complex numbers; ``perhaps``, in ways that are not
    #: followed. Empty: never.
    shares_memory: str = ""
    #: Whether the result is the first operand with a part of it written anew.
    writes_part: bool = False
    #: Whether the result may have any order in memory, whatever that of the operands.
    any_order: bool = False
    #: Whether results of rank 0 are NumPy's immutable numbers; None: or arrays.
    gives_number: bool | None = None
    #: Whether a call on arrays asks the type rule first, since the reference would take what the rule refuses.
    asks_first: bool = False
    #: Which sizes of a call a guard may be needed for: those of the ``parts`` that are taken, or of
    #: the result's ``shape``.
    guards: str = ""

    #: By operand, the axes along which what stands at one position depends on the others: their
    #: numbers, or the attribute that names them. Along all other axes the positions of the operands
    #: and of the result go together one by one.
    needs_whole: Mapping[str, str | tuple[int, ...]] = field(default_factory=dict)

    # -- layers
    #: The operand that is the weight.
    weight: str | None = None
    #: Whether it is ``x @ weight`` or ``x @ weight.T``, the first two operands.
    is_matrix_product: bool = False
    #: Whether it is ``x @ weight.T`` plus a bias, of floats or of integers.
    is_linear: bool = False
    #: What the op is to quantization: a ``product`` with an integer counterpart; a ``sum`` of few
    #: numbers; an ``activation``, which can be part of a product's epilogue; a ``table``, of which
    #: rows are looked up.
    role: str = ""
    #: Whether integer weights are expanded to floats when the program is compiled.
    expands_weight: bool = False
    #: Whether it is a convolution of ``x`` with ``weight``, over any number of axes, of floats or integers
    #: as they are.
    is_convolution: bool = False
    #: The convolution that this one is the transpose of.
    transposes: str | None = None
    #: What a weight is called that the op made of one with another name: ``permuted``.
    participle: str | None = None
    #: The modes of quantization in which the op is taken apart into the products it is made of.
    opened_in: tuple[str, ...] = ()

    # -- kernels
    #: Whether templates read its operands with any strides.
    reads_views: bool = False
    #: Whether its kernels have no epilogue.
    stands_alone: bool = False
