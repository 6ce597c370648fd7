"""C for small devices: the same results as everywhere, nothing but loops and constants, and the
memory that the table says.

The self-tests of the digits model, of floats and of 8-bit integers, run on ARM's Thumb
instructions where gcc-arm-linux-gnueabihf and qemu-user are installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import CodegenError
from fxlite.codegen.embedded import bundle
from fxlite.passes import quantize as q
from tests import oracle
from tests.codegen.compiling import made, make_test, run_in
from tests.zoo.registry import by_name

ROOT = Path(__file__).parents[2]
WARNINGS = "-Wall -Wextra -Wconversion -Wsign-conversion -pedantic -Werror"
#: What the C library and the compiler's may be asked for. Not among them: memory, files, numbers of
#: 64 bits of precision.
LIBRARY = re.compile(r"mem(cpy|set|move)|(rint|floor|ceil|trunc|fma|fmod|sqrt)f|__aeabi_mem\w+")


def compiled(program: Any, *inputs: np.ndarray) -> Any:
    """For a small device, with the sizes of these inputs."""
    types = [f"{fx.types.dtypes.dtype(a.dtype).name}{[*a.shape]}".replace(" ", "") for a in inputs]
    return fx.compile(fx.symbolic_trace(program, *types), backend="embedded")


@pytest.mark.parametrize(
    "name",
    [
        "cnn",
        "gather_scatter",
        "gru",
        "pooling",
        "scans",
        "softmax_layer_norm",
        "unet_piece",
        "scalars_and_empty",
        "transformer_block",
    ],
)
def test_programs_of_the_zoo(name: str, tmp_path: Path) -> None:
    program, _, inputs = by_name(name).make()
    arrays = list(map(np.asarray, inputs))
    function = compiled(program, *arrays)
    oracle.compare("embedded", function(*inputs), function.graph_module(*inputs))
    text = function.sources[f"{function.program.name}.c"]
    for file, source in function.sources.items():
        (tmp_path / file).write_text(source)
    if shutil.which("gcc"):
        command = f"gcc -std=c99 {WARNINGS} -fsyntax-only {function.program.name}.c".split()
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:3000]
    assert not re.search(r"\b(double|omp|malloc|n_threads)\b|INT64_C|#pragma", text)


def test_hostile_names(tmp_path: Path) -> None:
    """Names of the program's own variables, functions and macros, of C, and of its library."""

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.run, self.w, self.weights = (nn.Linear(3, 3) for _ in range(3))
            self.NAN = nn.Parameter(np.ones(3, np.float32))

        def forward(self, arena: Any, error: Any, w: Any, number: Any) -> Any:
            y = self.weights(self.w(self.run(arena[number]))) * self.NAN
            return y + error, w

    model = M().eval()
    arena = np.arange(12, dtype=np.float32).reshape(4, 3)
    inputs = arena, np.ones(3, np.float32), np.ones(2, np.float32), np.array([1, 3])
    function = compiled(model, *inputs)
    oracle.compare("embedded", function(*inputs), model(*inputs))
    function.save(tmp_path / "out")
    if shutil.which("make") and shutil.which("cc"):
        done = make_test(tmp_path / "out", f"CFLAGS={WARNINGS}")
        assert "OK: 1 of 1 cases" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("scheme", ["static_int8", "dynamic_int8", "weight_only_int4"])
def test_integers(scheme: str) -> None:
    """Quantized layers of each kind, in one program."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1, stride=2)
            self.lstm = nn.LSTM(32, 8, batch_first=True)
            self.head = nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            y = np.maximum(self.conv(x), 0)
            y, _ = self.lstm(y.reshape(1, 8, -1).transpose(0, 2, 1).reshape(1, -1, 32))
            return self.head(y)

    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    module = fx.symbolic_trace(Net().eval(), "f32[1,3,16,16]")
    config = q.QConfigMapping().set_global(getattr(q, scheme)())
    integers = q.quantize(module, config, [x])
    function = fx.compile(integers, backend="embedded")
    oracle.compare("embedded", function(x), integers(x))
    expanded = function.optimized.graph.find_nodes(op="call_function", target="dequantize_weight")
    assert len(expanded) == (scheme == "weight_only_int4"), "a convolution's; steps share floats"


def test_long_sums_need_no_doubles() -> None:
    """Blocks of a row, and of channels; numbers of which adding one by one loses most; padding
    beside weights that are infinite."""
    nn.init.manual_seed(0)
    many, wild = nn.Conv2d(120, 2, 3, padding=1), nn.Conv2d(1, 1, 3, padding=1)
    wild.weight[0, 0, 0, 0] = np.inf

    def program(x: Any, image: Any) -> Any:
        return x @ x.T, x.sum(), x[:, ::-1].mean(1), many(image), wild(image[:, :1])

    x = np.full((3, 70_000), 0.1, np.float32)
    x[:, ::3] = 1000.1
    image = np.random.default_rng(0).standard_normal((1, 120, 5, 4)).astype(np.float32)
    function = compiled(program, x, image)
    with np.errstate(all="ignore"):
        found, wanted = function(x, image), program(x.astype(np.float64), image.astype(np.float64))
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=3e-6, atol=1e-5)
    text = function.sources["program.c"]
    assert "double" not in text and "wide" in text and "left" in text
    assert "? slice[" in text, "zero times infinity is NaN: the weight is read outside, too"


def test_layers_that_share_a_function_and_have_infinite_weights_or_none() -> None:
    """Zeros of the padding times an infinite weight are NaN, whichever layer the function was written for."""
    nn.init.manual_seed(0)
    calm, wild = (nn.Conv2d(1, 1, 3, padding=1) for _ in range(2))
    wild.weight[0, 0, 0, 0] = np.inf

    def program(x: Any) -> Any:
        return calm(x), wild(x)

    x = np.random.default_rng(0).standard_normal((1, 1, 4, 5)).astype(np.float32)
    function = compiled(program, x)
    assert [call.is_first for call in function.program.calls] == [True, False]
    with np.errstate(all="ignore"):
        oracle.compare("embedded", function(x), program(x))


# -- folders ---------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """The digits model in floats and in integers."""
    sys.path.insert(0, str(ROOT / "tutorials"))
    try:
        import digits
    finally:
        sys.path.pop(0)
    module = fx.symbolic_trace(digits.trained(), x="f32[1,1,8,8]")
    images = np.random.default_rng(0).random((8, 1, 8, 8), np.float32)
    config = q.QConfigMapping().set_global(q.static_int8())
    integers = q.quantize(module, config, [images[i : i + 1] for i in range(8)])
    root = tmp_path_factory.mktemp("embedded")
    made = {}
    for name, model in (("floats", module), ("integers", integers)):
        function = fx.compile(model, backend="embedded")
        function.save(root / name)
        made[name] = root / name, function
    return made


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("compiler", ["gcc", "clang", "tcc", "arm-linux-gnueabihf-gcc"])
@pytest.mark.parametrize("name", ["floats", "integers"])
def test_self_test(name: str, compiler: str, folders: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(folders[name][0], tmp_path / name)
    is_cross = compiler.startswith("arm")
    for program in ("make", compiler, *(["qemu-arm"] if is_cross else [])):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    flags = "" if compiler == "tcc" else WARNINGS
    flags += " -Os -mthumb" if is_cross else " -O1"
    made("digits_selftest", folder, (compiler,), f"CFLAGS={flags}")
    emulator = ["qemu-arm", "-L", "/usr/arm-linux-gnueabihf"] if is_cross else []
    assert "OK: 1 of 1 cases" in run(*emulator, "./digits_selftest", folder=folder)


def test_self_test_can_fail(folders: Any, tmp_path: Path) -> None:
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("needs make and cc")
    folder = shutil.copytree(folders["floats"][0], tmp_path / "out")
    data = folder / "digits_selftest_data.h"
    text = data.read_text()
    start = text.index("{", text.index("expected_linear_1")) + 1
    data.write_text(f"{text[:start]} 1{text[start:].lstrip()}")  # another digit in front
    run_in(folder, ("cc",), ["make", "digits_selftest"])
    done = subprocess.run(["./digits_selftest"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "FAILED: 0 of 1 cases" in done.stdout


@pytest.mark.parametrize("name", ["floats", "integers"])
@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc", "arm-linux-gnueabihf-gcc", "gcc"])
def test_memory(compiler: str, name: str, folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has what tools say of the object that the Makefile makes; code is small, weights
    are constants and take what the model's take, and there is nothing else."""
    folder, function = folders[name]
    if shutil.which(compiler) is None or shutil.which("make") is None:
        pytest.skip(f"{compiler} is not installed")
    cross = compiler != "gcc"
    monkeypatch.setattr(bundle, "CROSS_COMPILERS", (compiler,) if cross else ())
    memory = bundle.memory_of(function.program)
    flags = " ".join(bundle.CORTEX_M4) if cross else ""
    made("digits.o", folder, (compiler,), f"CFLAGS=-Os {flags}")
    tools = compiler.removesuffix("gcc")
    sizes = run("size", "digits.o", folder=folder) if not cross else run(f"{tools}size", "digits.o", folder=folder)
    text, data, bss = map(int, sizes.splitlines()[1].split()[:3])
    assert (data, bss) == (0, 0) or not cross
    assert memory.code is not None and memory.stack is not None
    assert abs(memory.code + memory.weights - (text + data)) <= 400, "but for tables of unwinding"
    state = sum(a.nbytes for a in function.optimized.state_dict().values())
    assert memory.weights <= state
    assert memory.arena == function.workspace_bytes({}) > 0
    assert memory.code < (1500 if cross else 3000) and memory.stack < 400
    undefined = run(f"{tools if cross else ''}nm", "-u", "digits.o", folder=folder)
    assert all(LIBRARY.fullmatch(line.split()[-1]) for line in undefined.splitlines())
    (folder / "digits.o").unlink()


def test_readme_and_list(folders: Any) -> None:
    folder, function = folders["integers"]
    text = (folder / "README.txt").read_text()
    memory = function.memory
    for part, size in (("weights", memory.weights), ("arena", memory.arena)):
        assert re.search(rf"{part} +{size:,}\n", text)
    assert max(map(len, text.splitlines())) <= 120 and "digits_run(x, linear, arena);" in text
    facts = json.loads((folder / "manifest.json").read_text())
    assert facts["memory"] == memory.facts() and facts["options"] == {"backend": "embedded"}
    header = (folder / "digits.h").read_text()
    assert f"#define DIGITS_ARENA_BYTES {memory.arena}\n" in header
    assert f"#define DIGITS_WEIGHTS_BYTES {memory.weights}\n" in header


def test_the_largest_stack_is_found_by_calls() -> None:
    calls = """
    node: { title: "m_run" label: "m_run\\nm.c:1:1\\n40 bytes (static)" }
    node: { title: "m.c:k0" label: "k0\\nm.c:2:1\\n100 bytes (static)" }
    node: { title: "m.c:k1" label: "k1\\nm.c:3:1\\n8 bytes (static)" }
    node: { title: "m.c:tile" label: "tile\\nm.c:4:1\\n200 bytes (static)" }
    node: { title: "memset" label: "memset" shape : ellipse }
    edge: { sourcename: "m_run" targetname: "m.c:k0" label: "m.c:5" }
    edge: { sourcename: "m_run" targetname: "m.c:k1" label: "m.c:6" }
    edge: { sourcename: "m.c:k1" targetname: "m.c:tile" label: "m.c:7" }
    edge: { sourcename: "m.c:k1" targetname: "memset" label: "m.c:8" }
    """
    assert bundle.largest_stack(calls, "m_run") == 248


# -- what is refused -------------------------------------------------------------------------------
def test_what_small_devices_do_not_do() -> None:
    def program(x: Any) -> Any:
        return x + 1

    with pytest.raises(CodegenError, match=r"x is f32\[B,T\].*gm.specialize\(B=1, T=1\)"):
        fx.compile(program, x="f32[B,T]", backend="embedded")
    with pytest.raises(CodegenError, match=r"test_embedded.py:\d+.*float64 by functions.*float32"):
        fx.compile(lambda x: x.astype(np.float64) * 3, x="f32[4]", backend="embedded")
    with pytest.raises(CodegenError, match="too large for a small device"):
        fx.compile(program, x="f32[65536,65536]", backend="embedded")
    with pytest.raises(fx.errors.ArgumentError, match="no option threads; the c, cuda and python back ends have it"):
        fx.compile(program, x="f32[4]", backend="embedded", threads=2)


def test_an_index_out_of_range_is_an_error_code() -> None:
    function = fx.compile(lambda x, i: x[i], x="f32[4]", i="i64[2]", backend="embedded")
    header = function.sources["function.h"]
    assert "int function_run(const float *x, const int64_t *i, float *take, fx_error *error);" in (
        " ".join(header.split())
    )
    with pytest.raises(IndexError, match="index 9 is out of bounds for size 4"):
        function(np.zeros(4, np.float32), np.array([0, 9]))
