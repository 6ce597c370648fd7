"""Small files as people write them for torch.fx: each makes a model and transforms its trace.

``make()`` gives the model, ``transform(model)`` the GraphModule (or a module to compare). They are
run with torch as they stand, and with fxlite after :func:`fxlite.migrate`."""

from __future__ import annotations

PROGRAMS = {
    "replace a target": """
import operator
import torch
import torch.fx as fx

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x + 2) * torch.sin(x) * torch.relu(x)

def make():
    return Net()

def transform(model):
    gm = fx.symbolic_trace(model)
    targets = {operator.add: operator.mul, torch.sin: torch.cos, torch.relu: torch.tanh}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in targets:
            node.target = targets[node.target]
    gm.graph.lint()
    gm.recompile()
    return gm
""",
    "swap layers": """
import torch
from torch import nn
from torch.fx import symbolic_trace

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    def forward(self, x):
        return self.body(x)

def make():
    return Net()

def transform(model):
    traced = symbolic_trace(model)
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(modules[node.target], nn.ReLU):
            with traced.graph.inserting_after(node):
                traced.add_submodule("act", nn.Sigmoid())
                new = traced.graph.call_module("act", args=(node.args[0],))
                node.replace_all_uses_with(new)
            traced.graph.erase_node(node)
    traced.recompile()
    return traced
""",
    "fold a norm": """
import torch
import torch.nn as nn
import torch.fx as fx
from torch.nn.utils.fusion import fuse_conv_bn_eval

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 1)
        self.bn = nn.BatchNorm1d(4)
    def forward(self, x):
        return self.bn(self.conv(x.reshape(2, 3, 1)))

def make():
    return Net().eval()

def transform(model):
    gm = fx.symbolic_trace(model)
    for node in gm.graph.nodes:
        if node.op != "call_module" or type(gm.get_submodule(node.target)) is not nn.BatchNorm1d:
            continue
        conv = node.args[0]
        fused = fuse_conv_bn_eval(gm.get_submodule(conv.target), gm.get_submodule(node.target))
        setattr(gm, conv.target, fused)
        node.replace_all_uses_with(conv)
        gm.graph.erase_node(node)
    gm.delete_all_unused_submodules()
    gm.recompile()
    return gm
""",
    "interpreter": """
import torch
from torch.fx import Interpreter, symbolic_trace

def program(x):
    return torch.tanh(x) + torch.cos(x)

class Doubling(Interpreter):
    def call_function(self, target, args, kwargs):
        result = super().call_function(target, args, kwargs)
        return result * 2 if target == torch.tanh else result

def make():
    return program

def transform(model):
    return Doubling(symbolic_trace(model)).run
""",
    "transformer": """
import torch
from torch.fx import Transformer, symbolic_trace
from torch.fx.node import Argument, Target
from typing import Any

def program(x):
    return -torch.sigmoid(x)

class Swap(Transformer):
    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        if target == torch.sigmoid:
            return torch.tanh(*args, **kwargs)
        return super().call_function(target, args, kwargs)

def make():
    return program

def transform(model):
    return Swap(symbolic_trace(model)).transform()
""",
    "proxies": """
import torch
import torch.fx
from torch.fx.proxy import GraphAppendingTracer

def program(x):
    return torch.relu(x) * 3

def make():
    return program

def transform(model):
    gm = torch.fx.symbolic_trace(model)
    tracer = GraphAppendingTracer(gm.graph)
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target == torch.relu:
            with gm.graph.inserting_before(node):
                made = torch.exp(torch.fx.Proxy(node.args[0], tracer)) + 1
            node.replace_all_uses_with(made.node)
            gm.graph.erase_node(node)
    return torch.fx.GraphModule(gm, gm.graph)
""",
    "patterns": """
import torch
from torch.fx import symbolic_trace, subgraph_rewriter
from torch.fx.subgraph_rewriter import replace_pattern_with_filters

def program(x):
    return torch.cat([torch.sin(x), x]).sum() + torch.tanh(torch.cos(x))

def make():
    return program

def transform(model):
    gm = symbolic_trace(model)
    subgraph_rewriter.replace_pattern(
        gm, lambda a, b: torch.cat([a, b]), lambda a, b: torch.stack([a, b]))
    replace_pattern_with_filters(
        gm, lambda x: torch.tanh(torch.cos(x)), lambda x: torch.cos(x),
        [lambda match, graph, pattern: len(match.placeholder_nodes) == 1])
    return gm
""",
    "splitting": """
import torch
from torch import fx
from torch.fx.passes.split_module import split_module

def program(x):
    a = torch.sin(x)
    return torch.cos(a) + a

def make():
    return program

def transform(model):
    gm = fx.symbolic_trace(model)
    return split_module(gm, model, lambda node: 0 if node.target == torch.sin else 1,
                        keep_original_order=True)
""",
    "partitioner": """
import operator
import torch
import torch.fx as fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

class Supported(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        return node.op == "call_function" and node.target in {torch.sin, operator.add}

def program(x):
    return torch.cos(torch.sin(x) + x)

def make():
    return program

def transform(model):
    gm = fx.symbolic_trace(model)
    return CapabilityBasedPartitioner(gm, Supported()).partition_and_fuse("part_")
""",
    "passes": """
import torch
from torch.fx import GraphModule, symbolic_trace
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.dialect.common.cse_pass import CSEPass

class SinToCos(PassBase):
    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.sin):
            node.target = torch.cos
            modified = True
        return PassResult(graph_module, modified)

def program(x):
    return torch.sin(x) + torch.cos(x)

def make():
    return program

def transform(model):
    gm = SinToCos()(symbolic_trace(model)).graph_module
    return CSEPass()(gm).graph_module
""",
    "copies": """
import copy
import torch
import torch.fx as fx
from torch.fx.node import map_arg

def program(x, y=None):
    return torch.exp(torch.sin(x))

def make():
    return program

def transform(model):
    gm = fx.symbolic_trace(model, concrete_args={"y": None})
    new, env = fx.Graph(), {}
    for node in copy.deepcopy(gm.graph).nodes:
        if node.op == "output":
            new.output(map_arg(node.args[0], lambda n: env[n.name]))
            continue
        env[node.name] = new.node_copy(node, lambda n: env[n.name])
        env[node.name].tag = node.name
    assert [n.tag for n in new.nodes if hasattr(n, "tag")][-1] == "exp"
    return fx.GraphModule(gm, new)
""",
    "tracer": """
import torch
from torch import nn
from torch.fx import Graph, GraphModule, Tracer, wrap

class Scale(nn.Module):
    def forward(self, x):
        return x * 2 if isinstance(x, torch.Tensor) else x * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.act = Scale(), nn.Tanh()
    def forward(self, x):
        return self.act(self.scale(x))

class ScaleIsALeaf(Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return isinstance(m, Scale) or super().is_leaf_module(m, module_qualified_name)

def make():
    return Net()

def transform(model):
    graph: Graph = ScaleIsALeaf().trace(model)
    assert [n.op for n in graph.nodes].count("call_module") == 2
    return GraphModule(model, graph)
""",
    "experimental": """
import torch
import torch.nn as nn
import torch.fx as fx
from torch.fx.experimental.const_fold import split_const_subgraphs
from torch.fx.passes.shape_prop import ShapeProp

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones_like(torch.tanh(nn.Linear(2, 3).weight)))
    def forward(self, x):
        return torch.matmul(x, torch.cos(self.w))

def make():
    return Net()

def transform(model):
    return split_const_subgraphs(fx.symbolic_trace(model))
""",
}
#: Programs whose graphs are the same in both, node by node.
SAME_GRAPH = (
    "replace a target",
    "swap layers",
    "transformer",
    "proxies",
    "splitting",
    "partitioner",
    "passes",
    "tracer",
)
