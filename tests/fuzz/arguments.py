"""Wrong arguments to everything public: ``python -m tests.fuzz --arguments 5000``.

In: calls that work, and values that fit nowhere. Out: what escapes that is no error of fxlite's. In
each call one argument is exchanged, left out or added. A call may take what it is given; it may
raise an error of fxlite's, with a text, or Python's TypeError for a signature, which is raised
before anything of fxlite runs. Files that are not there are the operating system's OSErrors, and an
index out of range is NumPy's IndexError.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import FxliteError
from fxlite.cli import main
from fxlite.passes import quantize as q
from tests.table import check as table
from tests.table import functional


def _nested() -> Any:
    value: Any = 1
    for _ in range(3000):
        value = [value]
    return value


def _cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


#: Values that fit nowhere, or in few places; made anew for each call.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "3": lambda: 3,
    "-1": lambda: -1,
    "0": lambda: 0,
    "2**70": lambda: 2**70,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "True": lambda: True,
    "'x'": lambda: "x",
    "''": lambda: "",
    "NUL": lambda: "\0",
    "a long text": lambda: "(" * 5000,
    "b'x'": lambda: b"x",
    "[]": list,
    "()": tuple,
    "{}": dict,
    "{'x': 3}": lambda: {"x": 3},
    "{3: None}": lambda: {3: None},
    "[[]]": lambda: [[]],
    "nested": _nested,
    "cyclic": _cyclic,
    "(None, 1)": lambda: (None, 1),
    "1j": lambda: 1j,
    "object": object,
    "int": lambda: int,
    "np.sum": lambda: np.sum,
    "a generator": lambda: (i for i in ()),
    "...": lambda: ...,
    "a slice": lambda: slice(1),
    "np.nan": lambda: np.float32(np.nan),
    "np.int64": lambda: np.int64(-7),
    "of objects": lambda: np.array([None, 1], object),
    "of texts": lambda: np.array(["a"]),
    "complex": lambda: np.ones(2, complex),
    "empty": lambda: np.zeros((2, 0, 3), np.float32),
    "0-d": lambda: np.array(1.5),
    "big-endian": lambda: np.ones(3, ">f4"),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "rank 9": lambda: np.ones((1,) * 9, np.float32),
    "bf16": lambda: np.ones(3, ml_dtypes.bfloat16),
    "a record": lambda: np.zeros(2, [("a", "f4")]),
    "dates": lambda: np.zeros(2, "M8[D]"),
    "a module": lambda: nn.ReLU(),
    "a graph": fx.Graph,
    "a type": lambda: fx.float32[3],
}


def _program(x: Any) -> Any:
    return np.maximum(x, 0) + 1


def _module() -> fx.GraphModule:
    return fx.symbolic_trace(_program, x="f32[B,4]")


def _model() -> nn.Module:
    nn.init.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()


def _prepared() -> fx.GraphModule:
    prepared = q.prepare(_net(), q.QConfigMapping().set_global(q.static_int8()))
    prepared(*_batches())
    return prepared


def _net() -> fx.GraphModule:
    return fx.symbolic_trace(_model(), "f32[B,4]")


def _batches() -> Any:
    return [np.ones((2, 4), np.float32)]


@dataclass(frozen=True)
class Call:
    """A call that works: its text, and what makes the function and its arguments."""

    text: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]


def _is_maker(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and callable(value[0])


def _call(text: str, function: Callable[[], Any], *args: Any, **kwargs: Any) -> Call:
    """Arguments that are functions without parameters in a list of one, ``[make]``, are made."""

    def made(value: Any) -> Any:
        return value[0]() if _is_maker(value) else value

    return Call(text, lambda: (function(), tuple(made(a) for a in args), {k: made(v) for k, v in kwargs.items()}))


def _methods() -> Iterator[Call]:
    """Methods of graphs, nodes and modules."""

    def on_graph(name: str, *args: Any, **kwargs: Any) -> Call:
        def make() -> Any:
            module = _module()
            nodes = list(module.graph.nodes)
            chosen = tuple(nodes[a[0]] if isinstance(a, list) else a for a in args)
            return getattr(module.graph, name), chosen, dict(kwargs)

        return Call(f"Graph.{name}", make)

    def on_node(name: str, *args: Any) -> Call:
        def make() -> Any:
            nodes = list(_module().graph.nodes)
            chosen = tuple(nodes[a[0]] if isinstance(a, list) else a for a in args)
            return getattr(nodes[-2], name), chosen, {}

        return Call(f"Node.{name}", make)

    def on_module(name: str, *args: Any, **kwargs: Any) -> Call:
        return Call(f"GraphModule.{name}", lambda: (getattr(_net(), name), args, dict(kwargs)))

    yield on_graph("call_function", "relu", (1.0,), {}, "name")
    yield on_graph("call_module", "0", (), {}, None)
    yield on_graph("create_node", "call_function", "relu", (1.0,), {}, "name", None)
    yield on_graph("placeholder", "y", None, 3)
    yield on_graph("get_attr", "weight", None)
    yield on_graph("output", [0])
    yield on_graph("declare_dims", {})
    yield on_graph("eliminate_dead_code", None)
    yield on_graph("erase_node", [-1])
    yield on_graph("explain_size", [0], 0)
    yield on_graph("find", "relu", {"B": 3})
    yield on_graph("find_nodes", op="call_function", target="relu", sort=True)
    yield on_graph("graph_copy", _module().graph, None)
    yield on_graph("inserting_after", [0])
    yield on_graph("inserting_before", [0])
    yield on_graph("lint", True)
    yield on_graph("node_copy", [0])
    yield on_graph("rename_node", [0], "name")
    yield on_graph("to_dot", True, color="op", depth=1, fold=True)
    yield on_graph("draw", "out.dot", True, color="op", depth=1, fold=True)
    yield on_graph("copy", None)
    yield on_graph("with_origin", [0])
    yield on_graph("transaction", "label")
    yield on_node("append", [0])
    yield on_node("prepend", [0])
    yield on_node("replace_all_uses_with", [0], None)
    yield on_node("replace_input_with", [0], [0])
    yield on_node("update_arg", 0, 1.0)
    yield on_node("update_kwarg", "y", 1)
    yield on_module("add_module", "name", None)
    yield on_module("add_submodule", "name", nn.ReLU())
    yield on_module("apply", lambda m: None)
    yield on_module("astype", "f64")
    yield on_module("delete_submodule", "0")
    yield on_module("get_buffer", "0.weight")
    yield on_module("get_parameter", "0.weight")
    yield on_module("get_submodule", "0")
    yield on_module("get_attribute", "0.weight")
    yield on_module("set_attribute", "0.weight", np.ones((3, 4), np.float32))
    yield on_module("load_state_dict", {}, False, False)
    yield on_module("named_modules", "", True)
    yield on_module("named_parameters", "", True, True)
    yield on_module("register_buffer", "name", np.ones(3, np.float32), True)
    yield on_module("register_parameter", "name", None)
    yield on_module("requires_grad_", True)
    yield on_module("specialize", {"B": 3})
    yield on_module("state_dict", "")
    yield on_module("summary", 1)
    yield on_module("to_folder", "folder", "name")
    yield on_module("train", False)
    yield on_module("forward", np.ones((2, 4), np.float32))
    yield on_module("run_flat", {"x": np.ones((2, 4), np.float32)})
    yield on_module("flatten_inputs", {"x": np.ones((2, 4), np.float32)}, False)
    yield on_module("__call__", np.ones((2, 4), np.float32))


def _functions() -> Iterator[Call]:
    """Functions of fxlite, its passes and quantization."""
    mapping = [lambda: q.QConfigMapping().set_global(q.static_int8())]

    def named(owner: Any, name: str, /, *args: Any, **kwargs: Any) -> Call:
        label = f"{owner.__name__.removeprefix('fxlite.')}.{name}"
        return _call(label, lambda: getattr(owner, name), *args, **kwargs)

    yield named(fx, "symbolic_trace", _program, "f32[B,4]", concrete_args=None, leaf=(), tracer=None)
    yield named(fx, "trace_doctor", _program, "f32[B,4]", concrete_args=None, leaf=(), inputs=None)
    yield named(fx, "symbolic_trace", _program, inputs={"x": "f32[B,4]"})
    compiled: dict[str, Any] = {"threads": 1, "matmul_precision": "highest", "autotune": False, "profile": False}
    yield named(fx, "compile", _program, "f32[4]", backend="python", **compiled)
    yield named(fx, "parse", _module().graph.text(full=True))
    yield named(fx, "parse_type", "f32[B,3]")
    yield named(fx, "dims", "B T", min=1, max=8, multiple_of=1)
    yield named(fx, "load", "module.fxl")
    yield named(fx, "save", [_module], "saved.fxl")
    yield named(fx, "load_safetensors", "x.safetensors", False)
    yield named(fx, "save_safetensors", {"x": np.ones(3)}, "y.safetensors")
    yield named(fx, "diff", [_module], [_module], 3)
    yield named(fx, "assert_same", [_module], [_module], check_weights=True, rtol=0.0, atol=0.0)
    yield named(fx, "replace_pattern", [_module], lambda x: x + 1, lambda x: x + 2, None)
    yield named(fx, "wrap", _program, infer=None)
    yield named(fx, "Graph", None)
    yield named(fx, "GraphModule", {}, [lambda: _module().graph])
    yield named(fx, "Interpreter", [_module], True)
    yield named(fx, "TensorType", (3,), fx.float32)
    yield named(fx, "Tracer", ())
    for one in (
        passes.dce,
        passes.cse,
        passes.simplify,
        passes.fuse_conv_bn,
        passes.channels_last,
        passes.merge_linears,
        passes.store_bf16,
    ):
        yield _call(f"passes.{one.name}", lambda one=one: one, [_net])  # type: ignore[misc]
    yield named(passes, "const_fold", [_net], limit=100)
    yield named(passes, "cast_floats", [_net], dtype="bf16")
    yield named(passes, "decompose", [_net], keep=frozenset())
    yield named(passes, "quantize_weights", [_net], bits=8, group_size=32)
    yield named(passes, "PassManager", (passes.dce, "cse"), True)
    yield named(passes, "RuleSet", (), "name", 10)
    yield named(passes, "allclose", 1e-5, 1e-5)
    yield named(passes, "sqnr", 30.0)
    yield named(passes, "cost", [_net], {"B": 3})
    yield named(passes, "memory_timeline", [_net], {"B": 3})
    yield named(passes, "peak_memory", [lambda: _net().graph], {"B": 3})
    yield named(passes, "explain", [_net], lambda x: x + 1, None)
    yield named(passes, "find_matches", [_net], lambda x: x + 1, None)
    yield named(passes, "extract_subgraph", [_net], ["linear"])
    yield named(passes, "split_module", [_net], lambda n: 0)
    yield named(passes, "partition", [_net], lambda n: True, 1)
    yield named(passes, "source_partitions", [_net], "Linear")
    yield named(passes, "shape_prop", _program, "f32[B,4]")
    yield named(passes, "verify", [_net], [_net], "allclose", "name")
    yield named(passes, "ledger", [_net])
    yield named(passes, "rule", _program, name="name", exactness="exact", register=False)
    yield named(passes, "graph_pass", _program, name="name", exactness="exact")
    yield named(passes, "node_rule", "relu", name="name", register=False)
    yield named(passes, "minimize", [_net], _batches(), is_bad=lambda m, i: True)
    yield named(passes, "pays_when", [_net], [_net], "B", "bytes")
    yield named(passes, "write_repro", "repro.py", [_net], None, _batches(), "")
    yield named(passes, "analyze_rules", ())
    yield named(q, "prepare", [_net], mapping)
    yield named(q, "prepare_qat", [_net], mapping)
    yield named(q, "convert", [_prepared])
    yield named(q, "quantize", [_net], mapping, [_batches])
    yield named(q, "static_int8", "mse", activation="u8", averaging=0.01, percentile=99.99)
    yield named(q, "dynamic_int8", weight_observer="minmax")
    yield named(q, "weight_only_int4", 32, weight_observer="mse")
    yield named(q, "Scheme", "i8", True, "tensor", None, "minmax", 0.01)
    yield named(q, "QConfig", "name", None, q.Scheme(), False, None)
    yield named(q, "make_observer", q.Scheme(), "a value", None)
    yield named(q, "equalize", [_net])
    yield named(q, "smooth_quant", [_net], [_batches], 0.5, False)
    yield named(q, "correct_bias", [_prepared], [_batches])
    yield named(q, "gptq", [_prepared], [_batches], 0.01)
    yield named(q, "report", [lambda: q.convert(_prepared())], {"B": 3}, None)
    yield named(q, "results_sqnr", [_net], [_net], [_batches])
    yield named(q, "load_plan", "plan.toml", [_net])
    for name in "set_global set_module_name set_op".split():
        if hasattr(q.QConfigMapping, name):
            first = () if name == "set_global" else ("linear",)
            method = functools.partial(_of_mapping, name)
            yield _call(f"QConfigMapping.{name}", method, *first, q.static_int8())


def _of_mapping(name: str) -> Callable[..., Any]:
    return getattr(q.QConfigMapping(), name)  # type: ignore[no-any-return]


def _of_nn() -> Iterator[Call]:
    """Every function of nn.functional, on arrays and in a trace."""
    done: Counter[str] = Counter()
    for row in functional.functions():
        if "pad(a, (-1" in row.text or "f32" not in " ".join(row.types) or re.search("f16|f64", " ".join(row.types)):
            continue
        done[row.text] += 1
        if done[row.text] > 1:
            continue
        arrays = table.arrays_of(row, row.sizes[-1])
        arguments: list[Any] = []

        def catch(*args: Any, arguments: list[Any] = arguments, **kwargs: Any) -> tuple[None, None]:
            arguments[:] = args, kwargs
            return None, None  # a row may take one of two results

        name = row.function.partition(".")[2]
        space = {"functional": SimpleNamespace(**{name: catch}), "np": np}
        eval(row.text, {**space, **dict(zip("abcdefgh", arrays))})
        args, kwargs = arguments
        function = getattr(nn.functional, name)
        yield Call(row.text, lambda f=function, a=args, k=kwargs: (f, a, dict(k)))  # type: ignore[misc]
        yield Call(
            f"traced {row.text}",
            lambda f=function, a=args, k=kwargs: (  # type: ignore[misc]
                _Traced(f),
                a,
                dict(k),
            ),
        )


@dataclass(frozen=True)
class _Traced:
    """A function whose first argument is traced; what is no array is what a program writes."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args or type(args[0]) is not np.ndarray:
            return self.function(*args, **kwargs)
        first, *others = args
        return fx.symbolic_trace(lambda x: self.function(x, *others, **kwargs), first)


def calls() -> list[Call]:
    """Calls that work."""
    return [*_functions(), *_methods(), *_of_nn()]


@dataclass
class ArgumentCounts:
    """What was tried, and what came of it."""

    tried: int = 0
    refused: int = 0
    taken: int = 0
    signature: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.tried:,} calls: {self.refused:,} refused by fxlite, {self.signature:,} by "
            f"their signature, {self.taken:,} taken, {len(self.failures):,} failures"
        )


def check_arguments(count: int, seed: int, counts: ArgumentCounts) -> None:
    """Try ``count`` calls with one wrong argument each, and as many command lines as a tenth."""
    rng = random.Random(seed)
    tried = [(c, place, wrong) for c in calls() for place in _places(c) for wrong in WRONG]
    chosen = tried if count >= len(tried) else rng.sample(tried, count)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        registered = dict(passes.PASSES)
        fx.save(_module(), "module.fxl")
        fx.save_safetensors({"x": np.ones(3)}, "x.safetensors")
        Path("plan.toml").write_text("")
        Path("model.py").write_text("def program(x):\n    return x + 1\n")
        for call, place, wrong in chosen:
            _try(call, place, wrong, counts)
        passes.PASSES.clear()  # of those that were made on the way
        passes.PASSES.update(registered)
        for line in _command_lines(rng, count // 10):
            _try_command(line, counts)


def _places(call: Call) -> list[int | str]:
    """Arguments that can be exchanged; -1: one more."""
    _, args, kwargs = call.make()
    return [*range(len(args)), *kwargs, -1]


def _try(call: Call, place: int | str, wrong: str, counts: ArgumentCounts) -> None:
    function, args, kwargs = call.make()
    value = WRONG[wrong]()
    if place == "is_bad" and callable(value):
        return  # a predicate of the user's, whose errors are its own
    if place == -1:
        args = (*args, value)
    elif isinstance(place, int):
        args = (*args[:place], value, *args[place + 1 :])
    else:
        kwargs = {**kwargs, place: value}
    counts.tried += 1
    label = f"{call.text}, argument {place!r}: {wrong}"
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), _quiet():
            warnings.simplefilter("ignore")
            result = function(*args, **kwargs)
            if isinstance(result, Iterator):
                list(result)
    except FxliteError as error:
        counts.refused += 1
        if len(str(error)) < 8 or len(str(error)) > 9000:
            counts.failures.append(f"{label}: an error of {len(str(error))} characters")
    except TypeError as error:
        trace = error.__traceback__
        if trace is not None and trace.tb_next is None:
            counts.signature += 1
        else:
            _fail(counts, label, error)
    except (OSError, IndexError) as error:
        counts.refused += 1
        if not str(error):
            _fail(counts, label, error)
    except Exception as error:
        _fail(counts, label, error)
    else:
        counts.taken += 1


def _fail(counts: ArgumentCounts, label: str, error: Exception) -> None:
    """Note an error of Python's or NumPy's, unless a program of the user's raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        if trace.tb_frame.f_code is _program.__code__:
            counts.taken += 1
            return
    where = ""
    if trace is not None:
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    text = str(error).partition("\n")[0][:120]
    counts.failures.append(f"{label}: {type(error).__name__}: {text} ({where})")


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        yield shown


# -- the command line ------------------------------------------------------------------------------
_PROGRAM = ("model.py:program", "--input", "x=f32[B,4]")
_LINES = (
    ("trace", *_PROGRAM),
    ("trace", "module.fxl"),
    ("trace", *_PROGRAM, "--passes", "cse,dce"),
    ("compile", *_PROGRAM, "--backend", "python", "-o", "out"),
    ("check", *_PROGRAM, "--match", "add"),
    ("diff", "module.fxl", "module.fxl"),
    ("cost", *_PROGRAM, "--size", "B=8"),
    ("info",),
    ("cost", *_PROGRAM, "--size", "B=8", "--range", "B=1,2"),
    ("quantize", *_PROGRAM, "--data", "x.npz", "-o", "q.fxl"),
    ("new-pass", "my_pass"),
    ("trace", *_PROGRAM, "--dim", "B=1..8", "--weights", "x.safetensors"),
)
_WORDS = (
    "",
    " ",
    "=",
    "x",
    "x=",
    "=f32[3]",
    "x=f32[",
    "x=f32[B,4],y",
    "x=c64[3]",
    "x=f32[-1]",
    "B=",
    "B=x",
    "B=-1",
    "B=9" * 9,
    "B=1e9",
    "model.py",
    "model.py:",
    "model.py:nothing",
    ":program",
    "none.py:f",
    "module.fxl:x",
    "x.safetensors",
    "plan.toml",
    "/",
    ".",
    "..",
    "\u2028",
    "a" * 300,
    "--",
    "-",
    "-1",
    "nan",
    "[bold]",
    "{}",
    "%s",
    "cse,",
    ",",
    "cse,nothing",
    "B=8..1",
    "B=1..8%0",
    "8",
    "python",
    "é",
)


def _command_lines(rng: random.Random, count: int) -> Iterator[list[str]]:
    """Command lines that work with a word exchanged, left out or added."""
    for _ in range(count):
        line = list(rng.choice(_LINES))
        at, word = rng.randrange(len(line)), rng.choice(_WORDS)
        kind = rng.random()
        if kind < 0.6:
            line[at] = word
        elif kind < 0.8:
            line.insert(at + 1, word)
        else:
            del line[at]
        yield line


def _try_command(line: list[str], counts: ArgumentCounts) -> None:
    counts.tried += 1
    label = f"fxlite {' '.join(map(repr, line))[:200]}"
    try:
        with _quiet() as shown, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status = main(line)
    except SystemExit as error:
        counts.signature += 1
        if error.code not in (0, 2) or "Traceback" in shown.getvalue():
            counts.failures.append(f"{label}: exit status {error.code}")
    except Exception as error:
        _fail(counts, label, error)
    else:
        counts.taken += status == 0
        counts.refused += status != 0
        if "--debug shows" in shown.getvalue() or (status and not shown.getvalue().strip()):
            counts.failures.append(f"{label}: {shown.getvalue()[:200]!r}")
