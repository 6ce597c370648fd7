"""float16 and bfloat16: every op of the program rounds its result, as NumPy does, however ops are
put together in kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from fxlite.codegen.program.program import optimize
from fxlite.graph.interpreter import Interpreter
from fxlite.ops.op import REGISTRY
from tests.graphs import sample_program
from tests.oracle import RUNGS, flatten

Array = np.ndarray[Any, Any]


def chains(x: Any, y: Any) -> tuple[Any, ...]:
    """Results that are others without the roundings between."""
    grown = x * 8 + y
    return (
        x * y * x,
        x + 1 - x,
        np.log(np.exp(x)),
        (x * x - x) / (x + 2),
        np.sqrt(x * x + 1) * y,
        np.tanh(x * 3) + x,
        (x * y).sum(-1),
        np.maximum(x * y, 0) * 3 - x,
        grown - x * 8,
        (x * y).mean(-1, keepdims=True) - x,
        np.where(x > y, x * 3, x / 3) * x,
        1 / np.sqrt(np.abs(x) + 1),
        (x @ (y * 3).T) - 1,
        (x - y).max(0) * y,
        ops.softmax(x * 4 - y, -1) * x,
        ops.gelu(x * y) - y,
        np.log2(np.abs(x) + y * y) * x,
    )


def with_numbers(x: Any) -> tuple[Any, ...]:
    """Python numbers take float16 beside it: 0.001 is one of its numbers, and 70000 is infinite."""
    return (x * 1000) * 0.001, x * 0.1 + 0.7, np.clip(x, -0.3, 0.3), x / 3 - x, x * 70000.0 * 0.0


def distance(a: Array, b: Array) -> int:
    """How many numbers of their type lie between two arrays at most; NaN is as far as itself."""
    bits = [np.asarray(v).view(np.int16).astype(int) for v in (a, b)]
    ordered = [np.where(v < 0, -32768 - v, v) for v in bits]
    nans = [np.isnan(np.asarray(v, np.float32)) for v in (a, b)]
    np.testing.assert_array_equal(*nans)
    return int(np.where(nans[0], 0, np.abs(ordered[0] - ordered[1])).max(initial=0))


def check(rung: str, module: Any, inputs: tuple[Array, ...], wanted: Any) -> None:
    for number, (got, want) in enumerate(zip(flatten(RUNGS[rung](module)(inputs)), flatten(wanted), strict=True)):
        assert got.dtype == want.dtype
        if want.dtype.itemsize == 2:
            assert distance(got, want) == 0, (rung, number)


def numbers(dtype: Any, *shape: int) -> Array:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * 2).astype(dtype)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_op_rounds(rung: str) -> None:
    """The same bits as NumPy's."""
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, y = numbers(dtype, 7, 40), numbers(dtype, 7, 40, 1)[..., 0]
        program = chains if dtype is np.float16 else _without_sums
        with np.errstate(all="ignore"):
            wanted = program(x, y)
        check(rung, fx.symbolic_trace(program, x, y), (x, y), wanted)
    x = numbers(np.float16, 300)
    with np.errstate(all="ignore"):
        wanted = with_numbers(x)
    check(rung, fx.symbolic_trace(with_numbers, x), (x,), wanted)


def _without_sums(x: Any, y: Any) -> Any:
    """What ml_dtypes computes itself: its sums go in another order than those of float16."""
    kept = x * y
    return kept * x, np.sqrt(kept * kept + y * y) * y, (kept - x) / (y + y), np.tanh(kept) + x


def test_samples_of_all_ops() -> None:
    """Also inside of an op: at most the last bit of its reference, expanded or not."""
    tried = 0
    for name, op in sorted(REGISTRY.items()):
        for number, sample in enumerate(op.samples):
            arrays = sample.arrays(seed=number)
            if not any(a.dtype in (np.float16, ml_dtypes.bfloat16) for a in arrays):
                continue
            program = sample_program(op, sample)
            with np.errstate(all="ignore"):
                wanted = flatten(program(*arrays))
            module = fx.symbolic_trace(program, *sample.types())
            expanded = passes.decompose(module)
            results = [RUNGS["kernel"](module)(arrays), Interpreter(expanded).run(*arrays)]
            for result in results:
                for got, want in zip(flatten(result), wanted, strict=True):
                    if want.dtype in (np.float16, ml_dtypes.bfloat16):
                        tried += 1
                        assert distance(got, want) <= 1, (name, number)
    assert tried > 150


def test_a_batch_norm_stays_behind_its_layer() -> None:
    """Folded weights would have another rounding than layer and norm."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.conv(x))

    net = Net().eval()
    for module in (net.conv, net.norm):
        for name, value in module.state_dict().items():
            setattr(module, name, np.asarray(value, np.float16))
    optimized, _ = optimize(fx.symbolic_trace(net, "f16[2,3,4,4]"))
    assert len(optimized.graph.find_nodes(op="call_function", target="conv2d")) == 1
    x = numbers(np.float16, 2, 3, 4, 4)
    assert distance(Interpreter(optimized).run(x), net(x)) <= 1
