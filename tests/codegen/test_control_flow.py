"""Loops and conditions as kernels in NumPy and as C: where values lie, what is written over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import CodegenError
from tests.codegen.compiling import c_file
from tests.core.test_control_flow import CASES
from tests.oracle import agree

RNG = np.random.default_rng(0)
RUNGS = ("graph", "python", "kernel", "c")


def loop_in(text: str) -> str:
    """The function of the only loop of a program."""
    (loop,) = (part for part in text.split("\n\n") if "a loop that gives" in part)
    return loop


def loop_of(program: Callable[..., Any], *types: str) -> str:
    """That of a program whose loops are kept."""
    return loop_in(c_file(program, *types, loops="keep"))


@pytest.mark.parametrize("case", CASES)
def test_what_a_graph_does_c_does(case: str) -> None:
    program, types, inputs = CASES[case]
    agree(program, *inputs, types=types, rungs=("kernel", "c"))
    agree(program, *inputs, rungs=("kernel", "c"))


def bubbles(x: Any) -> Any:
    def outer(i: Any, x: Any) -> Any:
        def inner(j: Any, x: Any) -> Any:
            def swapped() -> Any:
                y = x.copy()
                last = y[j]
                y[j] = y[j + 1]
                y[j + 1] = last
                return y

            return fx.cond(x[j] > x[j + 1], swapped, lambda: x)

        return fx.fori_loop(0, x.shape[0] - 1 - i, inner, x)

    return fx.fori_loop(0, x.shape[0], outer, x)


def stencil(x: Any, n: Any) -> Any:
    """Places that take turns, an odd number of times, inside of a loop whose places do."""

    def outer(i: Any, x: Any) -> Any:
        def inner(j: Any, x: Any) -> Any:
            return np.concatenate([x[1:], x[:1]]) * 0.5 + x[0] + j

        return fx.fori_loop(0, i + 1, inner, x) - x[::-1]

    return fx.fori_loop(0, n, outer, x)


def nussinov(seq: Any) -> Any:
    n = seq.shape[0]
    zero = np.int32(0)

    def outer(k: Any, table: Any) -> Any:
        i = n - 1 - k

        def inner(j: Any, table: Any) -> Any:
            left = fx.cond(j - 1 >= 0, lambda: table[i, j - 1], lambda: zero)
            table[i, j] = np.maximum(table[i, j], left)
            below = fx.cond(i + 1 < n, lambda: table[i + 1, j], lambda: zero)
            table[i, j] = np.maximum(table[i, j], below)

            def paired() -> Any:
                match = fx.cond(i < j - 1, lambda: (seq[i] + seq[j] == 3).astype(np.int32), lambda: zero)
                return np.maximum(table[i, j], table[i + 1, j - 1] + match)

            table[i, j] = fx.cond((j - 1 >= 0) & (i + 1 < n), paired, lambda: table[i, j])

            def split(at: Any, table: Any) -> Any:
                table[i, j] = np.maximum(table[i, j], table[i, at] + table[at + 1, j])
                return table

            return fx.fori_loop(i + 1, j, split, table)

        return fx.fori_loop(i + 1, n, inner, table)

    return fx.fori_loop(0, n, outer, np.zeros((n, n), np.int32))


def crc16(data: Any) -> Any:
    def outer(k: Any, crc: Any) -> Any:
        def bit(j: Any, state: Any) -> Any:
            crc, byte = state
            odd = ((crc & 1) ^ (byte & 1)) > 0
            return fx.cond(odd, lambda: (crc >> 1) ^ 0x8408, lambda: crc >> 1), byte >> 1

        return fx.fori_loop(0, 8, bit, (crc, 0xFF & data[k]))[0]

    return fx.fori_loop(0, data.shape[0], outer, np.int64(0xFFFF))


def relaxed(p: Any, tol: Any) -> Any:
    """A loop that ends at a tolerance, as channel_flow's."""

    def step(p: Any, steps: Any, change: Any) -> Any:
        new = p.copy()
        new[1:-1] = (p[:-2] + p[2:]) / 2
        return new, steps + 1, np.abs(new - p).max()

    return fx.while_loop(lambda p, n, d: (d > tol) & (n < 100), step, (p, 0, 1.0))


def rows(x: Any, n: Any) -> Any:
    """Rows and parts of rows of what a loop carries; numbers from both ends."""

    def body(i: Any, val: Any) -> Any:
        out, last = val
        out[i] = x * i
        out[i, 1:3] += last
        out[-1 - i, ::2] = out[i, :1]
        out[0, i] -= 1
        return out, out[i].sum()

    return fx.fori_loop(0, n, body, (np.ones((4, 4)), 0.0))


def mandelbrot(c: Any, most: Any) -> Any:
    def point(k: Any, counts: Any) -> Any:
        re, im = c[k, 0], c[k, 1]

        def step(x: Any, y: Any, n: Any) -> Any:
            return x * x - y * y + re, 2 * x * y + im, n + 1

        def inside(x: Any, y: Any, n: Any) -> Any:
            return (x * x + y * y < 4) & (n < most)

        counts[k] = fx.while_loop(inside, step, (0.0, 0.0, 0))[2]
        return counts

    return fx.fori_loop(0, c.shape[0], point, np.zeros(c.shape[0], np.int64))


def spmv(starts: Any, columns: Any, values: Any, x: Any) -> Any:
    def row(i: Any, y: Any) -> Any:
        def term(k: Any, total: Any) -> Any:
            return total + values[k] * x[columns[k]]

        y[i] = fx.fori_loop(starts[i], starts[i + 1], term, 0.0)
        return y

    return fx.fori_loop(0, starts.shape[0] - 1, row, np.zeros(starts.shape[0] - 1))


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "bubbles": (bubbles, ("f64[N]",), RNG.standard_normal(7)),
    "stencil": (stencil, ("f64[N]", "i64[]"), RNG.standard_normal(5), np.int64(4)),
    "nussinov": (nussinov, ("i32[N]",), RNG.integers(0, 4, 11).astype(np.int32)),
    "crc16": (crc16, ("i64[N]",), RNG.integers(0, 256, 20)),
    "relaxed": (relaxed, ("f64[N]", "f64[]"), RNG.standard_normal(9), np.float64(1e-3)),
    "rows": (rows, ("f64[4]", "i64[]"), RNG.standard_normal(4), np.int64(4)),
    "mandelbrot": (mandelbrot, ("f64[N,2]", "i64[]"), RNG.standard_normal((9, 2)), np.int64(30)),
    "spmv": (
        spmv,
        ("i64[R]", "i64[K]", "f64[K]", "f64[N]"),
        np.array([0, 2, 2, 5]),
        np.array([0, 3, 1, 2, 3]),
        RNG.standard_normal(5),
        RNG.standard_normal(4),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("named", [True, False])
def test_programs(name: str, named: bool) -> None:
    program, types, *inputs = PROGRAMS[name]
    agree(program, *inputs, types=types if named else None, rungs=RUNGS)


def test_a_loop_reads_as_written_by_hand() -> None:
    text = c_file(bubbles, "f64[9]")
    start = text.index("static void k0_fori_loop")
    assert text[start : text.index("\n}", start)].splitlines()[1:] == [
        "    fx_copy(getitem, x, 72);",
        "    double *x_1 = getitem;",
        "    for (int64_t i = 0; i < 9; ++i) {",
        "        const int64_t sub = 8 - i;",
        "        double *x_2 = x_1;",
        "        for (int64_t j = 0; j < sub; ++j) {",
        "            const bool gt = x_2[j] > x_2[j + 1];",
        "            if (gt) {",
        "                const double take_2 = x_2[j];",
        "                x_2[j] = x_2[j + 1];",
        "                x_2[j + 1] = take_2;",
        "            }",
        "        }",
        "    }",
    ]


@pytest.mark.parametrize("name", ["nussinov", "rows", "mandelbrot", "spmv"])
def test_no_iteration_copies_an_array(name: str) -> None:
    program, types, *_ = PROGRAMS[name]
    text = c_file(program, *types)
    loop = text[text.index("fori_loop") :]
    loop = loop[loop.index("    for (") : loop.index("\n}\n")]
    assert "fx_copy" not in loop
    assert "scratch" not in loop


def diffused(x: Any) -> Any:
    """Errors of rounding go to the neighbours, as by Floyd and Steinberg: an element is read before and after it is
    written."""
    x = x.copy()
    for i in range(x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            old = x[i, j]
            x[i, j] = np.where(old > 0.5, 1.0, 0.0)
            error = old - x[i, j]
            x[i, j + 1] += error * 0.5
            x[i + 1, j - 1] += error * 0.25
            x[i + 1, j] += error * 0.25
    return x


def test_the_element_that_was_there_is_kept_not_its_column() -> None:
    x = RNG.random((7, 8))
    agree(diffused, x, types=["f64[N,M]"], rungs=RUNGS, loops="keep")
    agree(diffused, x, rungs=RUNGS, loops="keep")
    loop = loop_of(diffused, "f64[N,M]")
    assert loop.count("for (") == 2  # those of the program
    assert "scratch" not in loop


def bisected(x: Any, wanted: Any) -> Any:
    places = np.zeros(len(wanted), np.int64)
    for i in range(len(wanted)):
        low, high = 0, len(x)
        while low < high:
            middle = (low + high) // 2
            if x[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        places[i] = low
    return places


def test_an_element_that_several_numbers_depend_on_is_read_once() -> None:
    given = np.sort(RNG.random(9)), RNG.random(12)
    agree(bisected, *given, types=["f64[N]", "f64[M]"], rungs=RUNGS, loops="keep")
    loop = loop_of(bisected, "f64[N]", "f64[M]")
    assert loop.count("fx_index(") == 1 and len(re.findall(r"\bx\[", loop)) == 1


def test_an_index_out_of_range_ends_a_loop() -> None:
    def program(x: Any) -> Any:
        return fx.while_loop(lambda i, s: s < 10, lambda i, s: (i + 1, s + x[i]), (0, 0.0))

    fn = fx.compile(fx.symbolic_trace(program, "f64[N]"), backend="c")
    assert fn(np.array([5.0, 5.0]))[0] == 2
    with pytest.raises(IndexError, match="index 2 is out of bounds for size 2"):
        fn(np.array([1.0, 1.0]))


@pytest.mark.parametrize("backend", ["cuda"])
def test_other_back_ends_say_so(backend: str) -> None:
    with pytest.raises(CodegenError, match=r"node fori_loop(?s:.*)has no loops and conditions"):
        fx.compile(fx.symbolic_trace(bubbles, "f64[N]"), backend=backend, device="shim")


def _routines(a: Any, b: Any, x: Any) -> Any:
    total, ordered, places = np.zeros_like(b), np.zeros_like(x), np.zeros(len(x), np.int64)
    for i in range(3):
        shifted = a + i * np.eye(len(a))
        total = total + np.linalg.solve(shifted, b) + np.linalg.slogdet(shifted)[1]
        if total[0, 0] > -99:
            ordered = ordered + np.sort(x * (i - 1))
            places = places + np.argsort(ordered) + np.searchsorted(np.sort(x), x)
        total = total + np.linalg.cholesky(np.stack([a @ a.conj().T + np.eye(len(a))] * 2))[1, :, :1]
    return total, ordered, places


def _factors(a: Any, b: Any, x: Any) -> Any:
    found = x[0]
    while found < 99:
        found = found + 50 + abs(np.linalg.qr(a)[1]).sum() + np.linalg.svdvals(b).sum()
        found = found + np.linalg.eigvalsh(a @ a.T * found).max()
    return found


@pytest.mark.parametrize("kind", ["f8", "c16"])
@pytest.mark.parametrize("named", [True, False])
def test_loops_call_routines(kind: str, named: bool) -> None:
    """What C has a routine for it computes by it in a loop, too, of any size; and there alone some
    ops can be computed."""
    rng = np.random.default_rng(3)
    a, b, x = rng.normal(size=(9, 9)), rng.normal(size=(9, 2)), rng.normal(size=7)
    given = [(a + 1j * a.T).astype(kind) if kind == "c16" else a, b.astype(kind), x]
    letter = "c128" if kind == "c16" else "f64"
    types = [f"{letter}[N,N]", f"{letter}[N,K]", "f64[M]"]
    agree(_routines, *given, types=types if named else None, rungs=("graph", "python", "c"), loops="keep")
    if not named:
        agree(_routines, *given, rungs=("kernel",), loops="keep")
    if kind == "f8":
        agree(_factors, *given, types=types if named else None, rungs=("graph", "python", "c"), loops="keep")


def test_a_routine_that_fails_in_a_loop_says_where() -> None:
    def program(a: Any) -> Any:
        total = a
        for i in range(3):
            total = total + np.linalg.solve(a * (2 - i), a)
        return total

    function = fx.compile(fx.symbolic_trace(program, "f64[4,4]", loops="keep"), backend="c")
    text = next(text for name, text in function.sources.items() if name.endswith(".c"))
    assert text.count("solve_double(") == 1
    with pytest.raises(np.linalg.LinAlgError, match=r"singular.*solve"):
        function(np.eye(4))


def _cells(x: Any, inner: Any, outer: Any, bias: Any, scale: Any) -> Any:
    """A recurrent layer, a matrix with its transpose, and numbers of the loop in what is done to the sums."""
    state, gram = np.zeros((x.shape[1], inner.shape[0])), np.zeros((x.shape[1], x.shape[1]))
    for t in range(len(x)):
        state = np.tanh(x[t] @ outer + state @ inner * scale + bias)
        gram = gram + state @ state.T * t
        scale = scale * 0.5
    return state, gram


@pytest.mark.parametrize("sizes", [(5, 9, 17, 33), (3, 1, 12, 16), (2, 40, 3, 70)])
@pytest.mark.parametrize("named", [True, False])
def test_loops_call_products(sizes: tuple[int, ...], named: bool) -> None:
    steps, rows, columns, hidden = sizes
    rng = np.random.default_rng(5)
    shapes = [(steps, rows, columns), (hidden, hidden), (columns, hidden), (hidden,)]
    given = [*(rng.normal(0, 0.3, shape) for shape in shapes), np.float64(0.7)]
    types = ["f64[T,R,C]", "f64[H,H]", "f64[C,H]", "f64[H]", "f64[]"] if named and rows > 1 else None
    agree(_cells, *given, types=types, rungs=("graph", "kernel", "c"), loops="keep")


def test_a_product_in_a_loop_is_that_of_a_template() -> None:
    text = c_file(_cells, "f64[5,32,48]", "f64[64,64]", "f64[48,64]", "f64[64]", "f64[]", loops="keep")
    loop = loop_in(text)
    assert loop.count("matmul") and "lanes" not in loop
    assert len(set(re.findall(r"multiply_\w+(?=\()", text))) >= 1


def _element_carried(x: Any) -> Any:
    """The only element of an array that a loop computes from scratch is a number that the loop carries, too."""
    first, rounds = x[0], 0
    while rounds < 5 and first < 3:
        x = np.array([first * 2]) + x
        first = x[0]
        rounds += 1
    return x, first, rounds


def _element_read_before_it_is_written(x: Any) -> Any:
    """It is also read by several kernels, in a branch that writes it."""
    value, rounds = np.zeros((1, 1)), 0
    while rounds < 6:
        change = 0.0
        if x[0] != 7:
            before = value[0, 0]
            value[0, 0] = 0.5 * before - 1
            change = abs(before - value[0, 0])
        rounds += 1 + int(change > 0.6)
    return value, rounds


@pytest.mark.parametrize("program", [_element_carried, _element_read_before_it_is_written])
@pytest.mark.parametrize("x", [np.array([1]), np.array([0.1]), np.array([7], np.uint8)])
def test_the_element_of_an_array_of_one_is_a_number(program: Callable[..., Any], x: Any) -> None:
    agree(program, x, rungs=RUNGS)
