"""The zoo's emitted C under the address and undefined-behaviour sanitizers, as a plain C
program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import fxlite as fx
from tests.zoo import ZOO


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
def test_emitted_c_is_clean(entry, tmp_path: Path) -> None:
    program, types, _ = entry.make()
    function = fx.compile(fx.symbolic_trace(program, *types), backend="c")
    function.save(tmp_path / "bundle")
    # These programs are small: unoptimized code takes a quarter of the time to build and run.
    make = ["make", "-C", str(tmp_path / "bundle"), "sanitize", "CHECKED=-O0 -g1"]
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "OK:" in done.stdout
