"""Loops and conditions of a program, run in Python over the kernels of their bodies.

In: a planned group and the memory of the program around it. Out: its results there. Values lie and
are written over where the plan says, as in compiled code, so that what checks kernels checks plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.codegen.kernel.lower import buffer_name, index_of
from fxlite.codegen.program.control import BodyPlan, ControlPlan
from fxlite.codegen.program.program import Program
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.types import shapes

#: Runs a program's groups in a memory, with the sizes of named dims and numbers of iterations.
RunGroups = Callable[[Program, MutableMapping[str, Any], Mapping[str, int]], None]


def run_control(
    program: Program, group: Group, memory: MutableMapping[str, Any], env: Mapping[str, int], run_groups: RunGroups
) -> None:
    """Run a group of ``program``, whose values are in ``memory``."""
    _Run(program, group, memory, env, run_groups).run()


class _Run:
    def __init__(self, program: Program, group: Group, memory: Any, env: Any, run: Any) -> None:
        self.program, self.group, self.memory, self.env = program, group, memory, dict(env)
        self.run_groups, self.node = run, group.root
        self.plan: ControlPlan = group.bodies

    def value(self, value: Any) -> Any:
        """An operand, as it is in memory."""
        if not isinstance(value, Node):
            return np.asarray(value)
        if value in self.group.members:  # a constant
            arguments = shapes.substitute(tuple(value.arguments.items()), self.env)
            return np.asarray(value.target.evaluate(dict(arguments)))
        held = self.memory[buffer_name(self.program.memory(value))]
        return np.asarray(held).reshape(value.type.substitute(self.env).shape)

    def run(self) -> None:
        arguments = self.node.arguments
        if self.node.target.name == "cond":
            operands = [self.value(v) for v in arguments.get("operands", ())]
            name = "true_fn" if bool(self.value(arguments["pred"])) else "false_fn"
            self.store(self.body(self.plan.bodies[name], operands))
            return
        captured = [self.value(v) for v in arguments.get("captured", ())]
        taken = set(self.group.taken.values())
        carried = [
            value if node in taken else np.array(value)
            for node, value in ((v, self.value(v)) for v in arguments["carried"])
        ]
        body = self.plan.bodies["body_fn"]
        if self.node.target.name == "while_loop":
            test = self.plan.bodies["cond_fn"]
            while bool(self.body(test, [*carried, *captured])[0]):
                carried = [np.array(v) for v in self.body(body, [*carried, *captured])]
        else:
            lower, upper = (int(self.value(arguments[n])) for n in ("lower", "upper"))
            for i in range(lower, upper):
                given = [np.int64(i), *carried, *captured]
                carried = [np.array(v) for v in self.body(body, given)]
        self.store(carried)

    def body(self, plan: BodyPlan, inputs: list[Any]) -> list[Any]:
        """Run a body; its results."""
        memory: dict[str, Any] = {buffer_name(n): v for n, v in zip(plan.inputs, inputs)}
        env = dict(self.env)
        for node, value in zip(plan.inputs, inputs):
            index = index_of(node)
            if index is not None and index.single_atom is not None:
                env[index.single_atom.name] = int(value)  # type: ignore[union-attr]
            elif index is not None and index.evaluate(env) != int(value):
                raise CodegenError(f"{node.name} is {value}, and not {index}")
        self.run_groups(plan.program, memory, env)

        def result(node: Node) -> Any:
            held = memory[buffer_name(plan.program.memory(node))]
            return np.asarray(held).reshape(node.type.substitute(self.env).shape)

        return [result(node) for node in plan.results]

    def store(self, results: list[Any]) -> None:
        for part in self.group.parts:
            where = buffer_name(self.program.memory(part))
            value = np.array(results[part.kwargs["index"]])
            held = self.memory.get(where)
            self.memory[where] = value if held is None else value.reshape(np.shape(held))
