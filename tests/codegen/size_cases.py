"""Programs whose values grow with named sizes, and sizes at which 64-bit integers wrap.

In: a program of :data:`PROGRAMS` and sizes. Out: inputs without elements, which NumPy makes at any
size, and :func:`judge`, which says whether what a rung did with them may stand: the shape that
exact arithmetic gives and zeros in it, or an error of the documented form. Every axis is read
through a sum over an axis of no elements, so that large values need no large inputs.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import MemoryLimitError, ShapeError
from fxlite.codegen.program.calls import run_hollow
from fxlite.codegen.runtime.abi import HollowCall
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.graph.graph_module import GraphModule

F = fx.ops
T32 = 2**32
LIMIT = 2**28
"""The memory limit of the runs: what is larger is refused, so that nothing large is allocated."""

#: Programs of x: u8[B,0] and y: u8[M,0]; ``v`` and ``w`` are f32[B] and f32[M], all zeros.
PROGRAMS: dict[str, Any] = {
    "product": lambda v, w: (v[:, None] @ w[None, :]).reshape(-1),
    "fused product": lambda v, w: np.tanh(v[:, None] @ w[None, :]).reshape(-1),
    "outer": lambda v, w: np.outer(v, w),
    "summed outer": lambda v, w: (v[:, None] * w).sum(),
    "rows of an outer": lambda v, w: (v[:, None] * w).sum(1),
    "cumsum": lambda v, w: np.cumsum(v[:, None] + w, 1).reshape(-1),
    "softmax": lambda v, w: F.softmax(v[:, None] + w, 1) * 0,
    "three": lambda v, w: (v[:, None, None] + w[:, None] + v).reshape(-1, v.shape[0]),
    "tile": lambda v, w: np.tile(v, T32),
    "tile both": lambda v, w: np.tile(v[:, None] * w, (2, T32)),
    "repeat": lambda v, w: np.repeat(v, T32),
    "repeat rows": lambda v, w: np.repeat(v[:, None] + w, T32, axis=0),
    "broadcast": lambda v, w: np.broadcast_to(v, (T32, v.shape[0])) + 1 - 1,
    "full": lambda v, w: F.full((v.shape[0], w.shape[0]), 0.0) + v[:, None],
    "pad": lambda v, w: np.pad(v, 2**62),
    "pad a little": lambda v, w: np.pad(v, (1, T32)),
    "concat": lambda v, w: np.concatenate([v, w, v]),
    "concat outer": lambda v, w: np.concatenate([(v[:, None] * w).reshape(-1), w]),
    "stack": lambda v, w: np.stack([v, v, v], axis=1).reshape(-1),
    "einsum": lambda v, w: np.einsum("i,j,k->ijk", v, w, v),
    "attention": lambda v, w: F.scaled_dot_product_attention(
        *(t[None, :, None] * np.zeros(8, np.float32) for t in (v, w, w))
    ),
    "convolution": lambda v, w: F.conv1d(v[None, None, :], np.ones((4, 1, 3), np.float32), padding=2**31),
    "pooling": lambda v, w: F.max_pool1d((v[:, None] * w)[None], 1),
    "where": lambda v, w: np.where(v[:, None] > w, v[:, None], w),
    "slices": lambda v, w: (v[:, None] * w)[::2, ::3].reshape(-1),
    "argmax": lambda v, w: (np.argmax(np.pad(v[:, None] * w, 1), 1) * 0).astype(np.float32),
    "transposed": lambda v, w: (v[:, None] * w).T.reshape(-1),
    "halves": lambda v, w: np.split((v[:, None] * w).reshape(-1), [2**31, 2**33])[1],
    "rolled": lambda v, w: np.roll(v[:, None] * w, 2**31, axis=1),
    "picked": lambda v, w: (v[:, None] * w)[:, ::-1][:2, :3],
    "taken": lambda v, w: np.take(np.pad(v[:, None] * w, 1), np.zeros(T32 // 2**30, np.int64), 0),
    "centred": lambda v, w: v[:, None] * w - np.mean(np.pad(v[:, None] * w, 1), 1, keepdims=True)[1:-1],
    "triangle": lambda v, w: np.triu(v[:, None] * w),
    "wide": lambda v, w: (v[:, None] * w).astype(np.float64).reshape(-1) * 2,
    "bytes": lambda v, w: (v[:, None] > w).reshape(-1).astype(np.float32) * 0,
    "batched": lambda v, w: (v[:, None, None] + np.zeros((4, 8), np.float32)) @ np.zeros((8, 4), np.float32),
    "linear": lambda v, w: ((v[:, None] * np.zeros(8, np.float32)) @ np.zeros((8, 16), np.float32) + 0).reshape(-1),
}

SIZES = (0, 1, 3, 2**31 - 1, 2**31, 2**31 + 5, T32, 2**33 + 1, 2**40, 2**53 + 1, 2**62, 2**63 - 1)
TYPES = {"x": "u8[B,0]", "y": "u8[M,0]"}


def program(name: str) -> Any:
    """A program of two inputs without elements."""
    body = PROGRAMS[name]

    def run(x: Any, y: Any) -> Any:
        return body(*(np.sum(t, axis=1, dtype=np.float32) for t in (x, y)))

    return run


def pairs() -> Iterator[tuple[int, int]]:
    """Sizes of B and M."""
    yield from itertools.product(SIZES, SIZES)


def inputs(sizes: tuple[int, int]) -> list[np.ndarray]:
    """Arrays without elements."""
    return [np.zeros((size, 0), np.uint8) for size in sizes]


def judge(module: GraphModule, call: Any, sizes: tuple[int, int], is_numpy: bool = False) -> str:
    """What ``call`` did with inputs of these sizes: "result", or the name of the error. Raises
    AssertionError for a wrong shape or value, and for an error that says nothing."""
    dims = dict(zip("BM", sizes))
    exact = module.graph.output_node().args[0].type.substitute(dims).shape
    try:
        result = call(*inputs(sizes))
    except MemoryLimitError as error:
        assert "bytes" in str(error) and "; call it " in str(error), str(error)
        return "MemoryLimitError"
    except ShapeError as error:
        assert "would have the shape" in str(error), str(error)
        return "ShapeError"
    except MemoryError:  # NumPy's own
        assert is_numpy, "nothing may be allocated that cannot be had"
        return "MemoryError"
    except ValueError as error:
        assert any(t in str(error) for t in ("too big", "dimension", "is required by")), str(error)
        return "ValueError"
    assert result.shape == exact, (result.shape, exact)
    assert result.nbytes <= LIMIT and not np.any(result)
    return "result"


def rungs(module: GraphModule) -> Iterator[tuple[str, Any]]:
    """The ways to run a program that allocate no more than :data:`LIMIT`, by name."""
    made = fx.compile(module, memory_limit=LIMIT, threads=2)
    yield "c", made
    entry, library, weights = made.function.entry, made.function.library, made.program.weights
    direct = CompiledFunction(entry, library, weights, 2, use_extension=False, memory_limit=LIMIT)

    def by_ctypes(*arrays: Any) -> Any:
        try:
            return direct(*arrays)
        except HollowCall as call:
            return run_hollow(module, call)

    yield "ctypes", by_ctypes
    yield "cuda", fx.compile(module, backend="cuda", device="shim", memory_limit=LIMIT)


def main() -> None:
    """``python -m tests.codegen.size_cases [PROGRAM...]``: every program at every pair of sizes on
    every rung; prints what came out."""
    total: Counter[str] = Counter()
    for name in sys.argv[1:] or PROGRAMS:
        module = fx.symbolic_trace(program(name), **TYPES)
        for rung, call in rungs(module):
            seen = Counter(judge(module, call, sizes) for sizes in pairs())
            print(f"{name}, {rung}: {', '.join(f'{n} {k}' for k, n in seen.items())}", flush=True)
            total += seen
    print(f"{total.total()} calls: {dict(total)}")


if __name__ == "__main__":
    main()
