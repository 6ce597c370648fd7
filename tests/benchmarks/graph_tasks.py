"""What the graph benchmark times: the same work in fxlite, torch.fx and onnx-ir.

In: a workload (a model, or a chain of n calls). Out: row -> :class:`Task` for each toolkit. A task
has a part that is not timed (making the graph that the work spoils) and one that is.
"""

from __future__ import annotations

import copy
import gc
import importlib.util
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.benchmarks import graph_models

#: Edits between two lints, and one in how many nodes is dead in the row "dead code".
EDITS, DEAD = 10, 10


@dataclass(frozen=True)
class Task:
    """``work(prepare())`` is one repetition; only ``work`` is timed."""

    prepare: Callable[[], Any]
    work: Callable[[Any], Any]


@dataclass(frozen=True)
class Workload:
    """A model by name, or a chain of ``nodes`` calls."""

    name: str
    nodes: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return graph_models.MODELS.get(self.name, (4,))


def same(value: Any) -> Callable[[], Any]:
    """Nothing to prepare."""
    return lambda: value


def fxlite_tasks(workload: Workload) -> tuple[dict[str, Task], int]:
    """fxlite's tasks, and the number of nodes."""
    import fxlite as fx
    import fxlite.nn.functional as F
    from fxlite import nn, passes
    from fxlite.files.serialize import from_bytes, to_bytes

    if workload.nodes:
        program = graph_models.chain(fx.ops.relu, workload.nodes)
    else:
        program = getattr(graph_models, workload.name)(nn, F)
    declared = f"f32[{','.join(map(str, workload.shape))}]"
    x = np.ones(workload.shape, np.float32)
    gm = fx.symbolic_trace(program, declared)
    gm.graph.lint(full=True)

    def with_dead_code() -> Any:
        graph = gm.graph.copy()
        for node in calls(graph)[::DEAD]:
            with graph.inserting_after(node):
                graph.call_function(fx.ops.neg, (node,))
        return graph

    def edited() -> Any:
        graph = gm.graph.copy()
        graph.lint()
        nodes = calls(graph)
        for node in nodes[:: max(1, len(nodes) // EDITS)][:EDITS]:
            with graph.inserting_after(node):
                new = graph.call_function(fx.ops.neg, (node,))
            node.replace_all_uses_with(new, lambda user, new=new: user is not new)
        return graph

    def run_fresh(module: Any) -> None:
        module.recompile()
        module(x)

    pickled, saved, text = pickle.dumps(gm), to_bytes(gm), gm.graph.text(full=True)
    pipeline = ["simplify", "cse", "dce"]
    tasks = {
        "trace": Task(same(None), lambda _: fx.symbolic_trace(program, declared)),
        "copy graph": Task(same(gm.graph), copy.deepcopy),
        "copy module": Task(same(gm), copy.deepcopy),
        "dead code": Task(with_dead_code, lambda graph: graph.eliminate_dead_code()),
        "lint, full": Task(same(gm.graph), lambda graph: graph.lint(full=True)),
        f"lint after {EDITS} edits": Task(edited, lambda graph: graph.lint()),
        "recompile": Task(same(gm), lambda module: module.recompile()),
        "recompile + first call": Task(gm.copy, run_fresh),
        "pickle out": Task(same(gm), pickle.dumps),
        "pickle in": Task(same(pickled), pickle.loads),
        "save": Task(same(gm), to_bytes),
        "load": Task(same(saved), from_bytes),
        "rewrite": Task(
            gm.copy, lambda module: fx.replace_pattern(module, lambda x: fx.ops.relu(x) + 1, fx.ops.sigmoid)
        ),
        "str": Task(same(gm.graph), str),
        "parse": Task(same(text), fx.parse),
        "pipeline, unchecked": Task(same(gm), passes.PassManager(pipeline, check=False)),
        "pipeline, checked": Task(same(gm), passes.PassManager(pipeline, check=True)),
        "memory": Task(same(None), lambda _: fx.symbolic_trace(program, declared).graph),
    }
    return tasks, len(gm.graph)


def torch_tasks(workload: Workload) -> tuple[dict[str, Task], int]:
    """torch.fx's tasks, and the number of nodes."""
    import torch
    import torch.fx

    torch.set_num_threads(1)
    if workload.nodes:
        program: Any = graph_models.chain(torch.relu, workload.nodes)
    else:
        program = getattr(graph_models, workload.name)(torch.nn, torch.nn.functional)
    x = torch.ones(workload.shape)
    gm = torch.fx.symbolic_trace(program)

    def fresh() -> Any:
        return torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))

    def with_dead_code() -> Any:
        module = fresh()
        for node in calls(module.graph)[::DEAD]:
            with module.graph.inserting_after(node):
                module.graph.call_function(torch.neg, (node,))
        return module

    @torch.no_grad()
    def run_fresh(module: Any) -> None:
        module.recompile()
        module(x)

    def pattern(x: Any) -> Any:
        return torch.relu(x) + 1

    def replacement(x: Any) -> Any:
        return torch.sigmoid(x)

    pickled = pickle.dumps(gm)
    tasks = {
        "trace": Task(same(None), lambda _: torch.fx.symbolic_trace(program)),
        "copy graph": Task(same(gm.graph), copy.deepcopy),
        "copy module": Task(same(gm), copy.deepcopy),
        "dead code": Task(with_dead_code, lambda module: module.graph.eliminate_dead_code()),
        "lint, full": Task(same(gm.graph), lambda graph: graph.lint()),
        "recompile": Task(same(gm), lambda module: module.recompile()),
        "recompile + first call": Task(fresh, run_fresh),
        "pickle out": Task(same(gm), pickle.dumps),
        "pickle in": Task(same(pickled), pickle.loads),
        "str": Task(same(gm.graph), str),
        "memory": Task(same(None), lambda _: torch.fx.symbolic_trace(program).graph),
    }
    tasks[f"lint after {EDITS} edits"] = tasks["lint, full"]
    tasks["save"], tasks["load"] = tasks["pickle out"], tasks["pickle in"]
    if workload.nodes <= 10_000:  # its time grows with the square of the matches
        tasks["rewrite"] = Task(fresh, lambda module: torch.fx.replace_pattern(module, pattern, replacement))
    return tasks, len(gm.graph.nodes)


def onnx_ir_tasks(workload: Workload) -> tuple[dict[str, Task], int]:
    """onnx-ir's tasks for chains, and the number of nodes; nothing for models."""
    import onnx
    import onnx_ir as ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    if not workload.nodes:
        return {}, 0

    def build() -> Any:
        x = ir.val("x", ir.DataType.FLOAT, workload.shape)
        one = ir.val("one", const_value=ir.tensor(np.float32(1), name="one"))
        nodes, value = [], x
        for number in range(workload.nodes // 2):
            nodes.append(ir.node("Relu", [value]))
            value = nodes[-1].outputs[0]
            nodes.append(ir.node("Add", [value, one]))
            value = nodes[-1].outputs[0]
            value.name = f"add_{number}"
        opsets = {"": 18}
        graph = ir.Graph([x], [value], nodes=nodes, initializers=[one], opset_imports=opsets, name="chain")
        return ir.Model(graph, ir_version=10)

    model = build()

    def with_dead_code() -> Any:
        made = model.clone()
        for node in list(made.graph)[::DEAD]:
            made.graph.insert_after(node, ir.node("Neg", [node.outputs[0]]))
        return made

    def out(made: Any) -> bytes:
        return ir.to_proto(made).SerializeToString()  # type: ignore[no-any-return]

    saved = out(model)
    tasks = {
        "trace": Task(same(None), lambda _: build()),
        "copy graph": Task(same(model.graph), lambda graph: graph.clone()),
        "dead code": Task(with_dead_code, RemoveUnusedNodesPass()),
        "save": Task(same(model), out),
        "load": Task(same(saved), lambda data: ir.from_proto(onnx.load_from_string(data))),
        "memory": Task(same(None), lambda _: build()),
    }
    if importlib.util.find_spec("onnxscript"):
        tasks["rewrite"] = Task(model.clone, _onnx_rewrite())
    return tasks, workload.nodes + 1


def _onnx_rewrite() -> Callable[[Any], Any]:
    from onnxscript.rewriter import RewriteRuleSet, pattern

    def before(op: Any, x: Any, one: Any) -> Any:
        return op.Add(op.Relu(x), one)

    def after(op: Any, x: Any, one: Any) -> Any:
        return op.Sigmoid(x)

    rules = RewriteRuleSet([pattern.RewriteRule(before, after)])
    return rules.apply_to_model  # type: ignore[no-any-return]


#: Toolkit -> its tasks, and the module to install for it.
TOOLKITS: dict[str, tuple[Callable[[Workload], tuple[dict[str, Task], int]], str]] = {
    "fxlite": (fxlite_tasks, "fxlite"),
    "torch.fx": (torch_tasks, "torch"),
    "onnx-ir": (onnx_ir_tasks, "onnx_ir"),
}


def calls(graph: Any) -> list[Any]:
    """The nodes that compute something; for fxlite and torch.fx."""
    return [n for n in graph.nodes if n.op.startswith("call_")]


def bytes_held(task: Task) -> int:
    """Memory that the result of a task keeps, in bytes, after a garbage collection."""
    prepared = task.prepare()
    task.work(prepared)  # caches fill up
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = task.work(prepared)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        del result
    finally:
        tracemalloc.stop()
    return held
