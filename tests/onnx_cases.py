"""ONNX's official test cases: the node cases that the package ``onnx`` generates, and the models that
it ships.

Each is imported, run as a graph and as C, and compared with what ONNX expects:

    python -m tests.onnx_cases                    all; goes on where it was stopped, writes docs/onnx.md
    python -m tests.onnx_cases 'softmax' --list   those with a matching name, and what is wrong with each

Results are kept beside the cache of builds, for the files of fxlite as they are.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import pickle
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.codegen.runtime.cache import cache_folder, file_digest, intact_file, mark_used, publish
from fxlite.importing.narrow import widened
from fxlite.importing.onnx.model import TABLE, coverage
from fxlite.importing.onnx.registry import Unknown
from fxlite.types.tensor_type import type_of

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("pytorch-converted", "pytorch-operator", "simple", "light")

#: Why a case is not applicable: what its error says -> a reason.
REASONS = {
    r"holds text \(string\)": "texts (strings) are no values of fxlite",
    r"training mode, in which": "training: it draws random numbers",
    r"preview\.training": "training: an optimizer's step",
    r"ImageDecoder": "decodes image files",
    r"TfIdfVectorizer": "counts n-grams in a table; its result is a matter of texts",
    r"TreeEnsemble": "trees of decisions",
    r"sparse": "sparse tensors are no values of fxlite",
    r"RandomUniform|RandomNormal|Bernoulli|Multinomial": "draws random numbers, which no case can expect",
}


#: Half types are compared up to two roundings: references round elsewhere between their steps.
_LEAST = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@dataclass(frozen=True)
class Outcome:
    """What came of one case: of each way to run it "", or what is wrong."""

    name: str
    ops: tuple[str, ...]
    graph: str
    c: str

    @property
    def reason(self) -> str:
        """Why it is not right; "" where it is."""
        problem = self.graph or self.c
        return next((r for pattern, r in REASONS.items() if re.search(pattern, problem)), problem)


@dataclass(frozen=True)
class Case:
    """A model with inputs and expected results."""

    name: str
    model: Any
    inputs: list[Any]
    expected: list[Any]
    rtol: float
    atol: float


# -- the cases -------------------------------------------------------------------------------------
@functools.cache
def cases() -> dict[str, Case]:
    """All cases by name. They are kept in fxlite's cache, because ONNX computes what it expects when it makes them."""
    import onnx

    facts = ["onnx cases", onnx.__version__, np.__version__, file_digest(Path(__file__))]
    place = cache_folder() / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    known = intact_file(place, "cases.pickle")
    if known is not None:
        mark_used(place)
        return {case["name"]: Case(**case) for case in pickle.loads(known.read_bytes())}
    found = _made()
    publish(pickle.dumps([vars(case) for case in found.values()]), place, "cases.pickle")
    return found


def _made() -> dict[str, Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = [
            Case(t.name, t.model, list(t.data_sets[0][0]), list(t.data_sets[0][1]), t.rtol, t.atol)
            for t in collect_testcases(None)
        ]
    return {c.name: c for c in [*found, *_shipped()]}


def _shipped() -> Iterator[Case]:
    """The models in files, with their data."""
    import onnx
    from onnx import numpy_helper

    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for folder in SHIPPED:
        for path in sorted((data / folder).glob("*")):
            model_file = path / "model.onnx" if path.is_dir() else path
            if model_file.suffix != ".onnx" or not model_file.is_file():
                continue
            if folder == "light":  # numbers in a row, as ONNX's runner makes them
                model = onnx.load(path)
                held = {t.name for t in model.graph.initializer}
                (image,) = [i for i in model.graph.input if i.name not in held]
                shape = [d.dim_value for d in image.type.tensor_type.shape.dim]
                given = (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
                expected = _read(path.with_name(f"{path.stem}_output_0.pb"), onnx, numpy_helper)
                yield Case(path.stem, path.read_bytes(), [given], [expected], 1e-3, 1e-5)
                continue
            values = []
            for kind in ("input", "output"):
                files = sorted(
                    (path / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda p: int(p.stem[len(kind) + 1 :])
                )
                values.append([_read(f, onnx, numpy_helper) for f in files])
            yield Case(path.name, model_file.read_bytes(), *values, 1e-3, 1e-5)


def _read(path: Path, onnx: Any, helper: Any) -> Any:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return helper.to_array(tensor)
    except Exception:  # a sequence or an optional, in messages of their own
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(path.read_bytes())
        return [helper.to_array(t) for t in sequence.tensor_values]


# -- one case --------------------------------------------------------------------------------------
def array(value: Any) -> Any:
    """A value of a case as fxlite has it: narrow types widened."""
    import onnx
    from onnx import numpy_helper

    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if value is None or isinstance(value, (list, tuple)):
        return value if value is None else [array(v) for v in value]
    held = np.asarray(value)
    return held.astype(widened(held.dtype))


def imported(case: Case) -> tuple[fx.GraphModule, list[Any]]:
    """The graph of a case and what it is called with. Inputs whose values have to be known are baked
    in, as ``sizes=`` does for users; sizes are named where the case names them and that can be done."""
    import onnx

    model = case.model
    if isinstance(model, bytes):
        model = onnx.ModelProto()
        model.ParseFromString(case.model)
    held = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in held]
    values = dict(zip(names, case.inputs))
    sizes: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            sizes[name] = [type_of(array(v)) for v in value]
        elif value is None:
            sizes[name] = None
    concrete = False
    while True:
        try:
            module = fx.from_onnx(model, sizes)
            break
        except Unknown as error:
            more = [n for n in error.inputs if n not in sizes or isinstance(sizes[n], fx.TensorType)]
            if not more:
                raise
            sizes.update((n, np.asarray(values[n])) for n in more)
        except FxliteError as error:
            if concrete or "holds text" in str(error):
                raise
            concrete = True
            typed = {n: type_of(array(v)) for n, v in values.items() if n not in sizes}
            if not any(
                i.type.tensor_type.shape.dim and any(d.dim_param for d in i.type.tensor_type.shape.dim)
                for i in model.graph.input
            ):
                raise
            sizes.update(typed)
    baked = {n for n, v in sizes.items() if not isinstance(v, (list, fx.TensorType))}
    return module, [array(values[n]) for n in names if n not in baked]


def difference(results: Any, expected: list[Any], case: Case) -> str:
    """What differs between results and what is expected; "" for nothing."""
    found = [results] if len(expected) == 1 else list(results)
    if len(found) != len(expected):
        return f"{len(found)} results, {len(expected)} expected"
    for number, (value, want) in enumerate(zip(found, expected)):
        if isinstance(want, (list, tuple)):
            inner = (
                difference(tuple(value), list(want), case) if len(want) != 1 else difference(value[0], list(want), case)
            )
            if len(value) != len(want) or inner:
                return inner or f"result {number} has {len(value)} elements, {len(want)} expected"
            continue
        if want is None or value is None:
            if want is not value:
                return f"result {number} is {value!r}, {want!r} expected"
            continue
        one, other = np.asarray(value), array(want)
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"result {number} is {one.dtype}{one.shape}, {other.dtype}{other.shape} expected"
        if other.dtype.kind in "fVc":
            wide = np.complex128 if other.dtype.kind == "c" else np.float64
            one, other = one.astype(wide), other.astype(wide)
            least = _LEAST.get(np.dtype(value.dtype).name, 0.0)
            rtol, atol = max(case.rtol, 2 * least), max(case.atol, least)
            largest = np.max(np.abs(other[np.isfinite(other)]), initial=0.0)
            atol = max(atol, 2.0**-21 * largest)  # some roundings of the largest element, in float32
            if not np.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True):
                return f"result {number} differs by {np.nanmax(np.abs(one - other)):.3g}"
        elif not np.array_equal(one, other):
            return f"result {number} differs in {np.count_nonzero(one != other)} of {one.size} elements"
    return ""


def check(name: str, with_c: bool = True) -> Outcome:
    """Run one case."""
    case = cases()[name]
    graph = c = ""
    ops: tuple[str, ...] = ()
    try:
        ops = tuple(sorted({op for op, _, _ in coverage(case.model)}))
        module, inputs = imported(case)
        results = module(*inputs)
        graph = difference(results, case.expected, case)
        if with_c and not graph:
            c = difference(fx.compile(module, backend="c")(*inputs), case.expected, case)
    except Exception as error:  # whatever it is, it is the case's outcome
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        graph, c = ("", text) if "results" in locals() else (text, "")
    return Outcome(name, ops, graph, c)


def listed() -> set[str]:
    """The cases that docs/onnx.md names as not right."""
    page = ROOT / "docs" / "onnx.md"
    return set(re.findall(r"`(test_\w+)`", page.read_text())) if page.is_file() else set()


# -- all of them -----------------------------------------------------------------------------------
def _digest() -> str:
    found = hashlib.sha256()
    for top in ("fxlite", "passes", "codegen"):
        for path in sorted((ROOT / top).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def run_all(names: Sequence[str], workers: int, again: bool) -> list[Outcome]:
    """The outcomes of cases; those that are kept are not run again."""
    file = cache_folder() / f"onnx_cases_{'' if again else _digest()}.jsonl"
    known: dict[str, Outcome] = {}
    if file.is_file() and not again:
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            known[entry["name"]] = Outcome(entry["name"], tuple(entry["ops"]), entry["graph"], entry["c"])
    todo = [n for n in names if n not in known]
    file.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers) as pool, file.open("a") as kept:
        for number, outcome in enumerate(pool.map(check, todo, chunksize=4), 1):
            known[outcome.name] = outcome
            kept.write(json.dumps(outcome.__dict__) + "\n")
            kept.flush()
            if number % 50 == 0:
                print(f"{number} of {len(todo)}", file=sys.stderr, flush=True)
    return [known[n] for n in names]


MARK = "<!-- generated by python -m tests.onnx_cases -->\n"


def page(outcomes: Sequence[Outcome]) -> str:
    """The generated part of docs/onnx.md."""
    graph, c = sum(not o.graph for o in outcomes), sum(not o.reason for o in outcomes)
    lines = [
        f"{len(outcomes)} cases, {graph} right in the graph ({graph / len(outcomes):.1%}), "
        f"{c} in C ({c / len(outcomes):.1%}).",
        "",
        "| op | becomes | cases with it | right in the graph | in C |",
        "|---|---|---|---|---|",
    ]
    counts: dict[str, list[int]] = {}
    for o in outcomes:
        for op in o.ops:
            row = counts.setdefault(op, [0, 0, 0])
            for i, right in enumerate((True, not o.graph, not o.reason)):
                row[i] += right
    known = {f"{domain}.{name}" if domain else name: row for (domain, name), row in TABLE.items()}
    for op in sorted({*counts, *known}, key=lambda name: ("." in name, name)):
        row, (cases_, right, in_c) = known.get(op), counts.get(op, [0, 0, 0])
        becomes = "its definition in ONNX" if row is None else "fxlite's ops"
        becomes += f"; {row.partly}" if row is not None and row.partly else ""
        becomes = "nothing" if row is None and not right else becomes
        lines.append(f"| {op} | {becomes} | {cases_ or ''} | {right if cases_ else ''} | {in_c if cases_ else ''} |")
    lines += ["", "### Cases that are not right", ""]
    reasons: dict[str, list[str]] = {}
    for o in outcomes:
        if o.reason:
            way = "" if o.graph else "in C: "
            reasons.setdefault(way + o.reason.replace("|", "/"), []).append(o.name)
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        lines += [f"- {reason} ({len(names)}): {', '.join(f'`{n}`' for n in names)}"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print what is wrong with each")
    parser.add_argument("--again", action="store_true", help="run what is known already")
    given = parser.parse_args()
    names = [n for n in cases() if re.search(given.pattern, n)]
    outcomes = run_all(names, given.workers, given.again)
    graph, c = sum(not o.graph for o in outcomes), sum(not (o.graph or o.c) for o in outcomes)
    print(f"{len(outcomes)} cases: {graph} right in the graph, {c} in C")
    if not given.pattern:
        path = ROOT / "docs" / "onnx.md"
        top = path.read_text().partition(MARK)[0]
        path.write_text(top + MARK + "\n" + page(outcomes))
    if given.list:
        for o in outcomes:
            if o.reason:
                print(f"{o.name}: {o.graph or 'C: ' + o.c}")
    counts = Counter(o.reason for o in outcomes if o.reason)
    for reason, count in counts.most_common(40):
        print(f"{count:5} {reason[:160]}")


if __name__ == "__main__":
    main()
