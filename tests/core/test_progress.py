"""Long work is shown on a terminal, from its second second on; in a pipe or a file it is not."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import textwrap

import pytest

from fxlite.base import progress

#: Work inside of work, with texts that are no markup; what it prints meanwhile.
WORK = """
import sys, time
from fxlite.base import progress
progress.DELAY = {delay}
with progress.progress("outer", 3) as outer:
    outer.advance("layers[0]")
    with progress.progress("inner") as inner:
        inner.advance("[red]")
        print("printed meanwhile")
        time.sleep({seconds})
print("end")
"""


def on_terminal(script: str, **environment: str) -> str:
    """What a script writes to standard error, which is a terminal; standard output is a pipe."""
    ours, theirs = pty.openpty()
    known = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, env=known) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                more = os.read(ours, 1 << 16)
            except OSError:  # its end is closed
                break
            if not more:
                break
            text += more
        assert process.stdout is not None
        assert process.stdout.read().decode().split("\n") == ["printed meanwhile", "end", ""]
    os.close(ours)
    return text.decode()


def test_long_work_is_shown_on_a_terminal() -> None:
    text = on_terminal(WORK.format(delay=0.1, seconds=1.5))
    assert "outer" in text and "layers[0]" in text
    assert "inner" in text and "[red]" in text
    assert text.rstrip("\r\n").endswith("\x1b[2K"), "the lines are taken away at the end"


@pytest.mark.parametrize("environment", [{}, {"TTY_INTERACTIVE": "0"}, {"TERM": "dumb"}])
def test_short_work_and_simple_terminals_show_nothing(environment: dict[str, str]) -> None:
    delay = 60 if not environment else 0.05
    assert on_terminal(WORK.format(delay=delay, seconds=0.5), **environment) == ""


def test_a_pipe_shows_nothing() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WORK.format(delay=0, seconds=0.3)], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""


def test_the_steps_of_import_and_build_are_shown() -> None:
    pytest.importorskip("onnx")
    script = textwrap.dedent("""
        import fxlite as fx
        from fxlite import nn
        from fxlite.base import progress
        seen = []
        progress._display.begin = lambda work: seen.append(work)
        progress._display.end = lambda work: None
        model = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 7)).eval()
        fx.compile(fx.from_onnx(fx.to_onnx(fx.symbolic_trace(model, "f32[B,300]"))))
        print("printed meanwhile")
        importing = next(w for w in seen if w.name.startswith("import"))
        assert importing.done == importing.parts, (importing.done, importing.parts)
        names = [w.name for w in seen]
        assert {"passes", "optimize", "emit", "pack weights", "build"} <= set(names), names
        print("end")
    """)
    assert on_terminal(script) == ""


def test_work_that_fails_ends() -> None:
    before = list(progress._display.running)
    with pytest.raises(ZeroDivisionError), progress.progress("fails") as work:
        work.advance(str(1 // 0))
    assert progress._display.running == before
