"""The self-test of a C bundle: a C program that runs the model on stored inputs and checks the outputs.

In: an emitted program and the stored cases. Out: the text of ``NAME_selftest.c``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fxlite.backend import Case
from fxlite.codegen.c.calls import dim_c
from fxlite.codegen.c.emit import CProgram
from fxlite.codegen.c.header import MODEL
from fxlite.codegen.c.tiles.library import definitions_of, library, needed
from fxlite.codegen.kernel.names import dim_name, own_name, resolved
from fxlite.codegen.kernel.text import filled, signature, wrap
from fxlite.graph.graph import Graph, Node
from fxlite.show.node_cost import longest_chain
from fxlite.types import shapes
from fxlite.types.agreement import USUAL, Chain, bound
from fxlite.types.tensor_type import TensorType

SELFTEST = MODEL.joinpath("MODEL_selftest.c")


def compiled_chain(graph: Graph, sizes: Iterable[Mapping[str, int]], matmul_precision: str = "highest") -> Chain:
    """The longest chain of operations at any of these sizes, and the rounding of its products: how far
    compiled code may be from NumPy (:func:`fxlite.types.agreement.bound`)."""
    precision = "int8" if rounds_computed_floats(graph) else matmul_precision
    chain = replace(USUAL, precision=precision)
    for dims in sizes:
        chain = chain.at_least(longest_chain(graph.nodes, dims))
    return chain


def rounds_computed_floats(graph: Graph) -> bool:
    """True if integers are computed from floats whose last bits depend on the back end (sums of products,
    transcendental functions): one close to a half may be rounded the other way."""
    inexact: set[Node] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        depends = not inexact.isdisjoint(node.all_input_nodes)
        if depends and node.target.name == "quantize":
            return True
        if node.target.name == "int_recurrence" and (depends or not _is_exact_loop(node)):
            return True
        is_float = not isinstance(node.type, TensorType) or node.type.dtype.is_inexact
        if is_float and (depends or not _has_the_same_bits(node)):
            inexact.add(node)
    return False


#: Ops that are one rounding or none (docs/quantization.md), beside those that move values.
_ONE_ROUNDING = frozenset(
    "dequantize cast add sub maximum minimum neg abs relu clip where max min max_pool1d max_pool2d "
    "embedding getitem flatten dynamic_scale".split()
)


def _is_exact_loop(node: Node) -> bool:
    """True for an integer recurrence whose states are sums, without tanh and sigmoid."""
    return bool(node.arguments.get("mode") == "rnn_relu")


def _has_the_same_bits(node: Node) -> bool:
    if node.target.name == "int_recurrence":
        return _is_exact_loop(node)
    if node.target.name == "mul":  # compilers may contract it with an addition
        return not any(
            u.op == "call_function" and u.target.symbol in ("+", "-") and len(u.args) == 2 for u in node.users
        )
    return node.target.kind in ("view", "gather", "creation") or node.target.name in _ONE_ROUNDING


def selftest_source(program: CProgram, cases: Sequence[Case], is_expanded: bool = False) -> str:
    """The text of ``NAME_selftest.c``. ``is_expanded``: weights are computed from the contents of their
    file."""
    calls = [
        f"    failed += test({i}, {''.join(f'{size}, ' for size in c.dims.values())}weights, n_threads);"
        for i, c in enumerate(cases, start=1)
    ]
    values = {
        "MODEL": program.name,
        "UPPER": program.name.upper(),
        "READ": "file" if is_expanded else "weights",
        "KIND": "STORED" if is_expanded else "WEIGHTS",
        "STORED": "STORED" if is_expanded else "",
        "CALLS": "\n".join(calls),
        "NUMBER": str(len(cases)),
    }
    text = filled(SELFTEST, values | _words_of_test(program, cases))
    own, test, main = re.split(r"^(?=/\* Run case|int main)", text, flags=re.MULTILINE)
    body = resolved(test) + main
    return needed(body, [*definitions_of("selftest", own), *library()]) + body


def _words_of_test(program: CProgram, cases: Sequence[Case]) -> dict[str, str]:
    """The parts of the function for one case: it reads, runs, compares and releases."""
    name, dims = program.name, tuple(map(dim_name, program.entry.dims))
    inputs, outputs = _inputs(program), _outputs(program)
    files = dict(zip(program.outputs, output_files(program)))
    nodes = {node.target: node for node in program.program.owned}
    owned = [(member, nodes[target]) for target, member in program.owned.items()]
    where = {m: f"{_STATE}->{m}" for m in program.states.values()}
    where |= {m: own_name(f"in_{m}") for m in program.donated.values()}
    states = [_STATE] if program.states else []
    arrays: list[str] = []

    def declare(variable: str, node: Node, file: str = "") -> None:
        """Declare memory for a value, read from a file if there is one."""
        size = dim_c(program.program.type_of(node).nbytes)
        made = f"allocate({size})"
        if file:
            arrays.append(f'    snprintf(path, sizeof path, "selftest/%d_{file}.bin", number);')
            made = f"read_file(path, {size})"
        arrays.append(f"    {node.type.dtype.c_stored} *const {variable} = {made};")

    for variable, label, node in inputs:
        declare(variable, node, label)
    for variable, label, node in outputs:
        declare(_expected(label), node, files[label])
        declare(variable, node)
    for member, node in owned:
        declare(_before(member), node, f"before_{member}")
        declare(_expected(member), node, f"after_{member}")
    for member, node in owned:
        if member in program.donated.values():
            declare(where[member], node)
    for state in states:
        arrays.append(f"    struct {name}_state *const {state} = allocate((int64_t)sizeof(struct {name}_state));")
    prepared = [f"        {name}_state_init({state}, weights);" for state in states]
    prepared += [f"        fx_copy({where[m]}, {_before(m)}, {dim_c(node.type.nbytes)});" for m, node in owned]
    given = [*(own_name(f"in_{i}") for i in program.inputs), *states, *(v for v, _, _ in outputs)]
    given += [*dims, "weights", "workspace", "n_threads", "&error"]
    graph = program.program.module.graph
    chain = compiled_chain(graph, [case.dims for case in cases], program.matmul_precision)
    results = [*outputs, *((where[member], member, node) for member, node in owned)]
    variables = {node: variable for variable, _, node in outputs}
    first = {node: f"*{variables[count]}" for node, count in program.program.counts.items()}
    calls = [
        comparison(label, node, variable, _expected(label), chain, first.get(node, ""))
        for variable, label, node in results
    ]
    released = [v for v, _, _ in inputs] + [f(m) for m, _ in owned for f in (_before, _expected)]
    released += [*(where[m] for m in program.donated.values()), *states]
    released += [v for variable, label, _ in outputs for v in (variable, _expected(label))]
    parameters = ["int number", *(f"int64_t {d}" for d in dims), "const void *weights", "int n_threads"]
    return {
        "HEAD": "\n".join(signature("test", parameters, "static int")),
        "SHOWN": ", ".join(f'{d} = %" PRId64 "' for d in dims) or "the stored input",
        "LABEL": ", ".join(["number", *dims]),
        "ARRAYS": "\n".join(arrays),
        "ARGUMENTS_OF_SIZE": ", ".join([*dims, "n_threads"]),
        "PREPARED": "\n".join(prepared),
        "RUN": "\n".join(wrap(f"        if ({name}_run({', '.join(given)})) {{")),
        "COMPARED": "\n".join(line for call in calls for line in wrap(f"        failed |= {call};")),
        "RELEASED": "\n".join(f"    release({variable});" for variable in released),
    }


def comparison(label: str, node: Node, got: str, expected: str, chain: Chain, first: str = "") -> str:
    """The call that compares a result with NumPy's; ``first`` is the number of elements to compare if not all of them
    count."""
    dtype, size = node.type.dtype, node.type.size
    if first:
        size = shapes.product(node.type.shape[1:])
    times = f"{first} * " if first else ""
    if not dtype.is_inexact:
        return f'compare_integers("{label}", {got}, {expected}, {times}{dim_c(size)}, {dtype.itemsize})'
    count = times + dim_c(2 * size if dtype.is_complex else size)  # complex numbers as their parts
    limit = f"{bound(dtype, chain):.3g}"
    return f'compare_floats("{label}", value_{dtype.real.name}, {got}, {expected}, {count}, {limit})'


def output_files(program: CProgram) -> list[str]:
    """The names of the files of the results; files of inputs have the inputs' names."""
    files: list[str] = []
    for output in program.outputs:
        file = f"out_{output}"
        while file in program.inputs or file in files:
            file += "_"
        files.append(file)
    return files


def _expected(label: str) -> str:
    """The C variable with NumPy's result."""
    return own_name(f"expected_{label}")


def _inputs(program: CProgram) -> list[tuple[str, str, Node]]:
    """(C variable, file label, node) of each input."""
    given = zip(program.inputs, program.program.given)
    return [(own_name(f"in_{i}"), i, n) for i, n in given if n not in program.program.owned]


_STATE = own_name("kept")


def _before(member: str) -> str:
    """The C variable with a state before a run."""
    return own_name(f"before_{member}")


def _outputs(program: CProgram) -> list[tuple[str, str, Node]]:
    return [(own_name(f"out_{o}"), o, n) for o, n in zip(program.outputs, program.program.results)]
