"""autotune=True: what is measured, what is chosen, that it is right, kept and said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import compiler, nn, passes
from fxlite.base.errors import ArgumentError, CodegenError
from fxlite.codegen.c import templates
from fxlite.codegen.c.emit import emit
from fxlite.codegen.program.program import optimize
from fxlite.codegen.tuning import tune as tuning_module
from fxlite.codegen.tuning.harness import Harness, check_outputs
from fxlite.codegen.tuning.tune import Option, Tuning, tune
from fxlite.graph.graph_module import GraphModule
from tests.command_line import enter_folder, run
from tests.oracle import compare


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder in which nothing was measured yet. Builds are shared by all tests."""
    folder = tmp_path_factory.getbasetemp() / "tuned"
    for file in folder.glob("tuning/*.json"):
        file.unlink()
    monkeypatch.setenv("FXLITE_CACHE", str(folder))
    return folder


class Block(nn.Module):
    """A convolution with an epilogue, and a product."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 32, 3, padding=1)
        self.fc = nn.Linear(32, 48)

    def forward(self, x: Any) -> Any:
        y = np.maximum(self.conv(x), 0)
        return np.tanh(self.fc(y.mean(axis=(2, 3))))


def optimized(program: Any, **types: str) -> GraphModule:
    traced = fx.symbolic_trace(program, inputs=types)
    return optimize(traced, keep=templates.claims)[0]


def fastest(*names: str) -> Callable[[Harness, int], float]:
    """A timer by which the named options take half as long as all others."""

    def seconds(harness: Harness, candidate: int) -> float:
        return 0.5 if OPTIONS[id(harness)][candidate].name in names else 1.0

    return seconds


OPTIONS: dict[int, tuple[Option, ...]] = {}


@pytest.fixture(autouse=True)
def options_of_harnesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers know a harness's options; all candidates are compared strictly, element by element."""

    def check(harness: Harness, options: tuple[Option, ...], precision: str) -> None:
        OPTIONS[id(harness)] = options
        check_outputs(harness, options, precision, odd=0)

    OPTIONS.clear()
    monkeypatch.setattr(tuning_module, "check_outputs", check)


def never(harness: Harness, candidate: int) -> float:
    raise AssertionError("nothing is to be measured")


def emitted(module: GraphModule, tuning: Tuning) -> str:
    return emit(module, **tuning.options).functions


def test_what_was_measured_is_emitted_said_and_right() -> None:
    model, x = Block().eval(), np.random.default_rng(0).standard_normal((2, 16, 12, 12), np.float32)
    module = optimized(model, x="f32[2,16,12,12]")
    tuning = tune(module, 2, timer=fastest("plan: winograd 2x2"))
    kernel = tuning.kernels[0]
    assert kernel.winner.choice == {"plan": "winograd 2x2"} and kernel.speedup == 2
    text = emitted(module, tuning)
    assert "Measured to be the fastest here: plan: winograd 2x2." in text
    assert "Measured" not in emit(module).functions, "the module itself has no choices"
    said = [entry for entry in passes.ledger(module) if entry.pass_name == "autotune"]
    assert any("2.00x faster than the model's choice, winograd 4x4" in e.reason for e in said)
    assert any("the model's choice stays" in e.reason for e in said)
    table = str(tuning)
    assert "winograd 2x2 2.00" in table and "channels" in table
    found = fx.compile(model, x, autotune=True, threads=2)
    assert found.tuning.measured == 0 and "winograd 2x2." in found.program.functions
    compare("c", found(x), model(x))


def test_the_model_is_right_where_all_take_as_long() -> None:
    module = optimized(Block().eval(), x="f32[2,16,12,12]")
    tuning = tune(module, 2, timer=fastest())
    assert not tuning.choices and not tuning.apart
    assert emitted(module, tuning) == emit(module).functions


def test_a_second_process_measures_nothing() -> None:
    first = tune(optimized(Block().eval(), x="f32[2,16,12,12]"), 2, timer=fastest("plan: pixels"))
    again = tune(optimized(Block().eval(), x="f32[2,16,12,12]"), 2, timer=never)
    assert first.measured == len(first.kernels) and again.measured == 0
    assert [k.entry for k in first.kernels] == [k.entry for k in again.kernels]
    with pytest.raises(AssertionError, match="nothing is to be measured"):
        tune(optimized(Block().eval(), x="f32[2,16,12,12]"), 1, timer=never)


def test_what_is_kept_can_be_read_and_replaced(cache: Path) -> None:
    tune(optimized(Block().eval(), x="f32[2,16,12,12]"), 2, timer=fastest("plan: pixels"))
    files = {path: json.loads(path.read_text()) for path in cache.glob("tuning/*.json")}
    ((path, entry),) = [item for item in files.items() if "conv2d" in item[1]["kernel"]]
    assert entry["candidates"][entry["winner"]]["name"] == "plan: pixels"
    assert entry["threads"] == 2 and entry["processor"] and entry["compiler"]
    path.write_text("{")
    again = tune(optimized(Block().eval(), x="f32[2,16,12,12]"), 2, timer=fastest())
    assert again.measured == 1 and not again.choices


class Twice(nn.Module):
    """Two layers of one form."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = np.tanh(layer(x))
        return x


def test_kernels_of_one_form_are_tuned_once() -> None:
    model, x = Twice().eval(), np.random.default_rng(0).standard_normal((40, 48), np.float32)
    module = optimized(model, x="f32[40,48]")
    tuning = tune(module, 1, timer=fastest("left rows: copied"))
    (kernel,) = tuning.kernels
    assert kernel.count == 2 and "(2 kernels alike)" in kernel.reason
    assert emitted(module, tuning).count("Left rows are copied first.") == 1
    compare("c", fx.compile(model, x, autotune=True, threads=1)(x), model(x))


def test_named_dims_are_measured_at_the_sizes_given() -> None:
    module = optimized(Twice().eval(), x="f32[B,48]")
    assert tune(module, 1, {"B": 64}, timer=fastest()).sizes == {"B": 64}
    assert tune(module, 1, {"B": 64}, timer=never).measured == 0
    assert tune(module, 1, {"B": 65}, timer=fastest()).measured == 1
    with pytest.raises(ArgumentError, match="no named dim 'C'"):
        tune(module, 1, {"C": 64}, timer=never)


def test_an_epilogue_in_a_kernel_of_its_own() -> None:
    model, x = Twice().eval(), np.random.default_rng(0).standard_normal((40, 48), np.float32)
    module = optimized(model, x="f32[40,48]")
    tuning = tune(module, 1, timer=fastest("epilogue: separate"))
    assert len(tuning.apart) == 2
    assert len(emit(module, **tuning.options).calls) == len(emit(module).calls) + 2
    compare("c", fx.compile(model, x, autotune=True, threads=1)(x), model(x))


def test_one_thread_for_a_small_kernel() -> None:
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh()).eval()
    x = np.random.default_rng(0).standard_normal((30, 64), np.float32)
    module = optimized(model, x="f32[30,64]")
    tuning = tune(module, 2, timer=fastest("threads: one"))
    (call,) = emit(module, **tuning.options).calls
    assert call.arguments[-1] == "1" and emit(module).calls[0].arguments[-1] == "n_threads"
    compare("c", fx.compile(model, x, autotune=True, threads=2)(x), model(x))
    assert all("threads" not in o.name for o in tune(module, 1, timer=fastest()).kernels[0].options)


class Wide(nn.Module):
    """All templates: convolutions of every plan, attention, products with strided operands."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.point = nn.Conv2d(16, 40, 1)
        self.grouped = nn.Conv2d(40, 40, 3, padding=1, groups=2)

    def forward(self, x: Any, q: Any, k: Any) -> Any:
        y = np.maximum(self.first(x), 0)
        y = self.grouped(np.maximum(self.point(self.depthwise(y)), 0))
        attended = F.scaled_dot_product_attention(q, k, k)
        one = F.scaled_dot_product_attention(q[:, :1], k, k)
        return y, attended, one, q @ k.swapaxes(1, 2)


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_all_candidates_compute_the_same(precision: str) -> None:
    """Compared strictly by the fixture above; here, that none is left out."""
    types = {"x": "f32[2,3,21,19]", "q": "f32[2,150,32]", "k": "f32[2,600,32]"}
    module = optimized(Wide().eval(), **types)
    tuning = tune(module, 2, matmul_precision=precision, timer=fastest())
    names = {option.name for kernel in tuning.kernels for option in kernel.options}
    plans = {"plan: channels", "plan: pixels", "plan: tiles"}
    assert names >= plans | {"keys in a block: 256", "epilogue: separate"}
    if precision == "highest":
        assert names >= {"left rows: copied"}


def test_a_candidate_that_is_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(text: str) -> str:
        head, *rest = re.split(r"(?=static void kernel_)", text)
        spoilt = [
            re.sub(r"(?<!float )sums\[", "2 * sums[", part) if "plan: pixels" in before else part
            for before, part in zip([head, *rest], rest)
        ]
        return head + "".join(spoilt)

    made = tuning_module.source
    monkeypatch.setattr(tuning_module, "source", lambda *given: spoil(made(*given)))
    module = optimized(Block().eval(), x="f32[2,16,12,12]")
    with pytest.raises(CodegenError, match=r"plan: pixels computes another value .*report it"):
        tune(module, 1, timer=never)


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(ArgumentError, match="the back end 'python' has no option autotune; the c back end has it"):
        fx.compile(Twice(), x="f32[4,48]", backend="python", autotune=True)
    with pytest.raises(ArgumentError, match="give both"):
        fx.compile(Twice(), x="f32[4,48]", tune_sizes={"B": 4})


def test_nothing_to_choose() -> None:
    found = fx.compile(lambda x: x + 1, x="f32[4]", autotune=True)
    assert str(found.tuning) == "there is nothing to choose"


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "from fxlite import nn\n\n\ndef model():\n    return nn.Linear(80, 80).eval()\n"
    enter_folder(tmp_path, monkeypatch, {"tuned": program}, columns=140)
    given = ["tuned.py:model", "--input", "x=f32[B,80]", "--autotune", "--size", "B=40"]
    monkeypatch.setattr(compiler, "machine_roofs", lambda: None)
    monkeypatch.setattr(Harness, "seconds", lambda harness, candidate: 1.0 - candidate / 4)
    status, out, err = run(capsys, "compile", *given, "-o", "out", "--threads", "1")
    assert status == 0, err
    assert "1 kernel, 1 measured now" in out and "left rows" in out and "B=40" in out
    assert "Left rows are copied first." in Path("out/linear.c").read_text()
    status, out, err = run(capsys, "profile", *given, "--backend", "c", "--repeat", "2")
    assert status == 0, err
    status, _, err = run(capsys, "profile", *given)
    assert status == 1 and "the c back end has it" in err


def test_kernels_of_another_text_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of kernels is made in rooms within rooms: each of their files counts."""
    file = tmp_path / "c" / "product" / "gemm.py"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(tuning_module, "files", lambda package: tmp_path)
    digests = set()
    for text in ("tiles of 6 rows", "tiles of 8 rows"):
        file.write_text(text)
        digests.add(tuning_module._templates.__wrapped__())
    assert len(digests) == 2
