"""Folders of sources are the same, byte for byte, in each process that writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import FxliteError


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.bn = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        y = nn.functional.relu(self.bn(self.conv(x)))
        weights = nn.functional.softmax(self.fc(y.transpose(0, 2, 3, 1)), dim=-1)
        return x + weights.transpose(0, 3, 1, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(4) for _ in range(3)])
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        y, _ = self.lstm(x.mean(axis=3).transpose(2, 0, 1))
        return {"image": x, "steps": y}


net = Net().eval()
for number, array in enumerate(net.state_dict().values()):
    array[...] = 1 / (number + 2)
gm = fx.symbolic_trace(net, x="f32[B,4,5,5]")
out = sys.argv[1]
fx.compile(gm, backend="c").save(f"{out}/c")
fx.compile(gm.specialize(B=2), backend="embedded").save(f"{out}/embedded")
try:
    fx.compile(gm, backend="cuda", device="sm_90").save(f"{out}/cuda")
except FxliteError as error:  # no CUDA toolkit
    print(error)
optimized = passes.PassManager(["fuse_conv_bn", "simplify", "cse"])(gm)
optimized.to_folder(f"{out}/python")
optimized.to_folder(f"{out}/numpy", dialect="numpy")
fx.save(passes.quantize_weights(optimized), f"{out}/net.fxl")
"""


def test_two_processes_write_the_same(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    found = []
    for seed in ("1", "2"):
        out = tmp_path / f"out{seed}"
        out.mkdir()
        cache = str(tmp_path / f"cache{seed}")
        environment = {**os.environ, "PYTHONHASHSEED": seed, "FXLITE_CACHE": cache, "FXLITE_CFLAGS": "-O0"}
        subprocess.run([sys.executable, str(script), str(out)], check=True, env=environment)
        files = (p for p in sorted(out.rglob("*")) if p.is_file())
        found.append({p.relative_to(out).as_posix(): p.read_bytes() for p in files})
    first, second = found
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert {"c/net.c", "c/manifest.json", "python/net.py", "numpy/net.npz", "net.fxl"} <= {*first}
