"""The self-test of a C bundle: a C program that runs the model on stored inputs and judges the
outputs.

In: an emitted program and the cases that were stored. Out: the text of ``NAME_selftest.c``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from fxlite.backend import Case
from fxlite.codegen.c.calls import dim_c
from fxlite.codegen.c.emit import CProgram
from fxlite.codegen.c.tiles.library import definitions_of, instantiate, library, needed
from fxlite.codegen.kernel.names import dim_name, own_name, resolved
from fxlite.codegen.kernel.text import signature, wrap
from fxlite.graph.graph import Graph, Node
from fxlite.show.node_cost import longest_chain
from fxlite.types.agreement import USUAL, Chain, bound
from fxlite.types.tensor_type import TensorType


def compiled_chain(graph: Graph, sizes: Iterable[Mapping[str, int]], matmul_precision: str = "highest") -> Chain:
    """The longest chain at any of these sizes, and what its products round: how far compiled code
    may be from NumPy (:func:`fxlite.types.agreement.bound`)."""
    precision = "int8" if rounds_computed_floats(graph) else matmul_precision
    chain = replace(USUAL, precision=precision)
    for dims in sizes:
        chain = chain.at_least(longest_chain(graph.nodes, dims))
    return chain


def rounds_computed_floats(graph: Graph) -> bool:
    """True if integers are made from floats whose last bits depend on the back end (sums of
    products, transcendental functions): one that lies near a half may be rounded the other way."""
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
    """True for a recurrence in integers whose states are sums, without tanh and sigmoid."""
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
    """The text of ``NAME_selftest.c``. ``is_expanded``: weights are made of what their file
    holds."""
    text = files("fxlite.codegen.c").joinpath("selftest.c").read_text(encoding="utf-8")
    own = definitions_of("selftest", instantiate(text, {"MODEL": program.name}))
    body = "\n".join([resolved(_test(program, cases)), _main(program, cases, is_expanded)])
    return needed(body, [*own, *library()]) + body


def _test(program: CProgram, cases: Sequence[Case]) -> str:
    """The function that runs one case."""
    name, dims = program.name, tuple(map(dim_name, program.entry.dims))
    inputs, outputs = _inputs(program), _outputs(program)
    files = dict(zip(program.outputs, output_files(program)))
    lines = [
        "/* Run case `number`. Returns 1 if it failed. */",
        *signature(
            "test",
            ["int number", *(f"int64_t {d}" for d in dims), "const void *weights", "int n_threads"],
            "static int",
        ),
        "    char path[1000];",
    ]
    shown = ", ".join(f'{d} = %" PRId64 "' for d in dims) or "the stored input"
    values = "".join(f", {d}" for d in dims)
    lines.append(f'    printf("case %d: {shown}\\n", number{values});')
    for variable, label, node in inputs:
        ctype = node.type.dtype.c_stored
        lines += [
            f'    snprintf(path, sizeof path, "selftest/%d_{label}.bin", number);',
            f"    {ctype} *const {variable} = read_file(path, {dim_c(node.type.nbytes)});",
        ]
    for variable, label, node in outputs:
        ctype, size = node.type.dtype.c_stored, dim_c(node.type.nbytes)
        lines += [
            f'    snprintf(path, sizeof path, "selftest/%d_{files[label]}.bin", number);',
            f"    {ctype} *const {_expected(label)} = read_file(path, {size});",
            f"    {ctype} *const {variable} = allocate({size});",
        ]
    nodes = {node.target: node for node in program.program.owned}
    owned = [(member, nodes[target]) for target, member in program.owned.items()]
    where = {m: f"{_STATE}->{m}" for m in program.states.values()} | {
        m: own_name(f"in_{m}") for m in program.donated.values()
    }
    for member, node in owned:
        for variable, file in ((_before(member), "before"), (_expected(member), "after")):
            ctype = node.type.dtype.c_stored
            lines += [
                f'    snprintf(path, sizeof path, "selftest/%d_{file}_{member}.bin", number);',
                f"    {ctype} *const {variable} = read_file(path, {dim_c(node.type.nbytes)});",
            ]
    for member in program.donated.values():
        node = next(n for m, n in owned if m == member)
        ctype, size = node.type.dtype.c_stored, dim_c(node.type.nbytes)
        lines.append(f"    {ctype} *const {where[member]} = allocate({size});")
    states = program.states
    if states:
        lines.append(f"    struct {name}_state *const {_STATE} = allocate((int64_t)sizeof(struct {name}_state));")
    prefix = "".join(f"{d}, " for d in dims)
    pointers = ", ".join(
        [*(own_name(f"in_{i}") for i in program.inputs), *([_STATE] if states else []), *(v for v, _, _ in outputs)]
    )
    call = f"{name}_run({pointers}, {prefix}weights, workspace, n_threads, &error)"
    lines += [
        f"    void *const workspace = allocate({name}_workspace_bytes({prefix}n_threads));",
        "    fx_error error;",
        "    int failed = 0, runs = 0;",
        "    double best = HUGE_VAL;",
        "    for (const double end = seconds() + 0.2; runs < 3 || seconds() < end; runs++) {",
        *([f"        {name}_state_init({_STATE}, weights);"] if states else []),
        *(f"        fx_copy({where[member]}, {_before(member)}, {dim_c(node.type.nbytes)});" for member, node in owned),
        "        const double start = seconds();",
        *wrap(f"        if ({call}) {{"),
        '            printf("    error %d: value %" PRId64 ", limit %" PRId64 ", where %" PRId64'
        ' " (see the header)\\n",',
        "                   error.code, error.value, error.limit, error.where);",
        "            failed = 1;",
        "            break;",
        "        }",
        "        best = fmin(best, seconds() - start);",
        "    }",
        "    if (!failed) {",
    ]
    graph = program.program.module.graph
    chain = compiled_chain(graph, [case.dims for case in cases], program.matmul_precision)
    compared = [(variable, label, node) for variable, label, node in outputs]
    compared += [(where[member], member, node) for member, node in owned]
    for variable, label, node in compared:
        dtype = node.type.dtype
        count = dim_c(node.type.size)
        if dtype.is_inexact:
            if dtype.is_complex:  # as their parts
                count = dim_c(2 * node.type.size)
            call = (
                f'compare_floats("{label}", value_{dtype.real.name}, {variable}, '
                f"{_expected(label)}, {count}, {bound(dtype, chain):.3g})"
            )
        else:
            call = f'compare_integers("{label}", {variable}, {_expected(label)}, {count}, {dtype.itemsize})'
        lines += wrap(f"        failed |= {call};")
    lines += [
        '        printf("    %-16s %.4f ms (the fastest of %d runs)\\n", "time", best * 1e3, runs);',
        "    }",
        "    release(workspace);",
        *(f"    release({v});" for v, _, _ in inputs),
        *(f"    release({_before(m)});\n    release({_expected(m)});" for m, _ in owned),
        *(f"    release({where[m]});" for m in program.donated.values()),
        *([f"    release({_STATE});"] if states else []),
        *(f"    release({v});\n    release({_expected(label)});" for v, label, _ in outputs),
        "    return failed;",
        "}",
        "",
    ]
    return "\n".join(lines)


def output_files(program: CProgram) -> list[str]:
    """What the files of the results are called, beside those of inputs, which have their names."""
    files: list[str] = []
    for output in program.outputs:
        file = f"out_{output}"
        while file in program.inputs or file in files:
            file += "_"
        files.append(file)
    return files


def _expected(label: str) -> str:
    """The C variable of what NumPy computed."""
    return own_name(f"expected_{label}")


def _inputs(program: CProgram) -> list[tuple[str, str, Node]]:
    """(C variable, file label, node) of each input."""
    given = zip(program.inputs, program.program.given)
    return [(own_name(f"in_{i}"), i, n) for i, n in given if n not in program.program.owned]


_STATE = own_name("kept")


def _before(member: str) -> str:
    """The C variable of what a state is before a run."""
    return own_name(f"before_{member}")


def _outputs(program: CProgram) -> list[tuple[str, str, Node]]:
    return [(own_name(f"out_{o}"), o, n) for o, n in zip(program.outputs, program.program.results)]


def _main(program: CProgram, cases: Sequence[Case], is_expanded: bool) -> str:
    name, upper = program.name, program.name.upper()
    file, kind = ("file", "STORED") if is_expanded else ("weights", "WEIGHTS")
    expanded = (
        [f"    void *const weights = allocate({upper}_WEIGHTS_BYTES);", f"    {name}_weights_expand(file, weights);"]
        if is_expanded
        else []
    )
    calls = [
        f"    failed += test({i}, {''.join(f'{size}, ' for size in c.dims.values())}weights, n_threads);"
        for i, c in enumerate(cases, start=1)
    ]
    return "\n".join(
        [
            "int main(int argc, char **argv) {",
            "    int n_threads = 1;",
            "#ifdef _OPENMP",
            "    n_threads = omp_get_max_threads();",
            "#endif",
            "    if (argc > 1) n_threads = atoi(argv[1]);",
            "    if (n_threads < 1) n_threads = 1;",
            "#ifdef EMBEDDED",
            f"    extern const unsigned char {name}_embedded_weights[];",
            f"    const void *const {file} = {name}_embedded_weights;",
            "#else",
            f'    void *const {file} = read_file("{name}_weights.bin", {upper}_{kind}_BYTES);',
            "#endif",
            f"    if ({name}_weights_check({file}, {upper}_{kind}_BYTES))",
            f'        stop({name}_error_message(FX_WRONG_WEIGHTS), "{name}_weights.bin");',
            *expanded,
            f'    printf("{name}: self-test, %d thread%s\\n", n_threads, n_threads == 1 ? "" : "s");',
            "    int failed = 0;",
            *calls,
            "#ifndef EMBEDDED",
            f"    release({file});",
            "#endif",
            *(["    release(weights);"] if is_expanded else []),
            f'    printf("%s: %d of {len(cases)} cases agree with NumPy\\n", failed ? "FAILED" : "OK",'
            f" {len(cases)} - failed);",
            "    return failed != 0;",
            "}",
            "",
        ]
    )
