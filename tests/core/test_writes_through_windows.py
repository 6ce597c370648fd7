"""Writes through slices of a known number of elements that start at a computed number (windows): augmented
assignments, views of them, out=, and functions that change their argument; in loops that stay loops, and outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.oracle import agree

RNG = np.random.default_rng(5)


def operators(z: Any, v: Any) -> Any:
    w = v[:5] * 2
    for i in range(1, len(z) - 3):
        z[i : i + 2] += v[i]
        z[i - 1 : i + 2] -= w[:3]
        z[i : i + 3] **= 2
        z[i : i + 3] /= 1 + z[i]
    return z


def views(z: Any, v: Any) -> Any:
    for i in range(len(z) - 4):
        z[i : i + 2][0] = v[i]
        z[i : i + 2][::-1] = v[i : i + 2]
        z[i : i + 4].reshape(2, 2)[0] += v[i]
        z[::2][i // 2] -= 1
        t = z[i : i + 2]
        z[i] = 7
        z[i + 1] += t[0] * t[1]
        t += v[i]
        z[i : i + 2] += t
        for j in range(3):
            z[i : i + 3][j] += v[j]
    return z


def functions(z: Any, v: Any) -> Any:
    def bump(t: Any, w: Any) -> None:
        t += w
        t[0] = w

    for i in range(2, len(z) - 3):
        np.add(z[i : i + 2], v[i], out=z[i : i + 2])
        np.copyto(z[i : i + 3], v[i - 1 : i + 2])
        np.add.at(z[i : i + 3], [0, 2, 2], v[i])
        z[i : i + 3][z[i : i + 3] > 0.5] = v[i]
        z[i : i + 3][[0, 2]] += v[i]
        z[i - 1 : i + 1].sort()
        bump(z[i : i + 2], v[i])
        for r in (z[i : i + 2], z[i - 2 : i]):
            r *= v[i]
    return z


def of_a_slice(z: Any, v: Any) -> Any:
    t, u = z[2:], z[::2]
    for i in range(1, len(u) - 2):
        t[i : i + 2] += v[i]
        t[:i] -= 1
        u[i : i + 2] *= 0.5
        if v[i] > 0:
            z[i : i + 2] += v[i]
            z[i : i + 3][1] = 0
    return z


def of_two_axes(z: Any, v: Any) -> Any:
    y = np.outer(v, v) + z[:, None]
    for i in range(1, len(z) - 2):
        y[i : i + 2, 1] *= v[i]
        y[i : i + 2, -1] += v[i]
        y[i - 1 : i + 1][:, 1:3] *= 2
        y[i - 1 : i + 1, ::2] -= 2
        y[i : i + 2] -= y[i - 1 : i + 1].mean(axis=0)
        for j in range(1, 4):
            y[i : i + 2, j] += v[i]
            y[i : i + 2, j : j + 2] += v[j]
            y[i : i + 2, j - 1 : j + 2] = y[i : i + 2, j : j + 3] * 0.5
    return y


def of_three_axes(z: Any, v: Any) -> Any:
    y = np.zeros((len(z), 2, 6)) + z[:, None, None]
    for i in range(len(z) - 2):
        for j in range(1, 4):
            y[i : i + 2, :, j] += v[i]
            y[i : i + 2, 0, j] *= v[i]
            y[i, 1, j : j + 2] *= v[i]
            y[i, :, j : j + 2] -= v[i]
            y[1, :, j : j + 2][0] -= v[i]
            y[i, 1:, j : j + 2] *= 1.5
            y[..., j : j + 2] *= 0.5
    return y


def of_a_column(z: Any, v: Any) -> Any:
    y = np.outer(v, v) + z[:, None]
    for j in range(1, 5):
        c = y[:, j]
        for i in range(len(z) - 2):
            c[i : i + 2] += v[i]
            c[i] -= 1
    return y


def turned(z: Any, v: Any) -> Any:
    y = np.outer(v, v) + z[:, None]
    t, w = y.T, y.reshape(12, 3, 4)
    for i in range(1, 10):
        t[i] += v
        t[i, 1:] = v[1:] * t[i, :-1]
        t[i : i + 2] = 1 + t[i - 1 : i + 1]
        y.T[:, i : i + 2] += 1
        y.T[2:4, i : i + 2] -= v[2:4, None]
        w.transpose(2, 0, 1)[1, i] *= v[:3]
        w.transpose(1, 2, 0)[1, :, i : i + 2] -= v[i]
        w.transpose(1, 2, 0)[:, i % 4, 1:3] += v[:3, None]
        w.swapaxes(0, 2)[1:3][:, 1, i] = 7
        w.transpose(2, 0, 1)[1:, ::3][:, i // 4] -= np.arange(9.0).reshape(3, 3)
    return y


def of_steps(z: Any, v: Any) -> Any:
    y = np.outer(v, v) + z[:, None]
    odd, t = z[1::2], y[1:, ::2]
    for i in range(4):
        z[::2][i] = v[i]
        z[::2][i : i + 2] *= v[i]
        odd[i] += 1
        z[3:][1:][i : i + 2][1] -= v[i]
        t[i] += v[:6]
        t[i, i : i + 2] *= 0.5
        t[:, 1:][i : i + 3, i + 1] -= 1
        t.T[i, ::2][i] = 3
    return y, t


def in_a_while_loop(z: Any, v: Any) -> Any:
    k = 0
    while k < len(z) - 2 and v[k] < 100:
        z[k : k + 2] += v[k]
        k += 1
    return z


def without_a_loop(z: Any, v: Any) -> Any:
    k = np.argmax(v[:4])
    z[k : k + 3] += v[k]
    z[k : k + 3] *= v[:3]
    z[k : k + 3][1] = 0
    return z


PROGRAMS = [
    *(operators, views, functions, of_a_slice, of_two_axes, of_three_axes, of_a_column, turned, of_steps),
    *(in_a_while_loop, without_a_loop),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_numpy(program: Any) -> None:
    agree(program, RNG.uniform(0.1, 1, 12), RNG.uniform(-1, 1, 12), loops="keep")


@pytest.mark.parametrize("program", [of_a_column, of_three_axes, in_a_while_loop, without_a_loop])
def test_of_named_sizes(program: Any) -> None:
    agree(program, RNG.uniform(0.1, 1, 12), RNG.uniform(-1, 1, 12), types=["f64[N]", "f64[N]"])


def test_an_element_of_a_transposed_array_or_of_a_slice_is_written_in_the_array() -> None:
    """The whole transposed array, or the slice, would be computed in each round."""

    def program(y: Any, z: Any) -> Any:
        for i in range(len(z) - 1):
            y.T[i] += z
            y[1:, ::2][i, i] = 1
        return y

    module = fx.symbolic_trace(program, "f64[30,60]", "f64[30]", loops="keep")
    (loop,) = (n for n in module.graph.find_nodes(op="call_function") if n.target.name == "fori_loop")
    writes = [n for n in loop.kwargs["body_fn"].nodes if n.op == "call_function" and n.target.writes_part]
    assert {(n.target.name, str(n.type)) for n in writes} == {("index_update", "f64[30,60]")}


def test_a_window_is_written_once_and_nothing_else_is() -> None:
    """What is written has the size of the window, also beside numbers on other axes."""

    def program(y: Any, v: Any) -> Any:
        for i in range(len(y) - 2):
            y[i : i + 2, 3] += v[i]
        return y

    module = fx.symbolic_trace(program, "f64[N,M]", "f64[N]")
    (loop,) = (n for n in module.graph.find_nodes(op="call_function") if n.target.name == "fori_loop")
    body = loop.kwargs["body_fn"].nodes
    (scatter,) = (n for n in body if n.op == "call_function" and n.target.kind == "scatter")
    assert [str(n.type) for n in scatter.all_input_nodes[1:]] == ["i64[2]", "f64[2]"]
    assert not any(n.op == "call_function" and n.target.writes_part for n in body)
