"""Facts and guards of named dims in generated code: Python source, C, its bundle, CUDA."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.python.source import python_source
from fxlite.codegen.runtime.abi import ArgSpec, Condition, DimText, Entry, bind_arguments
from fxlite.codegen.runtime.load import CompiledFunction
from tests.oracle import agree

B, T = fx.dims("B T", min={"B": 1}, max=256, multiple_of={"T": 8})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        assert x.shape[1] <= 64
        if x.shape[0] == 5:
            raise ValueError("not five")
        return np.exp(self.fc(x))[:, : x.shape[1] // 2].reshape(x.shape[0], -1, 4)


X = fx.float32[B, T, 4]
BAD = [
    ((2, 72, 4), "T <= 64 is required by test_dim_conditions.py"),
    ((5, 8, 4), "B != 5 is required by test_dim_conditions.py"),
    ((2, 12, 4), "T % 8 == 0 is required"),
    ((0, 8, 4), "B >= 1 is required"),
    ((257, 8, 4), "B <= 256 is required"),
]


@pytest.fixture(scope="module")
def compiled() -> Any:
    return fx.compile(Net(), x=X, backend="c")


@pytest.mark.parametrize("sizes", [(1, 8), (3, 64), (2, 0), (256, 16)])
def test_rungs_agree(sizes: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((*sizes, 4)).astype(np.float32)
    agree(Net(), x, types=[X])


@pytest.mark.parametrize(("shape", "message"), BAD)
def test_compiled_c_refuses(compiled: Any, shape: tuple[int, ...], message: str) -> None:
    x = np.zeros(shape, np.float32)
    by_ctypes = CompiledFunction(
        compiled.program.entry, compiled.function.library, compiled.program.weights, use_extension=False
    )
    assert by_ctypes.interface == "ctypes"
    for run in (compiled, by_ctypes):
        with pytest.raises(ValueError, match=rf"{message}.*; got . = \d+ from axis . of 'x'"):
            run(x)
        assert run(np.zeros((2, 8, 4), np.float32)).shape == (2, 3, 4)


def test_the_header_and_the_bundle_document_sizes(compiled: Any, tmp_path: Path) -> None:
    header = next(text for name, text in compiled.sources.items() if name.endswith("net.h"))
    assert re.search(r"@param B +size of a named dim, 1 to 256\n", header)
    assert re.search(r"@param T +size of a named dim, 0 to 256, a multiple of 8\n", header)
    assert "T <= 64 is required by test_dim_conditions.py" in header
    compiled.save(tmp_path / "net")
    text = (tmp_path / "net" / "README.txt").read_text()
    assert "T is 0 to 256, a multiple of 8" in text and "B != 5 is required" in text


def test_example_sizes_fulfil_the_conditions() -> None:
    gm = fx.symbolic_trace(Net(), x=X)
    cases = make_cases(gm)
    assert len(cases) >= 2
    for case in cases:
        gm.run_flat(case.inputs)


@pytest.mark.parametrize(("shape", "message"), BAD)
def test_cuda_refuses(shape: tuple[int, ...], message: str) -> None:
    run = fx.compile(Net(), x=X, backend="cuda", device="shim")
    with pytest.raises(ValueError, match=message):
        run(np.zeros(shape, np.float32))


def test_python_source_has_the_checks(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(Net(), x=X)
    gm.to_folder(str(tmp_path))
    spec = importlib.util.spec_from_file_location("net", tmp_path / "net.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Net.load()
    x = np.random.default_rng(0).standard_normal((2, 8, 4)).astype(np.float32)
    np.testing.assert_array_equal(model(x), gm(x))
    for shape, message in BAD:
        with pytest.raises(ValueError, match=message):
            model(np.zeros(shape, np.float32))
    again = fx.symbolic_trace(model, x=X)
    assert again.graph == gm.graph
    assert "# declared by fx.dims\n        if B < 1:\n" in python_source(gm)
    less = fx.symbolic_trace(model, x=fx.float32[fx.dims("B"), fx.dims("T", multiple_of=8), 4])
    assert {"B >= 1", "T <= 64", "B != 5"} <= {str(g) for g in less.graph.guards}  # checks now


def test_a_specialized_model_compiles_and_says_so() -> None:
    gm = fx.symbolic_trace(Net(), x=X)
    run = fx.compile(gm.specialize(T=16), backend="c")
    x = np.random.default_rng(0).standard_normal((2, 16, 4)).astype(np.float32)
    np.testing.assert_allclose(run(x), gm(x), rtol=1e-5)
    with pytest.raises(ValueError, match=r"axis 1 must be 16, got 8 \(T was specialized to 16\)"):
        run(np.zeros((2, 8, 4), np.float32))


def test_conditions_of_an_entry() -> None:
    even = Condition(DimText("B % 2"), "==", 0, "B must be even")
    entry = Entry(
        "model", (ArgSpec("x", "f32", (DimText("2*B"),)),), (ArgSpec("y", "f32", (3,)),), ("B",), conditions=(even,)
    )
    assert even.c("dim_") == "fx_floor_mod(dim_B, 2) == 0"
    assert bind_arguments(entry, (np.zeros(8, np.float32),), {})[1] == {"B": 4}
    with pytest.raises(ValueError, match=r"model\(\): B must be even; got B = 3 from axis 0 of 'x'"):
        bind_arguments(entry, (np.zeros(6, np.float32),), {})
