"""Facts: the properties of an op, besides its rules, that its record may state.

Passes, the tracer and code generation ask an op for them. So none of these needs a list of known ops,
and a new op is complete once its record is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False, repr=False)
class Facts:
    """The facts about one op, each with the value that holds if a record does not state it."""

    # -- spelling
    #: The operator in Python, for printing.
    symbol: str | None = None
    #: Whether it maps Python numbers to Python numbers, as ops with a ``symbol`` do.
    keeps_python_numbers: bool = False
    #: The array method of NumPy that takes the elements of the op's only attribute one by one, for printing:
    #: ``x.reshape(2, 3)``.
    method: str | None = None
    #: How NumPy spells the op, for printing: a function or method and its arguments, such as
    #: ``np.where condition x y`` or ``.mean axis= keepdims=``.
    numpy: str = ""
    #: The equivalent op of ONNX, followed by its attributes with the parameters that they stand for:
    #: ``LeakyRelu alpha=negative_slope``.
    onnx: str = ""
    #: The equivalent ufunc of NumPy.
    ufunc: np.ufunc | None = None

    # -- algebra
    commutative: bool = False
    associative: bool = False
    #: The op that undoes this one (for logical_not: on bools).
    inverse: str | None = None
    #: Whether no result is negative (or -0.0).
    nonnegative: bool = False
    #: Whether f(s x) = s f(x) for s > 0, for each channel separately.
    scales: bool = False
    #: The largest error of a float32 result in units in the last place, if it is known and not 0.
    ulp: float = 0.0
    #: The rule of the derivative, if it does not follow from the expression that the op computes.
    gradient: str | None = None

    # -- elements and memory
    #: Whether it puts the elements along ``axis`` in ascending order, or finds the places that they then have.
    puts_in_order: bool = False
    #: Whether the result contains only numbers of the operands: applied to integers that stand for the
    #: operands' elements, the op gives the integers of the result's elements.
    moves_values: bool = False
    #: Whether the elements keep their row-major order, and only the shape changes.
    keeps_order: bool = False
    #: How many more axes the result has than the operand, for an op whose ``axis`` refers to the larger of
    #: the two.
    added_axes: int = 0
    #: The attribute with the position along ``axis`` at which the selected part starts.
    starts_at: str | None = None
    #: The operand of which only some elements are read, at most as many as the result has.
    reads_some_of: str | None = None
    #: An operand that holds positions, the operand to which they refer, and its axis (None: ``axis``).
    looks_up: tuple[str, str, int | None] | None = None
    #: The reduction with which a scatter combines several elements for one place ("last": the last one stays), or
    #: a scan all elements up to a place.
    combines: str = ""
    #: Whether the result consists of several parts of the operand, for each of which ``shares_memory`` holds.
    gives_parts: bool = False
    #: Which triangle of each matrix stays, ``lower`` or ``upper``; the rest becomes zero.
    keeps_triangle: str = ""
    #: Whether writing into the result changes the operand, in NumPy: ``always``; only if the operand is
    #: ``contiguous`` enough; always, for the ``parts`` of its complex numbers; ``perhaps``, under conditions that
    #: the tracer does not follow. Empty: never.
    shares_memory: str = ""
    #: Whether the result is the first operand with a part of it overwritten.
    writes_part: bool = False
    #: Whether the result may have any order in memory, whatever the order of the operands.
    any_order: bool = False
    #: Whether results of rank 0 are NumPy's immutable numbers; None: numbers or arrays.
    gives_number: bool | None = None
    #: Whether a call on arrays checks the type rule first, because the reference accepts calls that the rule rejects.
    asks_first: bool = False
    #: Which sizes of a call may need a guard: those of the selected ``parts``, or those of the result's ``shape``.
    guards: str = ""

    #: For each operand, the axes along which an element of the result depends on more than one position: their
    #: numbers, or the attribute that names them. Along all other axes, the positions of the operands and of the
    #: result correspond one to one.
    needs_whole: Mapping[str, str | tuple[int, ...]] = field(default_factory=dict)

    # -- layers
    #: The operand that is the weight.
    weight: str | None = None
    #: Whether it is ``x @ weight`` or ``x @ weight.T`` of its first two operands.
    is_matrix_product: bool = False
    #: Whether it is ``x @ weight.T`` plus a bias, of floats or of integers.
    is_linear: bool = False
    #: The role of the op in quantization: a ``product`` with an integer counterpart; a ``sum`` of few numbers; an
    #: ``activation``, which can be part of a product's epilogue; a ``table``, whose rows are looked up.
    role: str = ""
    #: Whether integer weights are expanded to floats when the program is compiled.
    expands_weight: bool = False
    #: Whether it is a convolution of ``x`` with ``weight``, over any number of axes, of floats or of plain integers.
    is_convolution: bool = False
    #: The convolution of which this op is the transpose.
    transposes: str | None = None
    #: The participle in the name of a weight that the op made from another one: ``permuted``.
    participle: str | None = None
    #: The modes of quantization in which the op is expanded into its products.
    opened_in: tuple[str, ...] = ()

    # -- kernels
    #: Whether its templates can read operands with any strides.
    reads_views: bool = False
    #: Whether its kernels have no epilogue.
    stands_alone: bool = False
