"""Bad input, tried through the front door: each must be answered clearly, or handled as NumPy
does."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import TraceError
from fxlite.codegen.runtime.toolchain import CompilerNotFound
from fxlite.nn.module import StateDictError


def normalize(x: Any, y: Any) -> Any:
    return (x - x.mean(axis=-1, keepdims=True)) * np.maximum(y, 0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(6, 5)
        self.fc2 = nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return nn.functional.softmax(self.fc2(np.maximum(self.fc1(x), 0)), dim=-1)


@pytest.fixture(scope="module", params=["c", "python"])
def compiled(request: pytest.FixtureRequest) -> Any:
    return fx.compile(normalize, x="f32[B,6]", y="f32[B,6]", backend=request.param)


def _array(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_wrong_dtype(compiled: Any) -> None:
    with pytest.raises(TypeError, match=r"x.*f32\[B,6\].*float64.*astype"):
        compiled(_array(2, 6).astype(np.float64), _array(2, 6))


def test_not_an_array(compiled: Any) -> None:
    with pytest.raises(TypeError, match=r"x.*list"):
        compiled([[1.0] * 6], _array(1, 6))


def test_wrong_rank(compiled: Any) -> None:
    with pytest.raises(ValueError, match=r"x.*f32\[B,6\]"):
        compiled(_array(6), _array(1, 6))


def test_wrong_dim(compiled: Any) -> None:
    with pytest.raises(ValueError, match=r"x.*axis 1.*6.*7"):
        compiled(_array(2, 7), _array(2, 6))


def test_dims_in_conflict(compiled: Any) -> None:
    with pytest.raises(ValueError, match=r"y.*axis 0.*B.*2.*x.*3"):
        compiled(_array(2, 6), _array(3, 6))


def test_missing_and_unknown_arguments(compiled: Any) -> None:
    with pytest.raises(TypeError, match="y"):
        compiled(_array(2, 6))
    with pytest.raises(TypeError, match="z"):
        compiled(_array(2, 6), _array(2, 6), z=1)


def test_strided_read_only_and_keyword_inputs(compiled: Any) -> None:
    wide = _array(12, 4).T[::2, ::-2]  # shape (2, 6), negative stride
    assert not wide.flags.c_contiguous
    frozen = _array(2, 6)
    frozen.flags.writeable = False
    expected = normalize(wide, frozen)
    np.testing.assert_allclose(compiled(y=frozen, x=wide), expected, rtol=1e-5, atol=1e-6)


def test_empty_batch(compiled: Any) -> None:
    result = compiled(_array(0, 6), _array(0, 6))
    assert result.shape == (0, 6)
    assert result.dtype == np.float32


def test_nan_and_infinity_propagate(compiled: Any) -> None:
    x, y = _array(5, 6), _array(5, 6)
    x[0, 0], x[1, 1], y[2, 2], y[3, 3], y[4, 4] = np.nan, np.inf, np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        expected = normalize(x, y)
    np.testing.assert_allclose(compiled(x, y), expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_index_out_of_range() -> None:
    table = _array(4, 3)

    def lookup(i: Any) -> Any:
        return fx.ops.take(table, i, axis=0)

    for program, backend in itertools.product((lookup, lambda i: table[i]), ("c", "python")):
        run = fx.compile(program, i="i64[N]", backend=backend)
        np.testing.assert_array_equal(run(np.array([0, -1, 3])), table[[0, -1, 3]])
        with pytest.raises(IndexError, match="4"):
            run(np.array([0, 4]))
        with pytest.raises(IndexError):
            run(np.array([-5]))


def test_missing_and_misnamed_weights() -> None:
    model = Net()
    state = {k: np.ones_like(v) for k, v in model.state_dict().items()}
    state["fc2.wieght"] = state.pop("fc2.weight")
    before = model.fc1.weight.copy()
    with pytest.raises(StateDictError) as caught:
        model.load_state_dict(state)
    text = str(caught.value)
    assert "missing: fc2.weight" in text
    assert "fc2.wieght (did you mean fc2.weight?)" in text
    np.testing.assert_array_equal(model.fc1.weight, before)  # nothing half-loaded
    state = dict(model.state_dict()) | {"fc1.bias": np.ones(4, np.float32)}
    with pytest.raises(StateDictError, match=r"fc1.bias: expected shape \(5,\), got \(4,\)"):
        model.load_state_dict(state)


def test_data_dependent_if_names_the_line() -> None:
    def program(x: Any) -> Any:
        if x.sum() > 0:
            raise ValueError("positive")
        return -x

    with pytest.raises(TraceError) as caught:
        fx.symbolic_trace(program, x="f32[4]")
    text = str(caught.value)
    assert "test_bad_input.py" in text
    assert "x.sum() > 0" in text
    assert "a branch raises ValueError: positive" in text and "instead: check it before" in text


def test_unknown_numpy_function_and_op() -> None:
    with pytest.raises(TraceError, match=r"np.linalg.*eig"):
        fx.symbolic_trace(lambda x: np.linalg.eig(x), x="f32[4,4]")
    with pytest.raises(AttributeError, match="softmax"):
        fx.ops.softmaks  # noqa: B018


def test_shape_error_names_the_line() -> None:
    def program(x: Any, y: Any) -> Any:
        return x @ y

    with pytest.raises(ValueError, match=r"(?s)matmul.*f32\[B,3\].*f32\[4,2\].*x @ y"):
        fx.symbolic_trace(program, x="f32[B,3]", y="f32[4,2]")


_TABLE = np.zeros((3, 4), np.float32)


def test_writes_into_what_the_program_does_not_own_are_refused() -> None:
    def into_a_constant(x: Any) -> Any:
        np.add(x, x, out=_TABLE)
        return x

    def into_a_view_of_it(x: Any) -> Any:
        _TABLE[1] = x[0]
        return x

    for program in (into_a_constant, into_a_view_of_it):
        with pytest.raises(TraceError, match=r"test_bad_input\.py"):
            fx.symbolic_trace(program, x="f32[3,4]")


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "ziglang", None)
    with pytest.raises(CompilerNotFound, match=r"(?s)gcc.*ziglang.*python"):
        fx.compile(Net(), x="f32[B,6]", backend="c")
    model = Net()
    run = fx.compile(model, x="f32[B,6]", backend="python")
    np.testing.assert_allclose(run(_array(2, 6)), model(_array(2, 6)), rtol=1e-6)


def test_unusable_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the cache folder should be")
    monkeypatch.setenv("FXLITE_CACHE", str(blocked / "cache"))
    model = Net()
    with pytest.warns(UserWarning, match="cache"):
        run = fx.compile(model, x="f32[B,6]", backend="c")
    np.testing.assert_allclose(run(_array(2, 6)), model(_array(2, 6)), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every write into the cache folder fails with 'no space left': a temporary folder is used."""
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path / "cache"))
    real = Path.write_text

    def full(self: Path, *args: Any, **kwargs: Any) -> int:
        if str(tmp_path / "cache") in str(self):
            raise OSError(28, "No space left on device", str(self))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", full)
    model = Net()
    with pytest.warns(UserWarning, match="No space left"):
        run = fx.compile(model, x="f32[B,6]", backend="c")
    np.testing.assert_allclose(run(_array(2, 6)), model(_array(2, 6)), rtol=1e-5, atol=1e-6)


def _compile_in_process(cache: str, queue: Any) -> None:
    os.environ["FXLITE_CACHE"] = cache
    run = fx.compile(normalize, x="f32[B,6]", y="f32[B,6]", backend="c")
    queue.put(run(_array(3, 6), _array(3, 6)))


def test_two_processes_compile_the_same_model(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_compile_in_process, args=(str(tmp_path), queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    expected = normalize(_array(3, 6), _array(3, 6))
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
