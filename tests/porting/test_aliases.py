"""Names of torch.fx that are called otherwise here: what torch's does, ours does, on the same
program. Each alias of ``torch_fx_api.txt`` has a case."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from fxlite.codegen.porting.verdicts import verdicts
from tests.graphs import ops_of

torch: Any = pytest.importorskip("torch")
tfx: Any = importlib.import_module("torch.fx")

Case = Callable[[], tuple[Any, Any]]
CASES: dict[str, Case] = {}


def case(*names: str) -> Callable[[Case], Case]:
    """A case of these aliases: what torch.fx's does, and ours."""

    def register(function: Case) -> Case:
        CASES.update(dict.fromkeys(names, function))
        return function

    return register


def of(name: str) -> Any:
    return importlib.import_module(f"torch.fx.{name}")


class TorchNet(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)
        self.drop, self.act = torch.nn.Dropout(), torch.nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.act(self.drop(self.bn(self.conv(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.drop, self.act = nn.Dropout(), nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.act(self.drop(self.bn(self.conv(x))))


def torch_net() -> Any:
    return tfx.symbolic_trace(TorchNet().eval())


def net(leaf: Any = ()) -> fx.GraphModule:
    return fx.symbolic_trace(Net().eval(), "f32[B,1,8,8]", leaf=leaf)


def layers(gm: Any) -> list[str]:
    """The layers that a graph calls, by class."""
    return [type(gm.get_submodule(n.target)).__name__ for n in gm.graph.nodes if n.op == "call_module"]


def said(call: Callable[[], Any], kind: Any = Exception) -> bool:
    """Whether a call raises."""
    try:
        call()
    except kind:
        return True
    return False


# -- tracers ---------------------------------------------------------------------------------------
@case("Tracer.submodule_paths", "Tracer.root_module_name", "TracerBase")
def paths() -> tuple[Any, Any]:
    theirs, ours = tfx.Tracer(), fx.Tracer()
    one, other = TorchNet(), Net().eval()
    theirs.trace(one)
    ours.trace(other)
    assert isinstance(theirs, tfx.proxy.TracerBase)
    return (
        (theirs.path_of_module(one.conv), theirs.root_module_name == type(one).__name__),
        (ours.path_of_module(other.conv), type(ours.root) is type(other)),
    )


@case("Tracer.traced_func_name", "TracerBase.traced_func_name")
def traced_function() -> tuple[Any, Any]:
    theirs, ours = tfx.Tracer(), fx.Tracer()
    one, other = TorchNet(), Net().eval()
    theirs.trace(one)
    ours.trace(other)
    return theirs.traced_func_name == "forward", callable(ours.root.forward)


@case("TraceError")
def branches() -> tuple[Any, Any]:
    def program(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    return (
        said(lambda: tfx.symbolic_trace(program), tfx.proxy.TraceError),
        said(lambda: fx.symbolic_trace(program), fx.errors.TraceError),
    )


# -- nodes -----------------------------------------------------------------------------------------
@case("operator_schemas.normalize_*")
def normalized() -> tuple[Any, Any]:
    theirs = of("operator_schemas").normalize_function(
        torch.nn.functional.leaky_relu, (torch.ones(2), 0.5), normalize_to_only_use_kwargs=True
    )
    gm = fx.symbolic_trace(lambda x: nn.functional.leaky_relu(x, 0.5), "f32[2]")
    (node,) = gm.graph.find_nodes(op="call_function", target="leaky_relu")
    ours = node.normalized_arguments(gm, normalize_to_only_use_kwargs=True)
    assert not theirs.args and not ours.args
    return theirs.kwargs["negative_slope"], next(v for v in ours.kwargs.values() if v == 0.5)


@case("subgraph_rewriter.ReplacedPatterns", "passes.utils.matcher_utils.InternalMatch.*")
def replaced() -> tuple[Any, Any]:
    theirs = tfx.symbolic_trace(lambda x: torch.relu(x) + 1)
    (there,) = of("subgraph_rewriter").replace_pattern_with_filters(
        theirs, lambda x: torch.relu(x), lambda x: torch.sigmoid(x)
    )
    ours = fx.symbolic_trace(lambda x: ops.relu(x) + 1, "f32[2]")
    (here,) = passes.replace_pattern_with_filters(ours, ops.relu, ops.sigmoid)
    facts = [(m.anchor.name.startswith("relu"), len(m.nodes_map), len(m.replacements)) for m in (there, here)]
    return facts[0], facts[1]


@case("passes.tools_common.legalize_graph", "passes.tools_common.stable_topological_sort")
def sorted_graph() -> tuple[Any, Any]:
    def program(x: Any) -> Any:
        return (x + 1) * 2

    found = []
    for gm, sort in (
        (tfx.symbolic_trace(program), of("passes.tools_common").legalize_graph),
        (fx.symbolic_trace(program), lambda gm: gm.graph.topological_sort()),
    ):
        _, add, mul, _ = gm.graph.nodes
        mul.append(add)
        assert said(gm.graph.lint)
        sort(gm)
        gm.graph.lint()
        found.append([n.name for n in gm.graph.nodes])
    return found[0], found[1]


# -- pass managers ---------------------------------------------------------------------------------
def first(gm: Any) -> Any:
    return gm


def second(gm: Any) -> Any:
    return gm


def order(manager: Any) -> list[str]:
    return [getattr(p, "name", getattr(p, "__name__", "")) for p in manager.passes]


@case(
    "passes.pass_manager.PassManager",
    "passes.pass_manager.PassManager.build_from_passlist",
    "passes.pass_manager.PassManager.remove_pass",
    "passes.pass_manager.PassManager.replace_pass",
)
def managers() -> tuple[Any, Any]:
    theirs = of("passes.pass_manager").PassManager.build_from_passlist([first, second, first])
    theirs.replace_pass(second, first)
    theirs.remove_pass(["second"])
    ours = passes.PassManager([first, second, first])
    ours.passes[1] = ours.passes[0]
    return order(theirs), order(ours)


@case("passes.pass_manager.PassManager.validate", "passes.pass_manager.these_before_those_pass_constraint")
def constraints() -> tuple[Any, Any]:
    old = of("passes.pass_manager")
    answers = []
    for given in ([first, second], [second, first]):
        theirs = old.PassManager(given, [old.these_before_those_pass_constraint(first, second)])
        ours = passes.PassManager(given, [passes.this_before_that_pass_constraint(first, second)])
        answers.append((said(theirs.validate), said(ours.validate_constraints, passes.PassError)))
    return [a for a, _ in answers], [b for _, b in answers]


@case("passes.infra.pass_manager.PassManager.check")
def checks() -> tuple[Any, Any]:
    def fails(gm: Any) -> None:
        raise ValueError("no")

    theirs = of("passes.infra.pass_manager").PassManager([first], run_checks_after_each_pass=True)
    ours = passes.PassManager([first])
    for manager in (theirs, ours):
        manager.add_checks(fails)
    gm = fx.symbolic_trace(lambda x: x + 1, "f32[2]")
    return said(lambda: theirs(torch_net())), said(lambda: ours(gm))


@case("passes.infra.pass_manager.pass_result_wrapper", "passes.pass_manager.inplace_wrapper")
def wrapped() -> tuple[Any, Any]:
    def rename(gm: Any) -> None:
        next(iter(gm.graph.nodes)).name = "renamed"

    theirs = of("passes.infra.pass_manager").pass_result_wrapper(rename)(torch_net())
    in_place = of("passes.pass_manager").inplace_wrapper(rename)(torch_net())
    ours = passes.graph_pass(rename)(net())
    names = [next(iter(g.graph.nodes)).name for g in (theirs.graph_module, in_place, ours)]
    assert names[0] == names[1]
    return names[0], names[2]


@case("passes.pass_manager.log_hook", "passes.pass_manager.loop_pass")
def repeated() -> tuple[Any, Any]:
    old = of("passes.pass_manager")
    there, here = [], []

    def note(gm: Any, seen: list[int]) -> Any:
        seen.append(1)
        return gm

    looped = old.loop_pass(lambda gm: note(gm, there), n_iter=3)
    old.log_hook(looped)(torch_net())
    manager = passes.PassManager([lambda gm: note(gm, here)], steps=3)
    manager(net())
    assert len(manager.report) == 3
    return len(there), len(here)


@case("passes.graph_transform_observer.GraphTransformObserver.get_*hook")
def hooks() -> tuple[Any, Any]:
    found = []
    for gm, relu in ((torch_net(), torch.relu), (net(), ops.relu)):
        seen: list[str] = []
        note = functools.partial(lambda into, node: into.append(node.op), seen)
        register = "_register_create_node_hook" if relu is torch.relu else "register_create_node_hook"
        getattr(gm, register)(note)
        last = gm.graph.output_node()
        with gm.graph.inserting_before(last):
            gm.graph.call_function(relu, (last.args[0],))
        found.append(seen)
    return found[0], found[1]


# -- looking and comparing -------------------------------------------------------------------------
@case("passes.utils.common.compare_graphs")
def compared() -> tuple[Any, Any]:
    same = of("passes.utils.common").compare_graphs
    programs: list[Any] = [lambda x: x + 1, lambda x: (x + 1) * 2]
    theirs = [same(tfx.symbolic_trace(programs[0]).graph, tfx.symbolic_trace(p).graph) for p in programs]
    ours = [
        not said(lambda p=p: fx.assert_same(fx.symbolic_trace(programs[0]), fx.symbolic_trace(p)), AssertionError)
        for p in programs
    ]
    return theirs, ours


@case("passes.graph_drawer.*")
def drawn() -> tuple[Any, Any]:
    pytest.importorskip("pydot")
    theirs = of("passes.graph_drawer").FxGraphDrawer(torch_net(), "net")
    names = {n.get_name().strip('"') for n in theirs.get_dot_graph().get_nodes()}
    dot = net(leaf=nn).graph.to_dot()
    return {"conv", "bn"} <= names, all(name in dot for name in ("conv", "bn"))


@case("passes.graph_manipulation.*")
def sizes() -> tuple[Any, Any]:
    gm = torch_net()
    of("passes.shape_prop").ShapeProp(gm).propagate(torch.ones(2, 1, 8, 8))
    manipulation = of("passes.graph_manipulation")
    for node in gm.graph.nodes:
        node.size_bytes = manipulation.get_size_of_node(gm, node)
    (conv,) = (n for n in gm.graph.nodes if n.target == "conv")
    ours = net()
    (row,) = ours.graph.find_nodes(op="call_function", target="conv2d")
    weights = sum(n.type.nbytes for n in row.all_input_nodes if n.op == "get_attr")
    result = int(str(fx.shapes.substitute(row.type.nbytes, {"B": 2})))
    assert passes.cost(ours)
    return conv.size_bytes.output_size, result if weights else None


# -- modules ---------------------------------------------------------------------------------------
@case(
    "passes.split_utils.getattr_recursive",
    "passes.split_utils.setattr_recursive",
    "experimental.optimization.replace_node_module",
)
def attributes() -> tuple[Any, Any]:
    utils = of("passes.split_utils")
    theirs, ours = torch_net(), net()
    utils.setattr_recursive(theirs, "conv.bias", torch.nn.Parameter(torch.ones(2)))
    ours.set_attribute("conv.bias", nn.Parameter(np.ones(2, np.float32)))
    there = utils.getattr_recursive(theirs, "conv.bias").detach().numpy()
    return there.tolist(), ours.get_attribute("conv.bias").tolist()


@case("experimental.optimization.fuse")
def fused() -> tuple[Any, Any]:
    theirs = of("experimental.optimization").fuse(TorchNet().eval())
    ours = passes.fuse_conv_bn(net())
    assert not ours.graph.find_nodes(op="call_function", target="batch_norm")
    return "BatchNorm2d" in layers(theirs), "bn" in {n.name for n in ours.graph.nodes}


@case("experimental.optimization.extract_subgraph")
def extracted() -> tuple[Any, Any]:
    there, here = torch_net(), net()
    one = {n.name: n for n in there.graph.nodes}
    theirs = of("experimental.optimization").extract_subgraph(there, [one["conv"], one["bn"]], [one["x"]], [one["bn"]])
    (conv,) = here.graph.find_nodes(op="call_function", target="conv2d")
    (bn,) = here.graph.find_nodes(op="call_function", target="batch_norm")
    ours = passes.extract_subgraph(here, inputs=[conv.args[0]], outputs=[bn])
    x = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)
    found = theirs(torch.from_numpy(x))
    return tuple((found[0] if isinstance(found, (list, tuple)) else found).shape), ours(x).shape


@case("experimental.optimization.matches_module_pattern")
def matched() -> tuple[Any, Any]:
    gm = torch_net()
    modules, pattern = dict(gm.named_modules()), (torch.nn.Conv2d, torch.nn.BatchNorm2d)
    test = of("experimental.optimization").matches_module_pattern
    theirs = [n.name for n in gm.graph.nodes if test(pattern, n, modules)]
    ours = net().graph.find("conv2d > batch_norm")
    return len(theirs), len(list(ours))


@case("experimental.const_fold.*")
def folded() -> tuple[Any, Any]:
    class Adds(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: Any) -> Any:
            return x + (self.w * 2)

    class Ours(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(np.ones(2, np.float32))

        def forward(self, x: Any) -> Any:
            return x + (self.w * 2)

    theirs = of("experimental.const_fold").split_const_subgraphs(Adds())
    theirs.run_folding()
    ours = passes.const_fold(fx.symbolic_trace(Ours(), "f32[2]"))
    counts = [sum(n.op == "call_function" for n in gm.graph.nodes) for gm in (theirs, ours)]
    return counts[0], counts[1]


@case("passes.net_min_base.*")
def minimized() -> tuple[Any, Any]:
    """Both end with the one node that is wrong."""
    minimizer = of("passes.net_min_base")
    gm = tfx.symbolic_trace(lambda x: torch.sigmoid(torch.relu(x) + 1))

    class Wrong(minimizer._MinimizerBase):  # type: ignore[misc,name-defined]
        def run_a(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
            return mod(*inputs)

        def run_b(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
            off = any(n.target is torch.relu for n in mod.graph.nodes)
            return mod(*inputs) + int(off)

    def differ(a: Any, b: Any, names: Any) -> tuple[float, bool]:
        return float((a - b).abs().max()), bool(torch.equal(a, b))

    settings = minimizer._MinimizerSettingBase(traverse_method="sequential")
    theirs = Wrong(gm, (torch.ones(2),), differ, settings).minimize()
    ours = fx.symbolic_trace(lambda x: ops.sigmoid(ops.relu(x) + 1), "f32[2]")

    def fails(part: fx.GraphModule, inputs: Any) -> bool:
        return bool(part.graph.find_nodes(op="call_function", target="relu"))

    small = passes.minimize(ours, [np.ones(2, np.float32)], fails)
    left = getattr(small, "module", small)
    calls = ops_of(left)
    return [n.name for n in theirs], calls


# -- the tests -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_an_alias_does_what_torch_fx_does(name: str) -> None:
    theirs, ours = CASES[name]()
    assert ours == theirs


def test_every_alias_has_a_case() -> None:
    assert {name for name, verdict, _ in verdicts() if verdict == "alias"} == CASES.keys()
