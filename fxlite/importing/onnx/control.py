"""ONNX's control flow in terms of fxlite's; also sequences and optionals, which are Python lists and None while
importing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import FxliteError
from fxlite.base.state import is_traced
from fxlite.importing.onnx import proto
from fxlite.importing.onnx.arrays import in_parts
from fxlite.importing.onnx.registry import Call, axis_of, onnx_op, rank, same, shape
from fxlite.tracing.capture.control import cond, fori_loop, scan, while_loop
from fxlite.tracing.capture.known import known_value
from fxlite.types.shapes import NamedDim

#: The most rounds for which a loop whose values change their shapes is unrolled.
_MOST_ROUNDS = 1000


def _known(value: Any) -> Any:
    """A number that is known while importing, or a named size; None for other values."""
    if value is None:
        return None
    held = known_value(value) if is_traced(value) else np.asarray(value)
    return None if held is None else held.reshape(-1)[0]


def _proxies(n: Call, values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(n.proxy(v) for v in values)


@onnx_op("If", folds=False)
def if_(n: Call, condition: Any) -> Any:
    """If the condition is known, only that branch is imported; else both must return values of the same types."""

    def branch(name: str) -> Callable[[], tuple[Any, ...]]:
        return lambda: _proxies(n, n.walk.body(n[name], [], n.env))

    known = _known(condition)
    if known is not None:
        return tuple(n.walk.body(n["then_branch" if known else "else_branch"], [], n.env))
    condition = condition.reshape(()) if rank(condition) else condition
    try:
        return tuple(cond(condition, branch("then_branch"), branch("else_branch")))
    except (FxliteError, AttributeError) as error:
        n.known(condition, f"the condition ({str(error).splitlines()[0]})")
        raise


@onnx_op("Loop", folds=False, sizes=(0,))
def loop(n: Call, count: Any, condition: Any, *values: Any) -> Any:
    """A loop with a known number of iterations becomes a scan, and one that a condition ends a while loop. If shapes of
    values change from one iteration to the next, it is unrolled."""
    body = n["body"]
    n_carried = len(values)
    rounds, going = _known(count), _known(condition)
    endless = condition is None or (going is not None and bool(going))
    if going is not None and not going:
        rounds, endless = 0, True
    n_scanned = len(body.output) - 1 - n_carried
    has_lists = any(isinstance(v, list) or v is None for v in values)
    if rounds is not None and endless and not has_lists and _goes_on(body):
        if isinstance(rounds, NamedDim) or rounds > 4:
            try:
                return _counted(n, rounds, values, n_scanned)
            except FxliteError:
                if isinstance(rounds, NamedDim) or rounds > _MOST_ROUNDS:
                    raise
        return _unrolled(n, int(rounds), values, n_scanned)
    if rounds is not None and endless and not isinstance(rounds, NamedDim):
        try:
            return _unrolled(n, int(rounds), values, n_scanned)
        except _StillGoing:
            pass
    if n_scanned or has_lists:
        what = "of a loop that collects values or carries sequences"
        for value, part in ((count, "the number of rounds"), (condition, "the condition")):
            if value is not None:
                n.known(value, f"{part} {what}")
        raise n.refuse("a condition that is not known while importing ends it, and it collects a value of each round")
    return _while(n, count, condition, values)


class _StillGoing(Exception):
    """Raised if a condition inside of the loop is not known while importing."""


def _goes_on(body: Any) -> bool:
    """Whether the body passes on its condition unchanged, or returns a constant true."""
    out = body.output[0].name
    if len(body.input) > 1 and out == body.input[1].name:
        return True
    made = {name: node for node in body.node for name in node.output}
    while out in made and made[out].op_type == "Identity":
        out = made[out].input[0]
        if len(body.input) > 1 and out == body.input[1].name:
            return True
    node = made.get(out)
    if node is None or node.op_type != "Constant" or not node.attribute:
        held = {t.name: t for t in body.initializer}.get(out)
        return held is not None and bool(proto.Tensors(None).read(held).all())
    return bool(np.all(proto.attribute(node.attribute[0], proto.Tensors(None))))


def _counted(n: Call, rounds: Any, values: Sequence[Any], n_scanned: int) -> Any:
    going = n.proxy(np.asarray(True))

    def body(carried: Any, i: Any) -> Any:
        found = n.walk.body(n["body"], [_index(n, i), going, *carried], n.env)
        own = _proxies(n, found[1:])
        return own[: len(values)], own[len(values) :]

    start = _proxies(n, values)
    if not n_scanned:
        if not start:
            return ()
        return tuple(fori_loop(0, rounds, lambda i, c: body(c, i)[0], start))
    numbers = ops.arange(0, rounds, 1, dtype="i64")
    carried, rows = scan(body, start, n.proxy(numbers))
    return (*carried, *rows)


def _index(n: Call, i: Any) -> Any:
    return i if is_traced(i) else np.asarray(i, np.int64)


def _unrolled(n: Call, rounds: int, values: Sequence[Any], n_scanned: int) -> Any:
    carried, rows = list(values), [[] for _ in range(n_scanned)]  # type: ignore[var-annotated]
    going: Any = np.asarray(True)
    for i in range(rounds):
        if i == _MOST_ROUNDS:
            raise n.refuse(f"it would be written out in {rounds} rounds; up to {_MOST_ROUNDS} are")
        found = n.walk.body(n["body"], [np.asarray(i, np.int64), going, *carried], n.env)
        carried = list(found[1 : 1 + len(values)])
        for row, value in zip(rows, found[1 + len(values) :]):
            row.append(value)
        known = _known(found[0])
        if known is None:
            raise _StillGoing
        going = np.asarray(bool(known))
        if not known:
            break
    stacked = [_stacked(n, row, number, n_scanned) for number, row in enumerate(rows)]
    return (*carried, *stacked)


def _stacked(n: Call, row: list[Any], number: int, n_scanned: int) -> Any:
    if row:
        return np.stack(row)
    body = n["body"]
    kind = body.output[len(body.output) - n_scanned + number].type.tensor_type
    sizes = [d.dim_value for d in kind.shape.dim]
    return np.zeros((0, *sizes), proto.element(kind.elem_type, "a result"))


def _while(n: Call, count: Any, condition: Any, values: Sequence[Any]) -> Any:
    limit = None if count is None else n.proxy(count)
    limit = limit if limit is None or not rank(limit) else limit.reshape(())
    going = n.proxy(np.asarray(True)) if condition is None else n.proxy(condition)
    going = going.reshape(()) if rank(going) else going

    def test(i: Any, going: Any, *carried: Any) -> Any:
        return going if limit is None else np.logical_and(going, np.less(i, limit))

    def body(i: Any, going: Any, *carried: Any) -> Any:
        found = n.walk.body(n["body"], [i, going, *carried], n.env)
        more = n.proxy(found[0])
        return (i + 1, more.reshape(()) if rank(more) else more, *_proxies(n, found[1:]))

    start = (n.proxy(np.asarray(0, np.int64)), going, *_proxies(n, values))
    return tuple(while_loop(test, body, start)[2:])


@onnx_op("Scan", folds=False)
def scan_(n: Call, *values: Any) -> Any:
    """A scan over the first axis, to which other axes are moved. In opset 8, which has a batch axis, only a batch of
    one is supported."""
    if n.opset < 9:
        return _scan_8(n, *values)
    return _scan(n, values)


def _scan(n: Call, values: Sequence[Any]) -> Any:
    count = n["num_scan_inputs"]
    n_states = len(values) - count
    n_rows = len(n["body"].output) - n_states
    in_axes, out_axes = n["scan_input_axes"] or [0] * count, n["scan_output_axes"] or [0] * n_rows
    backwards, out_backwards = n["scan_input_directions"] or [0] * count, n["scan_output_directions"] or [0] * n_rows
    arrays = []
    for value, axis, back in zip(values[n_states:], in_axes, backwards):
        moved = np.moveaxis(n.proxy(value), axis_of(axis, rank(value)), 0)
        arrays.append(np.flip(moved, 0) if back else moved)

    def body(carried: Any, rows: Any) -> Any:
        found = _proxies(n, n.walk.body(n["body"], [*carried, *rows], n.env))
        return found[:n_states], found[n_states:]

    if not n_states:

        def without(carried: Any, rows: Any) -> Any:
            return carried, body((), rows)[1]

        rows = scan(without, n.proxy(np.asarray(0, np.int64)), tuple(arrays))[1]
        carried: tuple[Any, ...] = ()
    else:
        carried, rows = scan(body, _proxies(n, values[:n_states]), tuple(arrays))
    results = []
    for row, axis, back in zip(rows, out_axes, out_backwards):
        row = np.flip(row, 0) if back else row
        results.append(np.moveaxis(row, 0, axis_of(axis, rank(row))))
    return (*carried, *results)


def _scan_8(n: Call, lengths: Any, *values: Any) -> Any:
    if lengths is not None:
        raise n.refuse("it has lengths of sequences (opset 8); bring the model to opset 9 or newer")
    batch = shape(values[0])[0]
    if not isinstance(batch, int):
        raise n.refuse(f"its batch is {batch}, and must be a number")
    count = len(values) - n["num_scan_inputs"]
    rows = []
    for b in range(batch):
        inner = Call(n.walk, n.op, n.name, 9, {**n.attributes}, {}, n.n_outputs, n.wanted, n.env)
        inner.attributes.pop("directions", None)
        rows.append(_scan(inner, [n.proxy(v)[b] for v in values]))
    assert count >= 0
    return tuple(np.stack(parts) for parts in zip(*rows))


# -- sequences -------------------------------------------------------------------------------------
same("SequenceConstruct", lambda *values: list(values), folds=False)
same("SequenceEmpty", list, folds=False)


def _position(n: Call, position: Any, length: int, behind: bool = False) -> int:
    """A position from 0 on; ``behind``: the one behind the last element is one, too."""
    found = n.numbers(position, "the position")[0]
    if not -length <= found < length + behind:
        raise n.refuse(f"the sequence has {length} elements, and no position {found}")
    return found + length if found < 0 else found


@onnx_op("SequenceAt", folds=False)
def sequence_at(n: Call, values: list[Any], position: Any) -> Any:
    return values[_position(n, position, len(values))]


@onnx_op("SequenceInsert", folds=False)
def sequence_insert(n: Call, values: list[Any], value: Any, position: Any = None) -> Any:
    where = len(values) if position is None else _position(n, position, len(values), behind=True)
    made = list(values)
    made.insert(where, value)
    return made


@onnx_op("SequenceErase", folds=False)
def sequence_erase(n: Call, values: list[Any], position: Any = None) -> Any:
    where = _position(n, np.asarray(-1) if position is None else position, len(values))
    return [v for i, v in enumerate(values) if i != where]


same("SequenceLength", lambda values: np.asarray(len(values), np.int64), folds=False)


@onnx_op("SequenceMap", folds=False)
def sequence_map(n: Call, values: list[Any], *others: Any) -> Any:
    rows = []
    for i, value in enumerate(values):
        given = [other[i] if isinstance(other, list) else other for other in others]
        rows.append(n.walk.body(n["body"], [value, *given], n.env))
    return tuple([list(column) for column in zip(*rows)] or [[] for _ in n["body"].output])


@onnx_op("SplitToSequence", folds=False)
def split_to_sequence(n: Call, x: Any, parts: Any = None) -> Any:
    axis = axis_of(n["axis"] or 0, rank(x))
    length = shape(x)[axis]
    if isinstance(length, NamedDim):
        raise n.refuse(f"the axis it splits has the size {length}; a sequence has a known number of elements")
    if parts is None:
        sizes = [1] * length
    else:
        sizes = n.numbers(parts, "the sizes of the parts")
        if not rank(parts):
            if sizes[0] <= 0:
                raise n.refuse(f"parts of {sizes[0]} elements")
            sizes = [sizes[0]] * (length // sizes[0]) + ([length % sizes[0]] if length % sizes[0] else [])
    made = list(in_parts(n, x, sizes, axis))
    return [np.squeeze(v, axis) for v in made] if parts is None and not n["keepdims"] else made


@onnx_op("ConcatFromSequence", folds=False)
def concat_from_sequence(n: Call, values: list[Any]) -> Any:
    return (np.stack if n["new_axis"] else np.concatenate)(values, axis=n["axis"])


# -- optionals -------------------------------------------------------------------------------------
same("Optional", lambda value=None: value, folds=False)
same("OptionalHasElement", lambda value=None: np.asarray(value is not None), folds=False)


@onnx_op("OptionalGetElement", folds=False)
def optional_get_element(n: Call, value: Any) -> Any:
    if value is None:
        raise n.refuse("the optional is empty")
    return value
