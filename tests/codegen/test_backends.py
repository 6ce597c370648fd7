"""A back end of somebody else, registered with one call: Rust, of rust_backend.py.

Its kernels are compared with NumPy where there is a rustc; elsewhere their text is.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import backend, passes
from fxlite.base.errors import ArgumentError, CodegenError
from fxlite.codegen.program import loop_function
from tests import oracle
from tests.codegen.rust_backend import Rust
from tests.command_line import enter_folder, run
from tests.zoo.registry import by_name

with_rustc = pytest.mark.skipif(shutil.which("rustc") is None, reason="there is no rustc")


@pytest.fixture(autouse=True)
def rust(monkeypatch: pytest.MonkeyPatch) -> None:
    """The back end, known while a test runs."""
    monkeypatch.setattr(backend, "_REGISTERED", {})
    backend.register_backend(Rust())


@with_rustc
@pytest.mark.parametrize(
    "name",
    [
        "relu_spellings",
        "softmax_layer_norm",
        "named_dims",
        "nested_outputs",
        "scans",
        "splits",
        "pooling",
        "constants",
        "mlp",
        "cnn",
        "masked_attention",
    ],
)
def test_programs_of_the_zoo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def rust(module: fx.GraphModule) -> oracle.Run:
        function = fx.compile(module, backend="rust")
        return lambda inputs: function(*inputs)

    monkeypatch.setitem(oracle.RUNGS, "rust", rust)
    program, types, inputs = by_name(name).make()
    oracle.agree(program, *inputs, types=types, rungs=["rust"])


def test_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named sizes, a branch and a negative number; rustc is not asked."""
    monkeypatch.setattr(loop_function, "_build", lambda *given: None)
    module = fx.symbolic_trace(lambda x, m: np.where(m, np.exp(x), -2.5), x="f32[B,3]", m="bool[3]")
    (text,) = fx.compile(module, backend="rust").sources.values()
    head, lines = text.split('#[no_mangle]\npub unsafe extern "C" fn kernel0(')
    assert "fn fx_max" in head
    assert lines.splitlines() == [
        "x: *const f32, m: *const bool, where_: *mut f32, B: i64) {",
        "    for i in (0..B).step_by(1) {",
        "        for j in (0..3).step_by(1) {",
        "            let t0: f32 = (*x.offset((i*3 + j) as isize));",
        "            *where_.offset((i*3 + j) as isize) = "
        "(if (*m.offset((j) as isize)) { (t0.exp()) } else { (-2.5f32) });",
        "        }",
        "    }",
        "}",
    ]


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(CodegenError, match="Rust has no CheckedIndex here"):
        fx.compile(lambda x, i: x[i], backend="rust", x="f32[4]", i="i64[3]")
    broken = type("Broken", (Rust,), {"compile": compile_with_no_such_program})
    with pytest.raises(CodegenError, match="no_such_program does not run"):
        backend.register_backend(broken())
        fx.compile(np.exp, "f32[4]", backend="rust")
    with pytest.raises(ArgumentError, match="a registered back end must be a Backend, not type"):
        backend.register_backend(Rust)  # type: ignore[arg-type]


def compile_with_no_such_program(self: Any, module: Any, stage: Any = backend.silent) -> Any:
    """The method of a back end whose compiler is missing."""
    return loop_function.LoopFunction(module, stage, ".rs", "", lambda kernel: "", ["no_such_program"])


def test_options_are_declared_once() -> None:
    """Their checks and messages follow; an option of one back end is none of another's, and no
    input."""
    with pytest.raises(ArgumentError, match="opt_level must be '0', '2' or '3', not '1'"):
        fx.compile(np.exp, "f32[4]", backend="rust", opt_level="1")
    with pytest.raises(ArgumentError, match="'c' has no option opt_level; the rust back end has it"):
        fx.compile(np.exp, "f32[4]", opt_level="2")
    with pytest.raises(ArgumentError, match="no option threads; the c, cuda and python back ends have it"):
        fx.compile(np.exp, "f32[4]", backend="rust", threads=2)
    with pytest.raises(
        ArgumentError, match="the kernels of 'rust' cannot be timed; choose the back end 'c' or 'python'"
    ):
        passes.profile(fx.symbolic_trace(np.exp, "f32[4]"), backend="rust")
    assert fx.compile(np.exp, "f32[4]", backend="python", opt_level="3")(np.zeros(4, np.float32)).sum() == 4


@with_rustc
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "import numpy as np\n\n\ndef spread(x):\n    return np.tanh(x) - x.mean()\n"
    enter_folder(tmp_path, monkeypatch, {"stats": program})
    given = ["stats.py:spread", "-i", "x=f32[B,5]", "--backend", "rust"]
    status, out, err = run(capsys, "compile", *given, "-o", "out", "--opt-level", "0")
    assert (status, err) == (0, "")
    assert "Rust and Python agree with NumPy" in " ".join(out.split())
    assert "kernel0(x: *const f32" in Path("out/rust/spread.rs").read_text()
    assert Path("out/python/spread.py").is_file() and Path("out/graph_optimized.txt").is_file()
    status, _, err = run(capsys, "compile", *given, "-o", "out", "--device", "shim")
    assert status == 1 and "'rust' has no option device; the cuda back end has it" in err
    assert run(capsys, "compile", *given, "-o", "out", "--opt-level", "1")[0] == 2
    assert "rustc" in run(capsys, "info")[1]
    assert "c, cuda, embedded, python, rust; default c" in " ".join(run(capsys, "compile", "--help")[1].split())


def test_python_runs_and_writes_the_optimized_graph() -> None:
    gm, _, inputs = by_name("resnet_block").trace()
    function = fx.compile(gm, backend="python")
    (source,) = function.sources.values()
    assert "BatchNorm2d" not in source and "BatchNorm2d" in gm.source()
    assert len(function.optimized.graph) < len(gm.graph)
    oracle.compare("python", function(*inputs), gm(*inputs))
