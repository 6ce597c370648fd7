"""The inference benchmark: models agree with their twins in torch, a run without peers fills the
page, what fails is named, and ratios are to the best peer of the same accuracy class."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import inference, page, results
from tests.benchmarks import workloads as workloads_module
from tests.benchmarks.engines import Engine
from tests.benchmarks.results import OURS, Cell, Row
from tests.benchmarks.timing import Block, Comparison, Timing
from tests.benchmarks.why import Explanation
from tests.benchmarks.worker import Failed, First, Worker
from tests.benchmarks.workloads import MODELS, Job, Workload, reference, weights, workloads
from tests.roofs import ROOFS

SMALL_MODELS = ("mlp", "lstm cell", "lstm", "resnet50", "mobilenet", "pointwise")


def row(workload: str, threads: int = 2, **seconds: float) -> Row:
    """Times by engine; ``highest`` and ``torch`` are f32, ``openvino`` is bf16."""
    names = {"highest": OURS, "torch": "torch", "jax": "jax.jit", "openvino": "OpenVINO"}
    timings = {names[n]: Timing([Block(s, s, 3, 0.0)] * 5) for n, s in seconds.items()}
    cells = {name: Cell(First(1.0, 1e-6, "bf16" if name == "OpenVINO" else "f32"), 0.1, 50.0) for name in timings}
    explained = Explanation(10**9, 10**6, 0.5, "compute", 3, 0.9, "k1_conv", 0.3, 0.4)
    return Row(workload, threads, cells, Comparison(timings, threads), explained)


def test_the_best_peer_is_of_the_same_accuracy_class() -> None:
    one = row("mlp B=32", highest=1.0, torch=4.0, jax=2.0, openvino=0.1)
    assert one.best_peer(OURS) == "jax.jit"
    assert one.ratio(OURS) == pytest.approx(0.5)
    assert row("mlp B=32", highest=1.0, openvino=0.1).ratio(OURS) is None


def test_mean_ratio_is_geometric_and_leaves_matrix_products_out() -> None:
    rows = [
        row("mlp B=32", highest=1.0, torch=4.0),
        row("bert T=128", highest=1.0, torch=1.0),
        row("matmul 1024", highest=100.0, torch=1.0),
    ]
    assert results.mean_ratio(rows, OURS) == (pytest.approx(0.5), 2)
    assert results.mean_ratio([row("mlp B=1", highest=1.0)], OURS) is None


def test_what_falls_short_is_named() -> None:
    texts = results.shortfalls(
        [
            row("mlp B=1", highest=0.6, torch=1.0),
            row("mlp B=32", highest=1.0, torch=1.0),
            row("bert T=128", highest=1.2, torch=1.0),
            row("matmul 1024", highest=1.0, torch=2.0),
        ],
        [OURS],
    )
    assert texts == [
        "mlp B=1, 2 threads: fxlite highest takes 0.60 of torch's time, wanted ≤ 0.50",
        "bert T=128, 2 threads: fxlite highest takes 1.20 of torch's time, wanted ≤ 1.05",
        "matmul 1024, 2 threads: 50% of the roof, wanted ≥ 85%",
    ]


def test_start_and_memory_are_compared_with_the_peers() -> None:
    one = row("resnet18 B=1", highest=1.0, torch=2.0)
    cells = {
        OURS: Cell(First(8.0, 0.0, "f32"), 0.4, 90.0),
        "torch": Cell(First(0.0, 0.0, "f32"), None, 60.0),
        "torch.compile": Cell(First(16.0, 0.0, "f32"), None, 200.0),
    }
    texts = results.shortfalls([Row(one.workload, 2, cells, one.comparison)], [OURS])
    assert texts == [
        "resnet18 B=1: first result after 8.0 s, 0.50 of torch.compile's, wanted ≤ 0.33",
        "resnet18 B=1: first result from the cache after 0.40 s, wanted ≤ 0.3",
        "resnet18 B=1: 90 MB, torch 60 MB",
    ]


def test_why_names_the_roof_and_what_loses_most() -> None:
    assert row("resnet18 B=1", highest=1.0, torch=2.0).why == (
        "compute: 50% of the roof (1 GFLOP, 1 MB in 3 kernels); 60% of the loss in k1_conv (40%); "
        "best peer: torch, 25% of the same roof"
    )
    small = Explanation(100, 100, 1e-6, "cache", 2, 2e-6, "k0", 5e-7, 0.5)
    assert "around the kernels: 18 µs" in small.text(20e-6)


def test_a_wrong_result_has_no_time() -> None:
    class Wrong:
        def first(self) -> First:
            return First(1.0, float("nan"), "f32")

    job, options = Job("mlp B=1", Path()), inference.parse([])
    cell = inference._load({"torch": Wrong()}, "torch", job, [0], True, options)  # type: ignore[dict-item]
    assert cell.failed == "wrong result: error nan"
    bad = Row("mlp B=1", 1, {"torch": cell, OURS: Cell(failed="TypeError: no")})
    assert page.time_cell(bad, "torch") == "wrong result"
    assert page.time_cell(bad, OURS) == "fails: TypeError"


def test_an_engine_that_fails_midway_leaves_the_others() -> None:
    class Fake:
        def __init__(self, blocks: int) -> None:
            self.blocks = blocks

        def run(self, seconds: float) -> Block:
            self.blocks -= 1
            if self.blocks < 0:
                raise Failed("its process ended with -11")
            return Block(1.0, 1.0, 3, 0.0)

    cells = {"torch": Cell(), OURS: Cell()}
    workers = {"torch": Fake(2), OURS: Fake(100)}
    options = inference.parse(["--rounds", "4"])
    found = inference._compare(workers, cells, 1, options)  # type: ignore[arg-type]
    assert list(found.engines) == [OURS] and len(found.engines[OURS].blocks) == 4
    assert cells["torch"].failed == "its process ended with -11"


def test_a_missing_package_is_named() -> None:
    engine = Engine("x", lambda job, threads: pytest.fail("opened"), ("numpy", "no_such.part"))
    assert engine.missing == "no_such"
    cell = Cell(failed=f"not installed: {engine.missing}")
    assert page.time_cell(Row("mlp B=1", 1, {"x": cell}), "x") == "not installed"


def test_a_worker_says_why_it_cannot_open_a_job(tmp_path: Path) -> None:
    worker = Worker("fxlite highest", Job("mlp B=1", tmp_path), [0], patience=60)
    with pytest.raises(Failed, match=r"weights\.safetensors"):
        worker.ready()
    worker.process.kill()
    with pytest.raises(Failed, match="its process ended with -9"):
        worker.first()
    worker.close()


def test_a_run_without_peers_fills_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "machine_roofs", lambda refresh: ROOFS)
    output = tmp_path / "page.md"
    (found,) = inference.main(
        ["--only", "mlp B=1", "--engines", OURS, "--quick", "--threads", "1", "--output", str(output)]
    )
    cell = found.cells[OURS]
    assert not cell.failed and cell.first is not None and cell.cached_seconds is not None
    assert 0 < cell.first.error < 1e-5
    assert cell.memory > 0
    assert found.explanation is not None and found.explanation.flops > 10**5
    text = output.read_text()
    assert "no peer of its accuracy class" in text
    assert text.count("| mlp B=1 |") == 5  # time, why, error, first result, memory


@pytest.mark.parametrize("model", SMALL_MODELS)
def test_models_have_the_names_of_torch(model: str) -> None:
    torch_models = pytest.importorskip("tests.benchmarks.torch_models", exc_type=ImportError)
    twin = torch_models.load(model, weights(model)).state_dict()
    ours = MODELS[model]().state_dict()
    assert {n: a.shape for n, a in ours.items()} == {n: tuple(a.shape) for n, a in twin.items()}


@pytest.mark.parametrize("name", ["mlp B=1", "lstm cell loop", "lstm layer"])
def test_references_of_torch_and_numpy_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    chosen = workloads()[name]
    state = weights(chosen.model)
    theirs = reference(chosen.model, state, chosen.inputs())
    monkeypatch.setattr(workloads_module.importlib.util, "find_spec", lambda name: None)
    ours = reference(chosen.model, state, chosen.inputs())
    assert all(a.dtype == np.float64 for a in (*ours, *theirs))
    assert workloads_module.error(ours, theirs) < 1e-14


def test_every_workload_has_a_model_everywhere() -> None:
    used = {workload.model for workload in workloads().values()}
    assert used == set(MODELS)
    for module in ("torch", "jax"):
        if importlib.util.find_spec(module):
            twins = importlib.import_module(f"tests.benchmarks.{module}_models")
            assert set(twins.MODELS) == used


def test_types_are_the_shapes_or_named() -> None:
    found = workloads()["gpt2 decode P=512"]
    assert found.types(found.inputs())["keys"] == "f32[12,1,12,512,64]"
    ragged = Workload("any", "minilm", dict, dynamic=("B", "T"))
    assert ragged.types({"x": np.zeros((8, 40), np.int64)}) == {"x": "i64[B,T]"}


def test_error_is_relative_and_sees_shapes_and_nan() -> None:
    exact = [np.array([1.0, -4.0])]
    assert workloads_module.error([np.array([1.0, -3.0], np.float32)], exact) == 0.25
    assert np.isnan(workloads_module.error([np.array([1.0, np.nan])], exact))
    assert np.isnan(workloads_module.error([np.zeros(3)], exact))
