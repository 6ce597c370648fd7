"""The quantized forms of a workload, made from one float model and one set of calibration data.

In: a job of :mod:`tests.benchmarks.workloads`. Out: :func:`prepare` writes into its folder, beside
what it holds, ``calibration.npz`` and a file for each form: fxlite's graphs, ONNX models by ONNX
Runtime's quantizers, OpenVINO's by NNCF. A form that could not be made says why in a file of its
own, which :func:`files` raises.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import fxlite as fx
from fxlite.passes import quantize as q
from tests.benchmarks import workloads
from tests.benchmarks.workloads import Array, Job

#: Batches that every quantizer sees, of the shape of the inputs.
BATCHES = 4

Make = Callable[[Job, list[Path]], None]


def prepare(name: str, folder: Path, with_onnx: bool = True) -> Job:
    """Write what the engines read, and the quantized forms of those that are there."""
    job = workloads.prepare(name, folder, with_onnx)
    inputs = job.inputs()
    np.savez(folder / "calibration.npz", *(a for b in _draw(inputs) for a in b.values()))
    for form, (make, names) in FORMS.items():
        if not with_onnx and not form.startswith("fxlite"):
            continue
        paths = [folder / file for file in names]
        try:
            with silence():
                make(job, paths)
        except Exception as problem:  # the quantizer's own, of many kinds; its reader says what
            for path in paths:
                path.unlink(missing_ok=True)
            text = str(problem).strip().splitlines() or [""]
            (folder / f"{form}.failed").write_text(f"{type(problem).__name__}: {text[0]}")
    return job


def _draw(inputs: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """Other data of the same distribution: the numbers of the inputs, which are drawn independently
    of each other, in other places."""
    rng = np.random.default_rng(2)
    for _ in range(BATCHES):
        yield {n: rng.permutation(a.ravel()).reshape(a.shape) for n, a in inputs.items()}


def calibration(job: Job) -> list[dict[str, Array]]:
    """The batches by name, as the inputs are."""
    names = list(job.inputs())
    with np.load(job.folder / "calibration.npz") as file:
        arrays = [file[key] for key in file.files]
    return [dict(zip(names, arrays[n:])) for n in range(0, len(arrays), len(names))]


def files(job: Job, form: str) -> list[Path]:
    """The files of a form. Raises RuntimeError, saying why, if it could not be made."""
    failed = job.folder / f"{form}.failed"
    if failed.exists():
        raise RuntimeError(failed.read_text())
    return [job.folder / name for name in FORMS[form][1]]


def megabytes(paths: list[Path]) -> float:
    """What files take on the disk."""
    return sum(path.stat().st_size for path in paths) / 1e6


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What quantizers print while they run does not belong into the table."""
    logging.disable(logging.WARNING)
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


# -- the quantizers --------------------------------------------------------------------------------
def _fxlite(qconfig: q.QConfig | None) -> Make:
    def make(job: Job, paths: list[Path]) -> None:
        gm = fx.symbolic_trace(job.model(), inputs=job.spec.types(job.inputs()))
        if qconfig is not None:
            prepared = q.prepare(gm, q.QConfigMapping().set_global(qconfig))
            if qconfig.mode == "static":
                for batch in calibration(job):
                    prepared(*batch.values())
            gm = q.convert(prepared)
            if not any(row.bits <= 8 for row in q.report(gm).rows):
                raise RuntimeError("nothing in this model can be quantized like this")
        fx.save(gm, paths[0])

    return make


def _onnx_static(job: Job, paths: list[Path]) -> None:
    """QDQ, u8 activations and i8 weights per channel, as ONNX Runtime's guide has it for CPUs with
    VNNI; the range is that of the data."""
    from onnxruntime import quantization

    batches = iter(calibration(job))

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Array] | None:
            return next(batches, None)

    quantization.quantize_static(
        _cleaned_onnx(job),
        str(paths[0]),
        Reader(),
        per_channel=True,
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def _onnx_dynamic(job: Job, paths: list[Path]) -> None:
    from onnxruntime import quantization

    quantization.quantize_dynamic(
        _cleaned_onnx(job), str(paths[0]), per_channel=True, weight_type=quantization.QuantType.QInt8
    )


def _cleaned_onnx(job: Job) -> str:
    """Shapes inferred and batch norm folded, as ONNX Runtime's guide has it."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    job.check_onnx()
    path = job.folder / "cleaned.onnx"
    if not path.exists():
        quant_pre_process(str(job.onnx), str(path))
    return str(path)


def _nncf(job: Job, paths: list[Path]) -> None:
    import nncf
    import openvino

    job.check_onnx()
    kind = nncf.ModelType.TRANSFORMER if job.spec.model == "bert" else None
    data = calibration(job)
    model = openvino.Core().read_model(str(job.onnx))
    made = nncf.quantize(model, nncf.Dataset(data), subset_size=len(data), model_type=kind)
    openvino.save_model(made, paths[0], compress_to_fp16=False)


#: Form -> what makes it, and the names of its files.
FORMS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "fxlite float32": (_fxlite(None), ("float32.fxl",)),
    "fxlite static": (_fxlite(q.static_int8()), ("static.fxl",)),
    "fxlite dynamic": (_fxlite(q.dynamic_int8()), ("dynamic.fxl",)),
    "fxlite weights int8": (_fxlite(q.weight_only_int8()), ("weights_int8.fxl",)),
    "fxlite weights int4": (_fxlite(q.weight_only_int4()), ("weights_int4.fxl",)),
    "ONNX Runtime static": (_onnx_static, ("static.onnx",)),
    "ONNX Runtime dynamic": (_onnx_dynamic, ("dynamic.onnx",)),
    "OpenVINO NNCF": (_nncf, ("nncf.xml", "nncf.bin")),
}
