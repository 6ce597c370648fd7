"""NPBench's programs at small sizes, unchanged, traced and run: all but those named here."""

from __future__ import annotations

import pytest

from tests import npbench

#: What stops a program.
NOT_YET = {
    "azimint_naive": "a mask that selects a number of elements known when it runs",
    "channel_flow": "a while loop on a value",
    "contour_integral": "an if on a value",
    "crc16": "an if on a value",
    "mandelbrot2": "a shape that is assigned, and a mask",
    "nbody": "a mask that selects a number of elements known when it runs",
    "nussinov": "an if on a value",
    "spmv": "slices whose bounds are computed",
}


@pytest.mark.skipif(not npbench.names(), reason="NPBench is not in ../shared/programs")
def test_programs_by_others_are_traced_unchanged() -> None:
    found = {}
    for name in npbench.names():
        try:
            npbench.run(name)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    assert found.keys() == NOT_YET.keys(), {n: t for n, t in found.items() if n not in NOT_YET}
