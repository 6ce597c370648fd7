"""The host's part of a saved CUDA folder: it runs on the CPU shim as it is, and nvcc takes it."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.cuda.emit import emit
from fxlite.codegen.cuda.function import weights_blob
from fxlite.codegen.cuda.host import host_sources
from fxlite.codegen.program.program import optimize
from tests import oracle
from tests.codegen.compiling import QUICK, run_in
from tests.zoo.registry import by_name


def written(module: fx.GraphModule, folder: Path) -> Any:
    """The emitted program, and its files in a folder."""
    program = emit(optimize(module)[0])
    for name, text in {**program.sources, **host_sources(program)}.items():
        (folder / name).write_text(text)
    return program


def aligned(array: Any) -> np.ndarray:
    """A copy at a multiple of 64 bytes."""
    source = np.ascontiguousarray(array)
    memory = np.empty(source.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    made = memory[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
    made[...] = source
    return made


def called(program: Any, folder: Path, inputs: Any, dims: dict[str, int]) -> tuple[Any, Any]:
    """The results of a call of the host's function on the shim, and its error, if it has one."""
    shim = files("fxlite.codegen.cuda").joinpath("shim.h")
    (folder / "shim.h").write_text(shim.read_text(encoding="utf-8"), encoding="utf-8")
    command = ["g++", "-x", "c++", "-std=gnu++17", "-include", "shim.h", QUICK, "-Wno-unknown-pragmas"]
    command += ["-shared", "-fPIC", "-pthread", f"{program.name}_run.cu", "-o", "run.so"]
    run_in(folder, ("g++",), command)
    library = ctypes.CDLL(str(folder / "run.so"))
    size = getattr(library, f"{program.name}_workspace_bytes")
    size.restype, size.argtypes = ctypes.c_int64, [ctypes.c_int64] * len(dims)
    outputs = [
        aligned(np.zeros(program.entry.output_shape(spec, dims), spec.dtype.replace("f", "float")))
        for spec in program.entry.outputs
    ]
    workspace = aligned(np.full(size(*dims.values()), 0xFF, np.uint8))
    weights = aligned(np.frombuffer(weights_blob(program), np.uint8))
    error = np.full(4, 7, np.int64)
    fails = any("error" in launch.arguments for launch in program.launches)
    arrays = [*map(aligned, inputs), *outputs]
    given = [*arrays, weights, workspace, *([error] if fails else [])]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in given]
    count = len(arrays)
    sizes = [ctypes.c_int64(v) for v in dims.values()]
    run = getattr(library, f"{program.name}_run")
    assert run(*pointers[:count], *sizes, *pointers[count:], None) == 0
    return outputs, error if fails else None


@pytest.mark.parametrize("name", ["transformer_block", "splits"])
def test_it_computes_what_the_model_does(name: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    module, _, inputs = by_name(name).trace()
    program = written(module, tmp_path)
    arrays = [np.asarray(x) for x in inputs]
    dims: dict[str, int] = {}
    for spec, array in zip(program.entry.inputs, arrays):
        dims |= {str(d): n for d, n in zip(spec.shape, array.shape) if str(d) in program.entry.dims}
    outputs, _ = called(program, tmp_path, arrays, {d: dims[d] for d in program.entry.dims})
    wanted = module(*inputs)
    flat = list(fx.types.agreement.leaves(wanted)) if len(outputs) > 1 else [wanted]
    for found, expected in zip(outputs, flat, strict=True):
        oracle.compare("cuda", found, np.asarray(expected))


def test_indices_results_and_layers(tmp_path: Path) -> None:
    """An index out of range, a result that is an input, one twice, and an array of structs."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")

    class Net(fx.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = fx.nn.ModuleList([fx.nn.Linear(4, 4) for _ in range(3)])

        def forward(self, x: Any, i: Any) -> Any:
            y = x[i]
            for layer in self.layers:
                y = np.tanh(layer(y))
            return y, x, y

    model = Net().eval()
    program = written(fx.symbolic_trace(model, x="f32[N,4]", i="i64[B]"), tmp_path)
    text = (tmp_path / "net_run.cu").read_text()
    assert "} layers[3];" in text and "w.layers[2].weight" in text
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    for index, code in (([0, 4, 2], 0), ([0, 5, 2], 1)):
        i = np.array(index)
        outputs, error = called(program, tmp_path, (x, i), {"N": 5, "B": 3})
        assert int(error[0]) & 0xFFFFFFFF == code
        if code == 0:
            for found, expected in zip(outputs, model(x, i)):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_routines_have_a_workspace(tmp_path: Path) -> None:
    """Matrices of a named number, with values of the plan beside the scratch, and without any."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")

    def alone(x: Any) -> Any:
        return np.linalg.svdvals(x)

    def beside(x: Any) -> Any:
        return np.linalg.eigvalsh(x @ x) - np.linalg.svdvals(x).sum(0)

    x = np.random.default_rng(0).standard_normal((70, 3, 3))
    for program in (alone, beside):
        folder = tmp_path / program.__name__
        folder.mkdir()
        emitted = written(fx.symbolic_trace(program, x="f64[B,3,3]"), folder)
        outputs, _ = called(emitted, folder, (x,), {"B": 70})
        np.testing.assert_allclose(outputs[0], program(x), rtol=1e-9, atol=1e-9)


def test_hostile_names(tmp_path: Path) -> None:
    """Names of the host's own variables, and of the header's macros."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")

    def layout(stream: Any, workspace: Any, w: Any, out0: Any) -> Any:
        return np.exp(stream) + workspace, stream, w * out0

    types = ["f32[offset,3]", "f32[3]", "f32[weights]", "f32[weights]"]
    program = written(fx.symbolic_trace(layout, *types), tmp_path)
    given = [np.full((2, 3), 0.5), np.arange(3.0), np.arange(4.0), np.ones(4)]
    arrays = [a.astype(np.float32) for a in given]
    outputs, _ = called(program, tmp_path, arrays, {"offset": 2, "weights": 4})
    for found, expected in zip(outputs, layout(*arrays)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_nvcc_takes_it(tmp_path: Path) -> None:
    module, _, _ = by_name("transformer_block").trace()
    program = written(module, tmp_path)
    (tmp_path / "caller.c").write_text(f'#include "{program.name}.h"\n')
    command = ["nvcc", "-arch=sm_90", "-c", f"{program.name}_run.cu", "-o", "run.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr


def test_the_list_of_files_has_the_host(tmp_path: Path) -> None:
    module = fx.symbolic_trace(lambda x: x * 2, x="f32[B]")
    fx.compile(module, backend="cuda", device="shim").save(tmp_path / "out")
    facts = json.loads((tmp_path / "out/manifest.json").read_text())
    assert {"function.h", "function_run.cu"} <= {f["path"] for f in facts["files"]}
    assert "nvcc -c" in (tmp_path / "out/README.md").read_text()
