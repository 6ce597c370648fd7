"""``python -m tests.zoo_real``: check the models, each once, and write docs/models.md.

Results go into a file of JSON lines as they come, which a later run goes on from (``--again`` those
that failed). Models run in a process of its own, which is started anew when it ends or hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests/zoo_real/results.jsonl"
SECONDS = 240  # for one model
#: What places in messages begin with on one machine alone.
_HERE = re.compile(rf'{re.escape(str(ROOT))}/|[^\s"\\]*/site-packages/')


def known(path: Path) -> dict[str, Any]:
    """What is known of each model: later results come before earlier ones."""
    found: dict[str, Any] = {}
    for row in map(json.loads, path.read_text().splitlines() if path.exists() else ()):
        before = found.get(row["name"], {})
        found[row["name"]] = {k: v for k, v in before.items() if k != "error"} | row
    return found


def run(names: list[str], path: Path, options: list[str]) -> None:
    """Check the models in a worker, with a line for each."""
    waiting = list(names)
    while waiting:
        command = [sys.executable, "-m", "tests.zoo_real", "--worker", *options]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as worker:
            assert worker.stdin is not None and worker.stdout is not None
            while waiting:
                name = waiting.pop(0)
                worker.stdin.write(f"{name}\n")
                worker.stdin.flush()
                with selectors.DefaultSelector() as selector:
                    selector.register(worker.stdout, selectors.EVENT_READ)
                    line = worker.stdout.readline() if selector.select(SECONDS) else "hang"
                if line in ("", "hang"):
                    worker.kill()
                    what = f"no result after {SECONDS} s" if line else f"the process ended with {worker.wait()}"
                    line = json.dumps({"name": name, "stage": "ended", "error": what})
                with path.open("a") as file:
                    file.write(_HERE.sub("", line.rstrip("\n")) + "\n")
                row = json.loads(line)
                print(f"{row['name']}: {row['stage']} {row.get('error', '')[:300]}", flush=True)
                if row["stage"] == "ended":
                    break
            else:
                worker.stdin.close()


def work(with_c: bool, times: bool, onnx: bool, sizes: bool) -> None:
    """The worker: names on standard input, results on standard output."""
    import torch

    from tests.zoo_real.check import check, check_sizes

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no result
    for name in sys.stdin:
        row = check_sizes(name.strip()) if sizes else check(name.strip(), with_c, times, onnx)
        print(json.dumps(row), file=out, flush=True)


def _is_open(row: dict[str, Any] | None, options: Any) -> bool:
    """Whether a model is to be run, by what is known of it."""
    if options.sizes:
        return row is not None and row["stage"] == "right" and ("sizes" not in row or options.again)
    if row is None or row["stage"] != "right":
        return row is None or options.again
    return options.onnx and ("onnx" not in row or (options.again and row["onnx"] != "right"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="torchvision, timm, transformers, or names; default all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="those that failed, too")
    parser.add_argument("--graph", action="store_true", help="without C")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--onnx", action="store_true", help="exported to ONNX, too, run there, and imported again")
    parser.add_argument("--sizes", action="store_true", help="of models that are right: other batches and sequences")
    parser.add_argument("--table", action="store_true", help="only write docs/models.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(not options.graph, not options.no_times, options.onnx, options.sizes)
        return
    if not options.table:
        from tests.zoo_real.models import FAMILIES

        wanted = options.families or list(FAMILIES)
        names = [n for w in wanted for n in (FAMILIES[w][0]() if w in FAMILIES else [w])]
        before = known(options.results)
        names = [n for n in names if _is_open(before.get(n), options)]
        flags = ["--graph"] * options.graph + ["--no-times"] * options.no_times + ["--onnx"] * options.onnx
        run(names, options.results, flags + ["--sizes"] * options.sizes)
    from tests.zoo_real.table import write_table

    write_table(known(options.results), ROOT / "docs/models.md")


if __name__ == "__main__":
    main()
