"""The states of a recurrence as integers: what convert writes, prepare observes and the runs in
float compute.

In: a :class:`~fxlite.passes.quantize.schemes.scheme.Scheme`, the range of the states, a weight as
integers. Out: attributes of ``int_recurrence``, or its result. States become integers in each step
of the loop, so the runs that compute other products from rounded floats call the integer op itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.passes.quantize.schemes.parameters import QuantizedWeight
from fxlite.passes.quantize.schemes.scheme import Scheme


def state_scheme(scheme: Scheme) -> Scheme:
    """How states become integers where activations do by ``scheme``: i8 is symmetric."""
    return scheme if scheme.dtype == "u8" else replace(scheme, symmetric=True)


def state_attributes(scheme: Scheme, scale: Any, zero_point: Any) -> dict[str, Any]:
    """Attributes of ``int_recurrence`` for states of a range."""
    affine = {"state_zero_point": int(zero_point)} if scheme.dtype == "u8" else {}
    return {"state_scale": float(scale), **affine}


def row_scales(scale: Any, rows: int) -> Any:
    """A weight's scale for each of its rows."""
    return np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), (rows,)))


def integer_recurrence(
    args: Sequence[Any], kwargs: Mapping[str, Any], weight: QuantizedWeight,
    state: Mapping[str, Any],
) -> Any:  # fmt: skip
    """The result of a float recurrence with these arguments, computed in integers; ``state`` are
    the attributes that say how (none: dynamically)."""
    arguments = ops.recurrence.bind(args, kwargs)
    scales = row_scales(weight.scale, len(weight.integers))
    arguments |= {"weight_hh": weight.integers, "weight_scale": scales, **state}
    return ops.int_recurrence(**arguments)
