"""Counters of compiled C (``profile=True``) and the probe of the machine's roofs.

No assertion is about seconds: what the counters say is compared with the clock around the call."""

from __future__ import annotations

import platform
import re
import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.base.errors import ArgumentError
from fxlite.codegen.runtime import roofs
from fxlite.codegen.runtime.toolchain import CompilerNotFound, find_compiler, usable_cpus
from fxlite.compiler import machine_roofs
from fxlite.show.node_cost import Roof, Roofs
from tests.codegen.compiling import emitted


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, 8)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.fc2(np.maximum(self.fc1(x), 0)), -1)


X = np.linspace(-1, 1, 16 * 64, dtype=np.float32).reshape(16, 64)


# -- counters --------------------------------------------------------------------------------------
def test_ticks_of_a_call() -> None:
    function = fx.compile(Net(), x="f32[B,64]", profile=True)
    start = time.perf_counter_ns()
    function(X)
    elapsed = time.perf_counter_ns() - start
    ticks = function.kernel_ticks()
    assert len(ticks) == len(function.kernels) + 1 == 4
    assert all(before <= after for before, after in pairwise(ticks))
    assert 0 < ticks[-1] - ticks[0] <= elapsed
    function(np.repeat(X, 3, axis=0))
    assert function.kernel_ticks()[0] >= ticks[-1]  # those of the last call


def test_counters_change_no_result() -> None:
    model = Net()
    plain = fx.compile(model, x="f32[B,64]")
    counting = fx.compile(model, x="f32[B,64]", profile=True)
    assert np.array_equal(plain(X), counting(X))
    assert np.array_equal(plain(X), counting.run_flat({"x": X}))


def test_a_kernel_that_fails_ends_the_run() -> None:
    types = {"x": "f32[3]", "index": "i64[N]"}
    take = fx.compile(lambda x, index: fx.ops.take(x, index) + 1, inputs=types, profile=True)
    x = np.arange(3, dtype=np.float32)
    with pytest.raises(IndexError, match="index 7 is out of bounds for size 3"):
        take(x, np.array([7]))
    assert take(x, np.array([2])) == 3


def test_counters_are_compiled_in_on_request_only() -> None:
    model = Net()
    plain = "".join(emitted(model, x="f32[B,64]").sources.values())
    counting = fx.compile(model, x="f32[B,64]", profile=True)
    for word in ("clock_gettime", "ticks"):
        assert word not in plain
        assert word in "".join(counting.sources.values())
    assert "const int64_t *net_ticks(void);" in counting.sources["net.h"]
    with pytest.raises(ArgumentError, match="net has no counters; compile it with profile=True"):
        fx.compile(model, x="f32[B,64]").kernel_ticks()


def test_kernels_say_what_they_compute() -> None:
    function = fx.compile(Net(), x="f32[B,64]", profile=True)
    calls = function.optimized.graph.find_nodes(op="call_function")
    assert [node for kernel in function.kernels for node in kernel.nodes] == calls
    first = function.kernels[0]
    assert first.name in function.sources["net.c"] and "fc1" in first.name
    assert first.anchor is not None and first.anchor.target.name == "linear"
    assert [node.name for node in first.reads] == ["x", "fc1_weight", "fc1_bias"]
    assert first.root.target.name == "relu"


def test_each_thread_has_its_own_counters() -> None:
    function = fx.compile(Net(), x="f32[B,64]", profile=True)
    function(X)
    mine = function.kernel_ticks()
    other: list[list[int]] = []

    def work() -> None:
        other.append(function.kernel_ticks())
        function(X)
        other.append(function.kernel_ticks())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert other[0] == [0] * len(mine)
    assert other[1][0] >= mine[-1]
    assert function.kernel_ticks() == mine


def test_names_of_the_program_do_not_collide() -> None:
    def add(ticks: Any, nanoseconds: Any, now: Any) -> Any:
        return ticks + nanoseconds * now

    types = dict.fromkeys(("ticks", "nanoseconds", "now"), "f32[N]")
    function = fx.compile(add, inputs=types, profile=True)
    a = np.arange(5, dtype=np.float32)
    assert np.array_equal(function(a, a, a), a + a * a)


def test_a_saved_model_keeps_its_counters(tmp_path: Path) -> None:
    fx.compile(Net(), x="f32[B,64]", profile=True).save(tmp_path / "out")
    assert "net_ticks" in (tmp_path / "out" / "net.h").read_text()


@pytest.mark.parametrize("backend", ["python", "cuda"])
def test_other_back_ends_have_none(backend: str) -> None:
    with pytest.raises(ArgumentError, match=f"{backend!r} has no option profile; the c back end has it"):
        fx.compile(Net(), x="f32[B,64]", backend=backend, profile=True)


# -- roofs -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def quick() -> Roofs:
    return roofs.measure(seconds=0.02, array_bytes=8 << 20)


def test_every_roof_is_measured_or_left_out(quick: Roofs) -> None:
    names = {
        "fma_f32",
        "fma_f64",
        "pairs_int8",
        "dot_int8",
        "tile_int8",
        "tile_bf16",
        "read",
        "write",
        "cached_read",
        "cached_write",
    }
    assert {text.partition(":")[0] for text in quick.left_out} == names - quick.roofs.keys()
    assert quick.roofs.keys() >= names - {"pairs_int8", "dot_int8", "tile_int8", "tile_bf16"}
    assert not [text for text in quick.left_out if "measurement failed" in text]
    assert all(roof.one_thread > 0 and roof.all_threads > 0 for roof in quick.roofs.values())
    assert 1 <= quick.threads <= usable_cpus() and quick.cache_bytes > 0


#: Processor -> the instructions that a loop of a roof consists of, and how many of each.
LOOPS = {
    "x86-64": {"pairs_int8": [(r"pmaddwd\t.*%xmm", 24)]},
    "haswell": {
        "fma_f32": [(r"vfmadd\d+ps\t.*%ymm", 12)],
        "fma_f64": [(r"vfmadd\d+pd\t.*%ymm", 12)],
        "pairs_int8": [(r"vpmaddwd\t.*%ymm", 24), (r"vpand\t.*%ymm", 12)],
    },
    "skylake-avx512": {"fma_f32": [(r"vfmadd\d+ps\t.*%zmm", 12)], "pairs_int8": [(r"vpmaddwd\t.*%zmm", 24)]},
    "icelake-server": {"dot_int8": [(r"vpdpbusd\t.*%zmm", 12)]},
    "sapphirerapids": {
        "dot_int8": [(r"vpdpbusd\t.*%zmm", 12)],
        "tile_int8": [(r"tdpbssd\t", 4)],
        "tile_bf16": [(r"tdpbf16ps\t", 4)],
    },
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize("march", LOOPS)
def test_loops_of_roofs_are_the_instructions_that_they_count(march: str, tmp_path: Path) -> None:
    """Nothing is folded, hoisted or dropped: the rate is that of these instructions."""
    (tmp_path / "roofs.c").write_text(roofs._source())
    flags = ["-O3", f"-march={march}", "-fno-inline", "-S", "roofs.c", "-o", "roofs.s"]
    subprocess.run([*find_compiler().command, *flags], cwd=tmp_path, check=True)
    text = (tmp_path / "roofs.s").read_text()
    for name, expected in LOOPS[march].items():
        body = text[text.index(f"\n{name}:\n") : text.index(f".size\t{name},")]
        for instruction, count in expected:
            assert len(re.findall(instruction, body)) == count, (name, instruction)


def test_roofs_print_how_they_were_measured(quick: Roofs) -> None:
    text = str(quick)
    assert "how it was measured" in text and "multiply-adds" in text and "8.39 MB" in text
    for name in quick.roofs:
        assert name in text
    for reason in quick.left_out:
        assert reason[:40] in text


def test_roofs_are_measured_once(quick: Roofs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    found = [
        Roofs(**{**vars(quick), "roofs": {"read": Roof("read", "B/s", rate, rate, "test")}}) for rate in (5.0, 3.0, 9.0)
    ]
    monkeypatch.setattr(roofs, "measure", lambda: found.pop(0))
    assert machine_roofs().roofs["read"].one_thread == 5.0  # type: ignore[union-attr]
    assert roofs.machine_roofs().roofs["read"].one_thread == 5.0
    assert len(found) == 2
    assert roofs.machine_roofs(refresh=True).roofs["read"].one_thread == 5.0  # the better one
    (path,) = (tmp_path / "roofs").iterdir()
    path.write_text("{")
    assert roofs.machine_roofs().roofs["read"].one_thread == 9.0
    assert not found


def test_without_a_compiler_there_are_no_roofs(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Roofs:
        raise CompilerNotFound("none")

    monkeypatch.setattr(roofs, "machine_roofs", missing)
    assert machine_roofs() is None


def test_a_measurement_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = roofs._run

    def failing(program: Path, what: str, *rest: Any) -> float:
        if what == "fma_f64":
            raise OSError("illegal instruction")
        return run(program, what, *rest)

    monkeypatch.setattr(roofs, "_run", failing)
    found = roofs.measure(seconds=0.001, array_bytes=1 << 20)
    assert "fma_f64" not in found.roofs and "fma_f32" in found.roofs
    assert "fma_f64: the measurement failed: illegal instruction" in found.left_out
