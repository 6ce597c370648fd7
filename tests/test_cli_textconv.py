"""``fxlite textconv``, alone and as a driver of ``git diff``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.passes import PassManager
from tests.command_line import run


def net() -> Any:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    for number, array in enumerate(model.state_dict().values()):
        array[...] = number
    return model.eval()


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = fx.dims("B", min=1, max=8)
    gm = fx.symbolic_trace(net(), fx.dtypes.float32[b, 3, 8, 8])
    fx.save(PassManager(["fuse_conv_bn"])(gm), tmp_path / "net.fxl")
    status, shown, _ = run(capsys, "textconv", str(tmp_path / "net.fxl"))
    lines = shown.splitlines()
    assert status == 0 and lines[:3] == ["program Sequential", "passes: fuse_conv_bn", "dim B: 1 to 8"]
    assert any("= ops.conv2d(" in line for line in lines)
    weights = lines[lines.index("weights") + 1 :]
    assert weights[0].startswith("0.weight  f32[4,3,3,3]  parameter  sha256 ")
    (tmp_path / "bad.fxl").write_bytes(b"nothing")
    status, shown, error = run(capsys, "textconv", str(tmp_path / "bad.fxl"))
    assert status == 1 and not shown and "not a .fxl file" in error


@pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")
def test_git_diff(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
        "HOME": str(tmp_path),
    }

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("init", "-q")
    (tmp_path / ".gitattributes").write_text("*.fxl diff=fxlite\n")
    git("config", "diff.fxlite.textconv", f"'{sys.executable}' -m fxlite textconv")
    gm = fx.symbolic_trace(net(), x="f32[B,3,8,8]")
    fx.save(gm, tmp_path / "net.fxl")
    git("add", ".")
    git("commit", "-qm", "one")
    fx.save(gm, tmp_path / "net.fxl")
    assert not git("status", "--porcelain", "-uno"), "the same bytes"
    gm.set_attribute("0.bias", nn.Parameter(np.full(4, 7, np.float32)))
    fx.save(gm, tmp_path / "net.fxl")
    changed = [line for line in git("diff").splitlines() if line[:1] in "+-"][2:]
    assert len(changed) == 2 and all("0.bias  f32[4]" in line for line in changed)
    fx.save(PassManager(["fuse_conv_bn"])(gm), tmp_path / "net.fxl")
    assert "-    batch_norm: f32[B,4,6,6] = " in git("diff")
