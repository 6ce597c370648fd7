"""Wrong arguments to the public functions: each is refused by an error of fxlite's that says what
it stands for, what was expected and what it is; and files are written whole or not at all."""

from __future__ import annotations

import errno
import importlib
import inspect
import pickle
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import FxliteError
from fxlite.passes import quantize as q
from tests.fuzz.arguments import ArgumentCounts, check_arguments


def program(x: Any) -> Any:
    return x + 1


def module() -> fx.GraphModule:
    return fx.symbolic_trace(program, x="f32[B,4]")


def graph() -> fx.Graph:
    return module().graph


STATIC = q.QConfigMapping().set_global(q.static_int8())
BATCHES = [np.ones((2, 4), np.float32)]

#: What is called, and a part of the message.
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "trace None": (lambda: fx.symbolic_trace(None), "a program is a function.* not NoneType"),
    "trace a number": (lambda: fx.symbolic_trace(3, "f32[B]"), "a program is a function.* not 3"),
    "trace a generator": (lambda: fx.symbolic_trace(i for i in ()), "not generator"),
    "doctor": (lambda: fx.trace_doctor(3), "a program is a function.* not 3"),
    "a dtype as type": (lambda: fx.symbolic_trace(program, np.float32), r"input x: float32 is a class.*f32\[B,4\]"),
    "a dtype of a type": (lambda: fx.TensorType((3,), "f31"), "'f31' is not a dtype fxlite knows"),
    "a dtype as shape": (lambda: fx.TensorType(fx.float32, (3,)), "a shape is a tuple of sizes"),
    "concrete_args": (
        lambda: fx.symbolic_trace(program, "f32[B]", concrete_args=3),
        "concrete_args must be a dict, not 3",
    ),
    "tracer": (lambda: fx.symbolic_trace(program, "f32[B]", tracer=fx.Tracer), "tracer= must be a Tracer"),
    "leaf": (lambda: fx.symbolic_trace(program, "f32[B]", leaf=3), "leaf= must be .* not 3"),
    "compile None": (lambda: fx.compile(None), "a program is a function"),
    "back end": (lambda: fx.compile(program, "f32[B]", backend=["c"]), "no back end .*'c'"),
    "autotune": (lambda: fx.compile(program, "f32[B]", autotune="on"), "autotune= must be a bool"),
    "profile": (lambda: fx.compile(program, "f32[B]", profile="on"), "profile= must be a bool"),
    "tune_sizes": (lambda: fx.compile(program, "f32[B]", autotune=True, tune_sizes=3), "tune_sizes= must be a"),
    "Interpreter": (lambda: fx.Interpreter(None), "interpreted program must be a GraphModule, not NoneT"),
    "Transformer": (lambda: fx.Transformer(3), "interpreted program must be a GraphModule, not 3"),
    "initial_env": (lambda: fx.Interpreter(module()).run(initial_env=3), "initial_env must be a"),
    "a key of initial_env": (lambda: fx.Interpreter(module()).run(initial_env={"x": 3}), "initial_env must be a Node"),
    "pass of None": (lambda: passes.dce(None), "a program is a function.* not NoneType"),
    "pass of a graph": (lambda: passes.dce(graph()), "a program is a function.* not Graph"),
    "PassManager": (lambda: passes.PassManager(3), "passes of a PassManager must be a list"),
    "a pass that is a number": (lambda: passes.PassManager([3]), "a pass is a name or a function"),
    "pattern": (lambda: fx.replace_pattern(module(), 3, program), "a pattern must be a function"),
    "rewritten": (lambda: fx.replace_pattern(3, program, program), "edits must be a GraphModule"),
    "explained": (lambda: passes.explain(module(), 3), "a pattern must be a function, not 3"),
    "cost": (lambda: passes.cost(3), "what is counted must be a GraphModule, not 3"),
    "profiled": (lambda: passes.profile(None), "what is run must be a GraphModule"),
    "extracted": (lambda: passes.extract_subgraph(module(), [3]), "extracted must be a Node"),
    "split": (lambda: passes.split_module(module(), 3), "split_callback must be a function"),
    "save": (lambda: fx.save(program, "x.fxl"), "the saved value must be a GraphModule"),
    "save, swapped": (lambda: fx.save("x.fxl", module()), "the saved value must be a GraphModule"),
    "parse": (lambda: fx.parse(None), "the text of a graph must be a str"),
    "parse bytes": (lambda: fx.parse(b"x"), "the text of a graph must be a str, not bytes"),
    "parse_type": (lambda: fx.parse_type(None), "the text of a type must be a str"),
    "GraphModule": (lambda: fx.GraphModule({}, None), "the graph of a GraphModule must be a Graph"),
    "placeholder": (lambda: graph().placeholder(3), "name of a placeholder must be a str, not 3"),
    "get_attr": (lambda: graph().get_attr(3), "path of an attribute must be a str, not 3"),
    "call_module": (lambda: graph().call_module(3), "path of a leaf module must be a str"),
    "args": (lambda: graph().call_function("add", 3), r"args must be a tuple .*\(x,\)"),
    "kwargs": (lambda: graph().call_function("add", (1, 2), 3), "kwargs must be a dict, not 3"),
    "erase_node": (lambda: graph().erase_node("x"), "'to_erase' must be Node, not 'x'"),
    "inserting_after": (lambda: graph().inserting_after(3), "'n' must be Node . None, not 3"),
    "inserting_before": (lambda: graph().inserting_before("x"), "'n' must be Node"),
    "node_copy": (lambda: graph().node_copy(3), "'node' must be Node, not 3"),
    "rename_node": (lambda: graph().rename_node(None, "a"), "what is renamed must be a Node"),
    "find": (lambda: graph().find(3), "a query must be a str, not 3"),
    "Linear": (lambda: nn.Linear("4", 3), r"sizes are whole numbers.* shape \[3, '4'\]"),
    "Linear, negative": (lambda: nn.Linear(-1, 3), r"0 or more.* shape \[3, -1\]"),
    "Linear, a fraction": (lambda: nn.Linear(2.5, 3), r"sizes are whole numbers.* \[3, 2.5\]"),
    "Conv2d": (lambda: nn.Conv2d(3, 4, "3"), "sizes are whole numbers"),
    "LSTM": (lambda: nn.LSTM(3, "4"), "hidden_size must be"),
    "Dropout": (lambda: nn.Dropout("0.5"), "between 0 and 1, not '0.5'"),
    "Sequential": (lambda: nn.Sequential(3), "child '0' of a Sequential must be a Module, not 3"),
    "ModuleList": (lambda: nn.ModuleList(["a"]), "child '0' of a ModuleList must be a Module"),
    "state dict": (lambda: nn.Linear(2, 3).load_state_dict(None), "a state dict must be a dict"),
    "a budget": (lambda: q.plan(module(), BATCHES, min_sqnr="30"), "budget of sqnr is a number, not '30'"),
    "quantize": (lambda: q.quantize(module(), None, BATCHES), "mapping|QConfigMapping"),
    "batches": (lambda: q.quantize(module(), STATIC, None), "batch"),
    "pickled": (lambda: pickle.dumps(fx.compile(program, "f32[B]")), "belong|cannot be pickled; pickle"),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, message = CALLS[name]
    with pytest.raises(FxliteError, match=message):
        call()
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_deep_lists_are_refused_whatever_the_recursion_limit() -> None:
    deep: Any = 1
    for _ in range(3000):
        deep = [deep]
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # as programs that pickle graphs of torch.fx set it
    try:
        rows = np.ones((2, 3), np.float32)
        calls = (lambda: fx.ops.sum(rows, axis=deep), lambda: nn.functional.normalize(rows, 1.0, deep))
        for call in calls:
            with pytest.raises(FxliteError, match="nested") as caught:
                call()
            assert len(str(caught.value)) < 200
    finally:
        sys.setrecursionlimit(before)


def test_generated_wrong_arguments() -> None:
    counts = ArgumentCounts()
    check_arguments(1500, 0, counts)
    assert not counts.failures, "\n".join(counts.failures)
    assert counts.refused > 900


def test_what_has_an_item_for_every_index_is_no_iterable() -> None:
    """Python takes indices from 0 on until one is an error, so that ``tuple(dtype)`` would fill the
    memory. Names as keys end that at once."""
    found = []
    for info in pkgutil.walk_packages(fx.__path__, "fxlite."):
        if info.name.endswith("__main__"):
            continue
        for name, cls in vars(importlib.import_module(info.name)).items():
            is_own = inspect.isclass(cls) and cls.__module__ == info.name
            if not is_own or "__getitem__" not in vars(cls) or hasattr(cls, "__iter__"):
                continue
            _, key = inspect.signature(cls.__getitem__).parameters.values()
            is_number = key.name in ("index", "step", "shape") and "str" not in key.annotation
            if is_number and not getattr(cls, "_is_protocol", False):
                found.append(f"{info.name}.{name}")
    assert not found, "give them __iter__ = None"


def test_a_function_of_numpy_is_a_program() -> None:
    module = fx.symbolic_trace(np.sum, "f32[3,4]")
    assert module(np.ones((3, 4), np.float32)) == 12


def test_an_error_of_the_program_stays_what_it_is() -> None:
    def wrong(x: Any) -> Any:
        return {}["missing"]

    with pytest.raises(KeyError, match="missing"):
        fx.symbolic_trace(wrong, x="f32[3]")


@pytest.mark.parametrize(
    "name, write",
    [
        ("x.fxl", lambda path: fx.save(module(), path)),
        ("x.safetensors", lambda path: fx.save_safetensors({"x": np.ones(3)}, path)),
        ("x.svg", lambda path: graph().draw(path)),
        ("x.html", lambda path: graph().draw(path)),
    ],
)
def test_a_full_disk_leaves_the_earlier_file(
    name: str, write: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(b"earlier")
    whole = Path.write_bytes

    def half(self: Path, data: bytes) -> int:
        whole(self, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match=rf"No space left on device: '.*{name}'"):
        write(path)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, b"earlier")]


def test_links_and_modes_of_earlier_files_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target.fxl", tmp_path / "link.fxl"
    target.write_bytes(b"")
    target.chmod(0o640)
    link.symlink_to(target)
    fx.save(module(), link)
    assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o640
    assert fx.load(target).graph.text(full=True) == str(graph())
