"""Quantized models: fxlite's C beside ONNX Runtime, OpenVINO and torch, all of them in int8.

    pip install -e ".[peers,test]" && pip install nncf sympy
    python -m tests.benchmarks.quantized --output docs/benchmarks_quantized.md

In: the options of :mod:`tests.benchmarks.inference`, whose processes, turns and medians these are.
Out: a table, and as ``--output`` a page. Every quantizer gets the same float weights and the same
calibration data; errors are those against the float64 result of the float model. Peers that are
not installed are named.
"""

from __future__ import annotations

import argparse

from tests.benchmarks.inference import console, finished, measure_all, parser_of
from tests.benchmarks.machine import foreign_load
from tests.benchmarks.quantized_engines import QUANTIZED
from tests.benchmarks.quantized_files import prepare
from tests.benchmarks.quantized_page import STATIC, markdown, table
from tests.benchmarks.results import Row

#: The workloads that people quantize.
NAMES = (
    "mlp B=1",
    "mlp B=32",
    "mlp B=256",
    "recommender B=16",
    "recommender B=256",
    "resnet18 B=1",
    "resnet50 B=1",
    "mobilenet B=1",
    "bert T=128",
)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    return finished(parser_of("quantized", __doc__, QUANTIZED).parse_args(arguments))


def main(arguments: list[str] | None = None) -> list[Row]:
    options = parse(arguments)
    engines = [e for e in QUANTIZED if options.engines is None or e in options.engines]
    if STATIC not in engines:
        raise SystemExit(f"--engines: {STATIC} has to be among them")
    load = foreign_load()
    page = lambda rows: markdown(rows, engines, options, load)  # noqa: E731
    rows = measure_all(NAMES, engines, options, prepare, page, STATIC)
    console().print(table(rows, engines))
    return rows


if __name__ == "__main__":
    main()
