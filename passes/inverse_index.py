"""Solving an index for its loop variables: which element of a group's result belongs to an element
of a value that is read in it.

In: the index by which a value is read, over the variables of a loop nest. Out: these variables in
terms of the value's coordinates, if reading is one-to-one. It is how everything behind a
contraction becomes its epilogue: the contraction's loops take the place of the result's.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxlite.scalar.expr import MultiIndex, fresh_var
from fxlite.scalar.index import Atom, Index, Quotient, Remainder, Var
from fxlite.types.tensor_type import TensorType


def invert(
    index: MultiIndex, space: tuple[Var, ...], type: TensorType
) -> tuple[tuple[Var, ...], dict[Var, Index]] | None:
    """Coordinates of a value read at ``index`` (fresh variables), and the loop variables of
    ``space`` in terms of them.

    None unless reading is one-to-one: each variable is a coordinate, or split over two of them as
    quotient and remainder (a reshape that joins axes); and a coordinate may be several variables
    or such halves (a reshape that splits an axis)."""
    coordinates = [fresh_var(d, "c") for d in type.shape]
    solved: dict[Var, Index] = {}
    halves: dict[tuple[Index, Index], dict[str, _Digit]] = {}
    for i, coordinate in zip(index, coordinates):
        if i.constant == 0 and coordinate.extent.constant == 1:
            continue
        digits = _digits(i, coordinate)
        if not digits:
            return None
        for digit in digits:
            atom = digit.atom
            if isinstance(atom, Var):
                # as in a concat, whose loop runs over more than this operand has
                if atom in solved or atom.extent != digit.extent:
                    return None
                solved[atom] = digit.value
            elif isinstance(atom, (Quotient, Remainder)):
                part = "quotient" if isinstance(atom, Quotient) else "remainder"
                halves.setdefault((atom.a, atom.b), {})[part] = digit
            else:
                return None
    for (whole, divisor), parts in halves.items():
        variable = whole.single_atom
        if len(parts) != 2 or not isinstance(variable, Var) or variable in solved:
            return None
        joined = parts["quotient"].extent * parts["remainder"].extent
        if parts["remainder"].extent != divisor or joined != variable.extent:
            return None
        solved[variable] = parts["quotient"].value * divisor + parts["remainder"].value
    for variable in space:
        if variable not in solved:
            if variable.extent.constant != 1:
                return None
            solved[variable] = Index.of(0)
    return tuple(coordinates), solved


@dataclass(frozen=True)
class _Digit:
    """An atom of an index, and its value in terms of the coordinate that the index is."""

    atom: Atom
    value: Index
    extent: Index


def _digits(index: Index, coordinate: Var) -> list[_Digit]:
    """The atoms of ``a``, or of ``a*6 + b*2 + c`` with ``b < 3`` and ``c < 2``, each of which a
    coordinate has once; empty for other indices."""
    weights = sorted(((w, m) for m, w in index.terms.items()), key=lambda term: term[0])
    if any(len(monomial) != 1 for _, monomial in weights) or not weights or weights[0][0] != 1:
        return []
    found: list[_Digit] = []
    for (weight, (atom,)), following in zip(weights, [w for w, _ in weights[1:]] + [None]):
        value = Index.of(coordinate) // weight
        if following is None:
            if weight > 1 and (coordinate.extent.constant or 1) % weight:
                return []
            found.append(_Digit(atom, value, coordinate.extent // weight))
        elif following % weight or following == weight:
            return []
        else:
            extent = Index.of(following // weight)
            found.append(_Digit(atom, value % extent, extent))
    return found
