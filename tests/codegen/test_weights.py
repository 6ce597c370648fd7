"""The weights blob: what it holds, that it is the only copy, and what the cache of builds makes of
other weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.c.conv import conv_plan
from fxlite.codegen.c.conv.conv_plan import packed_conv_size
from fxlite.codegen.c.product.gemm_spec import pack_b
from fxlite.codegen.c.weights import Blob, Packed, PackedWeight, make_blob, module_arrays
from fxlite.codegen.kernel.names import weight_name
from fxlite.scalar.index import Index
from tests.oracle import compare

Array = np.ndarray[Any, Any]


def array(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


class Dense(nn.Module):
    """``x @ weight``, the weight as it is given."""

    def __init__(self, weight: Array) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Any) -> Any:
        return x @ self.weight


def content(blob: Blob, name: str, count: int) -> list[float]:
    start, ctype = blob.places[name]
    assert start % 64 == 0 and ctype == "float"
    return blob.data[start : start + 4 * count].view(np.float32).tolist()


def test_each_array_lies_in_the_blob_once() -> None:
    def pack(memory: Array, array: Array) -> None:
        memory[:] = array[::-1]

    arrays = module_arrays(fx.symbolic_trace(Dense(array(2, 3)), x="f32[4,2]"))
    packed: Packed = {"a_packed": PackedWeight(("a",), np.dtype(np.float32), 3, pack, np.array([9, 8, 7]))}
    weight = weight_name("weight")
    blob = make_blob(["x", weight, "a_packed", weight, "error"], packed, arrays)
    assert list(blob.places) == [weight, "a_packed"]
    assert blob.data.size == 128 and blob.data.ctypes.data % 64 == 0
    assert content(blob, weight, 16) == [*array(2, 3).ravel().tolist(), *[0] * 10]
    assert content(blob, "a_packed", 16) == [7, 8, 9, *[0] * 13]


def test_the_function_reads_the_blob_itself() -> None:
    function = fx.compile(Dense(array(4, 5)), x="f32[2,4]")
    function.program.weights[:] = 0
    assert not function(array(2, 4)).any(), "the blob was copied"


def test_weights_that_change_later_are_not_those_that_were_compiled() -> None:
    model = Dense(array(4, 5))
    function, x = fx.compile(model, x="f32[2,4]"), array(2, 4)
    before = model(x)
    model.weight[...] = 0
    compare("c", function(x), before)


@pytest.mark.parametrize("depth, n", [(3, 70), (1, 32), (5, 31), (0, 40), (4, 0)])
@pytest.mark.parametrize("transposed", [False, True])
def test_packing_into_given_memory(depth: int, n: int, transposed: bool) -> None:
    b = array(n, depth).T if transposed else array(depth, n)
    panels = np.zeros((depth, -(-n // 32) * 32), np.float32)
    panels[:, :n] = b
    expected = panels.reshape(depth, -1, 32).swapaxes(0, 1).ravel() if b.size else np.zeros(0)
    memory = np.full(-(-n // 32) * 32 * depth, np.nan, np.float32)
    pack_b(b, memory)
    assert memory.tolist() == expected.tolist() == pack_b(b).tolist()


@pytest.mark.parametrize(
    "k, c, size, groups, image",
    [(70, 40, 3, 1, 20), (64, 64, 1, 1, 16), (64, 64, 1, 1, 7), (8, 3, 7, 1, 30), (6, 6, 3, 6, 9), (80, 64, 3, 2, 9)],
)
def test_the_size_of_packed_weights_of_convolutions(k: int, c: int, size: int, groups: int, image: int) -> None:
    spec = conv_plan.ConvSpec(
        "f",
        "float",
        "",
        Index.of(1),
        c,
        Index.of(image),
        Index.of(image),
        k,
        size,
        size,
        "x",
        "w",
        lambda *_: "",
        padding=(size // 2,) * 4,
        groups=groups,
    )
    weight = array(k, c // groups, size, size)
    memory = np.full(packed_conv_size(spec), np.nan, np.float32)
    conv_plan.pack_conv_weight(weight, spec, memory)
    assert np.isfinite(memory).all()
    assert memory.tolist() == conv_plan.pack_conv_weight(weight, spec).tolist()


@pytest.mark.parametrize(
    "weight",
    [array(40, 12).T, np.asfortranarray(array(12, 40)), array(24, 80)[::2, ::2], array(12, 1)],
    ids=["transposed", "columns first", "every other", "one column"],
)
def test_weights_in_any_order(weight: Array) -> None:
    model, x = Dense(weight), array(3, 12)
    compare("c", fx.compile(model, x)(x), model(x))


def test_a_weight_read_through_a_view() -> None:
    class Viewed(Dense):
        def forward(self, x: Any) -> Any:
            return x @ self.weight[3:, 1::2].T + x @ self.weight[:2:-1, 1::2].T

    model, x = Viewed(array(13, 80)), array(3, 40)
    function = fx.compile(model, x, optimize=False)
    assert any("weight_packed" in c.arguments for c in function.program.calls)
    compare("c", function(x), model(x))


_PROGRAM = """\
import json, sys
import numpy as np
import fxlite as fx
from tests.codegen.test_weights import Dense

scale, precision = float(sys.argv[1]), sys.argv[2]
weight = np.full((4, 40), scale, np.float32)
function = fx.compile(Dense(weight), x="f32[2,4]", matmul_precision=precision)
result = function(np.ones((2, 4), np.float32))
print(json.dumps([str(function.function.library.path), float(result.min()), float(result.max())]))
"""


def test_processes_share_code_and_never_weights(tmp_path: Path) -> None:
    """A cached build is found for the same program with other weights, and only for that."""
    environment = {**os.environ, "FXLITE_CACHE": str(tmp_path)}

    def run(scale: float, precision: str = "highest") -> list[Any]:
        command = [sys.executable, "-c", _PROGRAM, str(scale), precision]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return list(json.loads(done.stdout))

    first, other, medium = run(1.0), run(2.5), run(1.0, "medium")
    assert first[1:] == [4, 4] and other[1:] == [10, 10] and medium[1:] == [4, 4]
    assert first[0] == other[0] != medium[0]
    assert Path(first[0]).is_relative_to(tmp_path)
