"""What control flow cannot be captured: errors that name the line and what to do, never a graph
that computes something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import agree, agree_on_all

TABLE = np.arange(4.0)


def one_way_only(x: Any) -> Any:
    if x[0] > 0:
        y = 1
    return x + y


def other_type(x: Any) -> Any:
    y = x if x[0] > 0 else x.astype(np.float32)
    return y + 1


def other_shape(x: Any) -> Any:
    y = x
    while y.sum() < 10:
        y = np.concatenate([y, y])
    return y


def carried_type(x: Any) -> Any:
    s = np.float32(0)
    while s < x[0]:
        s = s + abs(x[0])
    return s


def popped(x: Any) -> Any:
    table = {"a": 1.0, "b": 2.0}
    if x[0] > 0:
        table.pop("a")
    return x * sum(table.values())


def sorted_rows(x: Any) -> Any:
    rows = []
    while x.sum() > 1:
        x = x / 2
        rows.append(x[0])
    rows.sort()
    return rows


def raises(x: Any) -> Any:
    if x[0] > 0:
        raise ValueError("positive")
    return x


def caught(x: Any) -> Any:
    try:
        if x[0] > 0:
            x = x + 1
    except Exception:
        return x * 0
    return x


def recursive(x: Any) -> Any:
    return x if x[0] > 10 else recursive(x * 2)


def computed_slice(x: Any) -> Any:
    n = 0
    while x[n] > 0:
        n += 1
    return x[:n:2].sum()


def computed_shape(x: Any) -> Any:
    return np.zeros(int(x[0]))


def constant_written(x: Any) -> Any:
    if x[0] > 0:
        TABLE[1] = 7
    return x + TABLE


def shared(x: Any) -> Any:
    a, b = x.copy(), x.copy()
    while a[0] < 5:
        a = b
        a[1] += 1
        b = a
    return a, b


def view_of_either(x: Any) -> Any:
    y = x if x[0] > 0 else x[::-1]
    y[0] = 3
    return x, y


def unbound_behind(x: Any) -> Any:
    while x.sum() > 1:
        last = x
        x = x / 2
    return last


def written_name(x: Any) -> Any:
    buffer = x
    while buffer.sum() < 10:
        buffer[0] = 1
        buffer = buffer + 1
    return buffer


def one_array_at_first(x: Any) -> Any:
    """Of conjugate gradients: p is r in the first round, and no more in the others."""
    r = x * 2
    p = r
    while r.sum() > 1:
        r -= p * 0.25
        p = r + p
    return p


def number_as_key(x: Any) -> Any:
    names = {1.5: "one"}
    n = 0.5
    while n < x[0]:
        n += 1
    return names[n]


REFUSED = {
    one_way_only: (r"y has a value only where the condition is true", "x + y", "y = 0"),
    other_type: (r"is f64\[4\] where the condition is true, and f32\[4\]", "y + 1", "astype"),
    other_shape: (r"y is f64\[4\] before a while loop and f64\[8\]", "y.sum", "final size"),
    carried_type: (r"s is f32 before a while loop and f64 after", "s < x[0]", "start with float64"),
    popped: (r"a dict from outside of a branch is changed by pop", "table.pop", "np.zeros"),
    raises: (r"a branch raises ValueError: positive .*:\d+\)", "x[0] > 0", "check it before"),
    caught: (r"is inside a try statement", "x[0] > 0", "take it out"),
    recursive: (r"the function calls itself until", "x[0] > 10", "write a loop"),
    computed_slice: (r"a slice with computed bounds and the step 2", "x[:n:2]", "np.take"),
    computed_shape: (r"how large it can be is not known", "np.zeros(int(x[0]))", "of the largest size"),
    constant_written: (r"an array of NumPy from outside of a br", "TABLE[1]", "np.array(table)"),
    shared: (r"a shares memory with another array after a round of a while loop", "a[0] < 5", "copy"),
    view_of_either: (r"which may share memory with", "y[0]", "copy"),
    unbound_behind: (r"last has no value if a while loop runs no", "x.sum() > 1", "before"),
    written_name: (r"writes into x under the name buffer", "buffer.sum() < 10", "copy"),
    one_array_at_first: (r"may or may not share its memory", "r + p", "copy"),
    sorted_rows: (r"the number of elements of a list is known only when", "rows.sort()", "copy it with list()"),
    number_as_key: (r"used as the key of a dict", "names[n]", "number"),
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda p: p.__name__)
def test_refused(program: Any) -> None:
    problem, expression, advice = REFUSED[program]
    with pytest.raises(TraceError, match=problem) as caught:
        fx.symbolic_trace(program, "f64[4]")
    text = str(caught.value)
    assert "test_control_refused.py:" in text and expression in text, text
    assert "instead: " in text and advice in text, text
    diagnosis = fx.trace_doctor(program, "f64[4]")
    assert any(expression in p.expression and p.fix for p in diagnosis), str(diagnosis)
    TABLE[:] = np.arange(4.0)  # the diagnosis goes on behind an error, as the program would


class Holder:
    value: Any = None


def of_another_shape(x: Any) -> Any:
    out = np.zeros(4)
    for row in x:
        if row[0] > 3:
            out = row
    return out


def item_of_another_shape(x: Any) -> Any:
    found = {"best": 0}
    for i in range(len(x)):
        if x[i, 0] > 3:
            found["best"] = x
    return found["best"]


def attribute_of_another_shape(x: Any) -> Any:
    holder = Holder()
    holder.value = np.zeros(3)
    for i in range(len(x)):
        if x[i, 0] > 3:
            holder.value = x
    return holder.value


@pytest.mark.parametrize("program", [of_another_shape, item_of_another_shape, attribute_of_another_shape])
def test_what_a_loop_that_carries_nothing_leaves_in_doubt(program: Any) -> None:
    """No round hands anything to the next one; the name may stand for something else after the loop."""
    with pytest.raises(TraceError, match="where the condition is true") as caught:
        fx.symbolic_trace(program, "f64[M,N]")
    assert "test_control_refused.py:" in str(caught.value)
    x = np.arange(12.0).reshape(3, 4)
    try:
        found = fx.jit(program)(x)
    except TraceError:
        return
    np.testing.assert_array_equal(found, program(x))


def test_what_nobody_reads_is_no_error() -> None:
    def program(x: Any) -> Any:
        if x[0] > 0:
            name, scratch = "positive", np.zeros(3)  # noqa: F841
        else:
            name = "negative"  # noqa: F841
        while x.sum() > 1:
            part = x[:2]
            x = x / 2
            part = part.sum()
        return x

    agree(program, np.array([3.0, 4.0, 1.0]), rungs=("graph", "python"))


def test_arguments_that_are_one_array() -> None:
    def program(x: Any, y: Any) -> Any:
        for i in range(len(x)):
            if x[i] > 0:
                y[i] += x[i]
        return y

    gm = fx.symbolic_trace(program, "f64[3]", "f64[3]")
    x = np.array([1.0, -2.0, 3.0])
    with pytest.raises(Exception, match="memory"):
        gm(x, x)


# -- one memory under several names -----------------------------------------------------------------
def exchanged_in_a_loop(x: Any) -> Any:
    b = x + 1
    a, d = x * 1.0, b[::-1]
    for _ in range(30):
        a, d = d, a
        if a[0] > 300:
            break
    b[0] -= b[0]
    return a, d, b


def a_view_on_one_way(x: Any) -> Any:
    b = x + 1
    d = b[::-1]
    if b.sum() > 30:
        d, b = b.copy(), d * 2
    b[0], d[1] = 3, 4
    return b, d


def written_by_the_first_round(x: Any) -> Any:
    a = x * 1.0
    c = a
    for i in range(20):
        if x[i % 4] < 2:
            continue
        c[1] = 5
        w = 0
        while w < 3:
            w += 1
            c = c + 1
            if a[w] > 40:
                break
    return a, c


@pytest.mark.parametrize("program", [exchanged_in_a_loop])
def test_what_may_share_memory_is_not_read_after_a_write(program: Any) -> None:
    """Silently it would be what stood there before."""
    with pytest.raises(TraceError, match=r"is not known: .*(may or may not share its memory|has written into it)"):
        fx.symbolic_trace(program, "f64[4]")


def exchanged_selections(x: Any) -> Any:
    a, b = x[x > -1], x[x > -1] + 1
    c, d = a, b[::-1]
    if x[0] > 0:
        b, c = c, b
    v = b[1:]
    v[-1] = 7
    return a.sum() + d.sum() + b.sum() + c.sum()


class _Pair:
    first: Any
    last: Any


def exchanged_attributes(x: Any) -> Any:
    b, pair = x + 1, _Pair()
    pair.first, pair.last = x * 1.0, b[::-1]
    for _ in range(30):
        pair.first, pair.last = pair.last, pair.first
        if pair.first[0] > 300:
            break
    b[0] = 9
    return pair.first.sum()


def test_doubt_names_what_the_program_names() -> None:
    """Also what was written to, and where."""
    with pytest.raises(TraceError) as caught:
        fx.symbolic_trace(exchanged_attributes, "f64[4]")
    message = str(caught.value)
    assert "the value of pair.first is not known: b was written to" in message
    assert f"see {__file__}:{exchanged_attributes.__code__.co_firstlineno + 7}" in message
    assert "instead: copy it where it gets its name: pair.first = ....copy()" in message


def one_selection_under_two_names(x: Any) -> Any:
    b, c = x[x > 0] * 2, x[x > 0] * 3
    if x[0] > 0:
        b = x[x > 0] + 1
        c = b
    b[0] = 9
    return b.sum() + c.sum()


def a_selection_or_another(x: Any) -> Any:
    a, b = x[x > 0], x[x > 0] * 2
    if x[0] > 0:
        b = a
    b += 1
    return b.sum() + a.sum()


def exchanged_in_rounds(x: Any) -> Any:
    a, b = x[x > -1], x[x > -1] + 1
    c = a
    for _ in range(30):
        b, a = a, b
        if c[0] > 22:
            continue
    b[1] = 9
    return b.sum() + c.sum()


def a_name_of_a_name(x: Any) -> Any:
    a, b, c = x + 0, x + 1, x * 3
    d = a if x[0] > 0 else b
    e = d if x[1] > 0 else c
    a[0] = 100
    return e.sum()


def returned_by_a_round(x: Any) -> Any:
    a = x + 0

    def found(v: Any) -> Any:
        for i in range(40):
            if x[i % 5] > 2:
                return v
        return v * 2

    found(a)[0] = 100
    return a.sum()


def read_in_the_next_round(x: Any) -> Any:
    a, s = x + 0, 0.0
    names = [a]
    for i in range(20):
        s = s + names[0].sum()
        a[0] = i
        if x[i % 5] > 2:
            a = a * 2
    return s


_NAMED_TWICE = [exchanged_selections, one_selection_under_two_names, exchanged_in_rounds, returned_by_a_round]


@pytest.mark.parametrize("program", _NAMED_TWICE)
def test_selections_that_may_be_one_are_not_read_after_a_write(program: Any) -> None:
    """Those of which none is read again are; so are copies."""
    with pytest.raises(TraceError, match=r"(?s)was written to, and may or may not share its memory.*copy it"):
        fx.symbolic_trace(program, "f64[5]")


@pytest.mark.parametrize(
    "program",
    [a_view_on_one_way, written_by_the_first_round, a_selection_or_another, a_name_of_a_name, read_in_the_next_round],
)
def test_the_array_of_a_name_is_known(program: Any) -> None:
    """What a write changes follows from a condition of the graph."""
    rows = [1.0, 4.0, 2.0, 3.0, 1.5], [-0.5, 0.0, 6.0, 2.5, -1.0], [30.0, 8.0, -0.5, 1.25, 1.0]
    few = program in (a_view_on_one_way, written_by_the_first_round)
    agree_on_all(program, [(np.array(given[:4] if few else given),) for given in rows])


def bound_in_many_rounds(x: Any) -> Any:
    a, b = x + 0, x + 1
    for i in range(40):
        if x[i % 5] > 1:
            b = a
    b[0] = 100
    return a.sum()


def read_behind_many_rounds(x: Any) -> Any:
    a, b = x + 0, x + 1
    for i in range(40):
        if x[i % 5] > 1:
            b = a
    a[0] = 100
    return b.sum()


@pytest.mark.parametrize("program", [bound_in_many_rounds, read_behind_many_rounds])
def test_names_of_names_in_many_rounds(program: Any) -> None:
    """Which of the two arrays it is, one number says after any number of rounds."""
    for given in ([1.0, 0.5, -2.0, 3.0, 1.5], [-1.0, 0.5, 0.0, 1.0, -9.0]):
        agree(program, np.array(given), rungs=("graph", "c"))


def one_of_many(x: Any) -> Any:
    rows = [x + i for i in range(70)]
    b = rows[int(x[0])]
    b[0] = 100
    return rows[3].sum()


def test_more_arrays_than_are_followed() -> None:
    """The names are those of the program, not of what stands between them."""
    with pytest.raises(TraceError, match=r"(?s)is not known: b was written to.*\.\.\.\.copy\(\)"):
        fx.symbolic_trace(one_of_many, "f64[5]")


def test_selections_that_nobody_reads_again() -> None:
    def program(x: Any) -> Any:
        a, b = x[x > -1], x[x > -1] + 1
        c, z = a, x[x > 0]
        if x[0] > 0:
            b, c, z = c, b, z * 2
        v = b[1:]
        v[-1], z[0] = 7, 5
        return b.sum() + z.sum()

    agree_on_all(program, [(np.array([first, -2, 3, 1.5, 2]),) for first in (0.5, -0.5)])
