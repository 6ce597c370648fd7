"""The command line: ``fxlite trace``, ``compile``, ``diff``, ``check``, ``cost``, ``profile`` and
others.

In: arguments. Out: text on standard output, files, and an exit status: 0 OK, 1 the user's program
or files are at fault (one message, no traceback; ``--debug`` shows it), 2 the arguments are.
``fxlite diff`` answers as diff(1) does: 0 the same, 1 different, 2 something is at fault.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fxlite import option_values as value
from fxlite.errors import FxliteError

if TYPE_CHECKING:
    from rich.console import Console

    from fxlite.graph import Graph

_EXAMPLES = """\
examples:
  fxlite trace model.py:Net --input "x=f32[B,3,224,224]"
  fxlite compile model.py:Net --input "x=f32[B,3,224,224]" --weights net.safetensors -o out/
  fxlite check model.py:Net --input "x=f32[8,3,224,224]" --no-match dropout --max-peak 200MB
  fxlite diff model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn,cse --html diff.html
  fxlite new-pass my_pass
  fxlite cost model.py:Net --input "x=f32[B,T,64]" --size B=8 --range T=64,128,256
  fxlite profile model.py:Net --input "x=f32[B,3,224,224]" --size B=8 --backend c --by module
  fxlite blame model.py:Net --input "x=f32[8,3,224,224]"
  fxlite report model.py:Net --input "x=f32[B,3,224,224]" --size B=8 -o report.html
  fxlite quantize model.py:Net --input "x=f32[B,64]" --data calib.npz --min-sqnr 30 -o net.fxl
  fxlite info

A type is a dtype and a shape, f32[B,3,4*D]; a name in it is a size that is known when the model
runs. dtypes: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64. A program is FILE.py:NAME (a Module class,
an instance, a function, or a function without arguments that makes a model), or a FILE.fxl.
"""

_QUERIES = """\
queries:
  conv2d                        calls of an op; placeholder, get_attr, output; * for any node
  conv2d > relu                 a relu that reads a conv2d; >> through any number of nodes
  (conv1d|conv2d)               one or the other
  batch_norm[training=True]     by an attribute or operand: = != < <= > >=, or [bias] alone
  [dtype=f64] [shape=f32[B,3,*,*]] [rank=4] [bytes>1MB]     by the type of the result
  :users(>1) :constant :random :dead :first :last :not(...)
  :in("layers.*.attn") :at("model.py:31")                   by module, by line
  module("encoder.*") a > b     a chain inside a module
  a > b, c                      several queries
  pydoc fxlite.query                   the whole language

Status: 0 all checks passed, 1 one failed or the program is at fault, 2 the arguments are.
"""

_QUANTIZE = """\
Turn a float program into one of 8-bit (or 4-bit) integers; says what became integers, what stayed
float and why, and how far the results are from the float ones."""

_QUANTIZE_EXAMPLES = """\
examples:
  fxlite quantize model.py:Net -i "x=f32[B,64]" --scheme dynamic_int8 -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz --scheme static_int8 -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz --min-sqnr 30 \\
      --write-plan plan.toml -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz --plan plan.toml -o net.fxl
  fxlite compile net.fxl -o out/          the result as C

schemes:
  static_int8       activations and weights; ranges from --data; the fastest
  dynamic_int8      the same, ranges found in each call
  weight_only_int8, weight_only_int4      small weights, float arithmetic
  fp16, bf16        half floats throughout
"""

#: What ``fxlite quantize --scheme`` takes: the presets of quantization.
SCHEMES = (
    "static_int8", "dynamic_int8", "weight_only_int8", "weight_only_int4", "fp16", "bf16",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from rich.console import Console

    parser = _parser()
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        if getattr(options, "dim", None):
            from fxlite.program_file import with_facts

            options.input = with_facts(options.input, options.dim)
        return int(options.run(options, console))
    except BrokenPipeError:
        # the reader has gone, as in `fxlite trace ... | head`; nothing is left to be flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except Exception as error:
        if options.debug:
            raise
        _complain(_message(error))
        return int(options.trouble)


def _message(error: Exception) -> str:
    """The error's own text; for errors that are not fxlite's, their sort, place and how to see
    more."""
    if isinstance(error, FxliteError) or type(error).__module__.startswith("fxlite."):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    from fxlite.program_file import describe

    return f"{describe(error)}\n  --debug shows the traceback"


def _complain(message: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    console.print("[bold red]error:[/]", end=" ", soft_wrap=True)
    console.print(message, markup=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fxlite", description="See, rewrite and compile models written with NumPy.",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    import fxlite

    parser.add_argument("--version", action="version", version=f"fxlite {fxlite.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    trace = commands.add_parser("trace", help="print a program's graph with a type on every value")
    _program_options(trace)
    trace.add_argument("--table", action="store_true", help="print a table instead of code")
    trace.add_argument(
        "--tree", action="store_true",
        help="print the modules with result, parameters and FLOPs instead of code",
    )  # fmt: skip
    trace.add_argument(
        "--draw", metavar="FILE",
        help="write a picture instead: .svg, .html (to explore), .dot, .png or .pdf",
    )  # fmt: skip
    trace.add_argument(
        "--depth", type=value.depth, metavar="N",
        help="for --draw and --tree: levels of modules that are open; default: as many as stay "
        "readable in a picture, all in a tree",
    )  # fmt: skip
    trace.add_argument(
        "--color", choices=("op", "dtype", "change", "scope"),
        help="for --draw: what colours say; default op, its kind; change: what --passes did",
    )  # fmt: skip
    trace.add_argument(
        "--query", metavar="QUERY", type=value.query,
        help='print only the nodes it finds, "conv2d > relu"; fxlite check --help tells more',
    )  # fmt: skip
    trace.add_argument(
        "--doctor", action="store_true",
        help="find all that keeps the program from being traced, with fixes; status 1 if anything",
    )  # fmt: skip
    trace.add_argument(
        "--passes", metavar="NAME,NAME", default="",
        help="run these passes first; one of your own is FILE.py:NAME",
    )  # fmt: skip
    trace.set_defaults(run=_trace)

    compile = commands.add_parser(
        "compile", help="turn a program into optimized source files, checked and timed"
    )
    _program_options(compile)
    compile.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where to write")
    compile.add_argument(
        "--backend", default="c", metavar="NAME", help="c (default), python or cuda"
    )
    compile.add_argument(
        "--threads", type=value.positive, metavar="N",
        help="threads of compiled code; default OMP_NUM_THREADS, else the usable processors",
    )  # fmt: skip
    compile.add_argument(
        "--device", metavar="DEVICE",
        help="for cuda: number of a GPU, sm_90 (compile only), or shim (run on the CPU, slowly)",
    )  # fmt: skip
    _precision_option(compile)
    _autotune_option(compile)
    _size_option(compile, "to check and time with")
    compile.add_argument(
        "--data", action="append", default=[], metavar="NAME=FILE.npy",
        type=value.pair("NAME=FILE.npy"),
        help="a real input to check with and to store in the self-test; default random numbers",
    )  # fmt: skip
    compile.add_argument(
        "--force", action="store_true", help="write into a folder that holds other files, too"
    )
    compile.set_defaults(run=_command("command", "compile_command"))

    diff = commands.add_parser(
        "diff", help="what changed from one program to another, or by running passes",
        epilog="Status, as of diff(1): 0 the same, 1 different, 2 something is wrong.",
    )  # fmt: skip
    _program_options(diff)
    _diff_options(diff)
    diff.set_defaults(run=_command("diff_command", "diff_command"))

    check = commands.add_parser(
        "check", help="fail where a graph holds what it must not, or is larger than a limit",
        epilog=_QUERIES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    _program_options(check)
    _check_options(check)
    check.set_defaults(run=_command("check_command", "check_command"))

    new_pass = commands.add_parser(
        "new-pass", help="write a pass (or a rule) that works, with examples and a test, to edit"
    )
    new_pass.add_argument("name", metavar="NAME", help="name of the pass, and of its file")
    new_pass.add_argument(
        "--rule", action="store_true", help="a rule: a pattern and what to put in its place"
    )
    new_pass.add_argument(
        "-o", "--output", default=".", metavar="FOLDER", help="where to write; default here"
    )
    new_pass.set_defaults(run=_new_pass)

    bisect = commands.add_parser(
        "bisect", help="run passes one by one, checked; name the first that is wrong, and where",
        epilog="Status: 0 all passes are right, 1 one is wrong (or does not run).",
    )  # fmt: skip
    _program_options(bisect)
    bisect.add_argument(
        "--passes", required=True, metavar="NAME,NAME",
        help="passes in order, by name or as FILE.py:NAME",
    )  # fmt: skip
    bisect.add_argument(
        "--backend", metavar="NAME",
        help="compile the program after each pass, too, and compare: c, python or cuda",
    )  # fmt: skip
    _size_option(bisect, "to run compiled code with")
    bisect.set_defaults(run=_command("bisect_command", "bisect_command"))

    cost = commands.add_parser(
        "cost", help="FLOPs, bytes, parameters and memory, as formulas in the named dims or numbers"
    )
    _program_options(cost)
    _cost_options(cost)
    cost.set_defaults(run=_command("cost_command", "cost_command"))

    profile = commands.add_parser(
        "profile", help="measure where the time of a call goes, beside the machine's limits"
    )
    _program_options(profile)
    _measuring_options(profile)
    profile.add_argument(
        "--by", choices=("kernel", "module", "op", "line"),
        help="one row for each kernel (default; in Python: node), module, op or source line",
    )  # fmt: skip
    profile.add_argument(
        "--passes", metavar="NAME,NAME",
        help="measure what each of these passes brings, beside what its costs predict; your own: "
        "FILE.py:NAME; standard: those that fxlite compile runs",
    )  # fmt: skip
    profile.add_argument(
        "--trace", metavar="FILE", help="write one call as JSON for chrome://tracing and Perfetto"
    )
    _precision_option(profile)
    _autotune_option(profile)
    profile.set_defaults(run=_command("profile_command", "profile_command"))

    blame = commands.add_parser(
        "blame", help="print a program's file with the time that each line takes"
    )
    _program_options(blame)
    _measuring_options(blame)
    blame.set_defaults(run=_command("profile_command", "blame_command"))

    report = commands.add_parser(
        "report", help="write one HTML page: the graph to explore with costs, times, memory, source"
    )
    _program_options(report)
    report.add_argument("-o", "--output", required=True, metavar="FILE.html", help="the page")
    _measuring_options(
        report, None, "what the optimized graph runs as: c (default, where possible) or python"
    )
    report.add_argument(
        "--no-profile", dest="profile", action="store_false", help="measure nothing"
    )
    report.set_defaults(run=_command("report_command", "report_command"))

    quantize = commands.add_parser(
        "quantize", help="make a program of integers, by a scheme, a plan or a budget",
        description=_QUANTIZE, epilog=_QUANTIZE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    _program_options(quantize)
    _quantize_options(quantize)
    quantize.set_defaults(run=_command("quantize_command", "quantize_command"))

    info = commands.add_parser("info", help="version, compiler, CPU, cache and devices")
    info.add_argument(
        "--roofs", action="store_true",
        help="measure what arithmetic and memory can do at most (some seconds)",
    )  # fmt: skip
    info.add_argument("--clear-cache", action="store_true", help="remove all cached builds")
    info.set_defaults(run=_info)
    for command in commands.choices.values():
        command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        command.set_defaults(trouble=2 if command is diff else 1)
    return parser


def _program_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="FILE.py:NAME or FILE.fxl")
    parser.add_argument(
        "-i", "--input", action="append", default=[], metavar="NAME=TYPE", type=value.typed_input,
        help='an input and its type, "x=f32[B,3,224,224]"; repeat for each',
    )  # fmt: skip
    parser.add_argument(
        "--dim", action="append", default=[], metavar="DIM=FACTS", type=value.facts,
        help='what is known of a named dim of the inputs: "T=1..512", "T=8..512%%8" (a multiple of '
        '8), "T=1..", "T=%%8"; repeat for each',
    )  # fmt: skip
    parser.add_argument("-w", "--weights", metavar="FILE", help="a safetensors file to load")


def _precision_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--matmul-precision", choices=("highest", "high", "medium"), default="highest",
        help="medium: products with constant weights round their operands to bf16 (c only); high: "
        "three products of bf16 where the processor has AMX, else as highest (default)",
    )  # fmt: skip


def _autotune_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--autotune", action="store_true",
        help="where there are several ways to compute a kernel, measure them (at --size) and take "
        "the fastest, not the one that a model predicts; choices are kept in the cache (c only)",
    )  # fmt: skip


def _size_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    parser.add_argument(
        "--size", action="append", default=[], metavar="DIM=N", type=value.size,
        help=f"size of a named dim {purpose}; repeat for each",
    )  # fmt: skip


def _cost_options(parser: argparse.ArgumentParser) -> None:
    _size_option(parser, "to put into the formulas")
    parser.add_argument(
        "--by", default="module", choices=("module", "op", "node"),
        help="one row for each module (default), op or node",
    )  # fmt: skip
    parser.add_argument(
        "--compare", metavar="OTHER", help="a program to compare with, after the first"
    )
    parser.add_argument(
        "--passes", metavar="NAME,NAME",
        help="in place of OTHER: the program after these passes; your own: FILE.py:NAME; "
        "standard: those that fxlite compile runs",
    )  # fmt: skip
    parser.add_argument(
        "--range", metavar="DIM=N,N,...", type=value.sizes,
        help="a row for each of these sizes of a named dim",
    )  # fmt: skip
    parser.add_argument(
        "--quantity", default="flops", metavar="COST",
        help="what --draw plots, and what must be less for the second program to pay: flops "
        "(default), bytes, read, written, peak",
    )  # fmt: skip
    parser.add_argument(
        "--timeline", action="store_true",
        help="show which values are in memory while each node runs instead",
    )  # fmt: skip
    parser.add_argument(
        "--draw", metavar="FILE.svg", help="draw what --range or --timeline shows, too"
    )


def _measuring_options(
    parser: argparse.ArgumentParser,
    backend: str | None = "python",
    backends: str = "python (default: each node, run by NumPy) or c (each kernel, with counters)",
) -> None:
    parser.add_argument("--backend", default=backend, metavar="NAME", help=backends)
    _size_option(parser, "to measure with")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=FILE.npy",
        type=value.pair("NAME=FILE.npy"),
        help="a real input to measure with; default random numbers",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", type=value.positive, metavar="N",
        help="measured calls; default what fits into half a second",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=value.positive, metavar="N",
        help="threads of compiled code; default OMP_NUM_THREADS, else the usable processors",
    )  # fmt: skip


def _quantize_options(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group(
        "data", "real inputs, to find the ranges of values and the noise on"
    )
    data.add_argument(
        "--data", action="append", default=[], metavar="FILE",
        help=".npz or .safetensors with arrays by the inputs' names, .npy for the only input, "
        "INPUT=FILE.npy, or a folder of such files; repeat for more. Arrays are cut into batches "
        "along the named dim that they begin with, or an axis that stands before the type's",
    )  # fmt: skip
    data.add_argument(
        "--batch", type=value.positive, default=32, metavar="N",
        help="size of a batch along a named dim; default 32",
    )  # fmt: skip
    how = parser.add_argument_group("how", "one of --scheme, --plan, or a budget")
    how.add_argument(
        "--scheme", choices=SCHEMES, help="one for all; only static_int8 needs --data"
    )  # fmt: skip
    how.add_argument("--plan", metavar="FILE.toml", help="a scheme for each layer, maybe edited")
    for option, metavar, parse, text in (
        ("--min-sqnr", "DB", float, "signal-to-noise ratio of the results on --data, in dB"),
        ("--max-bytes", "BYTES", value.quantity, "bytes of all weights: 200kB, 4MiB"),
        ("--max-latency", "TIME", value.seconds, "time of all products, as estimated: 200us"),
    ):
        how.add_argument(
            option, metavar=metavar, type=parse, help=f"make a plan that keeps this: {text}"
        )
    written = parser.add_argument_group("files written")
    written.add_argument(
        "-o", "--output", required=True, metavar="FILE.fxl", help="the quantized program"
    )
    written.add_argument("--write-plan", metavar="FILE.toml", help="the plan that was made")
    written.add_argument(
        "--draw", metavar="FILE", help="the program, coloured by the plan's SQNR: .svg, .html"
    )


def _diff_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "other", metavar="OTHER", nargs="?", help="the program to compare with, after the first"
    )
    parser.add_argument(
        "--passes", metavar="NAME,NAME",
        help="in place of OTHER: compare before and after these passes; your own: FILE.py:NAME",
    )  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="write a page that needs nothing else, too")
    parser.add_argument("--json", metavar="FILE", help="write the diff as data, too; - prints it")
    parser.add_argument(
        "--context", type=value.count, default=3, metavar="N",
        help="unchanged lines shown around a change; default 3",
    )  # fmt: skip


def _check_options(parser: argparse.ArgumentParser) -> None:
    for option, text in (
        ("--match", "fail unless this finds something; repeat for each"),
        ("--no-match", "fail if this finds something; repeat for each"),
    ):
        parser.add_argument(
            option, action="append", default=[], metavar="QUERY", type=value.query, help=text
        )
    for option, metavar, text in (
        ("--max-peak", "BYTES", "memory of computed values, when it is largest: 200MB, 64MiB"),
        ("--max-flops", "FLOPS", "arithmetic operations of one run: 5G"),
        ("--max-weights", "BYTES", "bytes of the weights that are read"),
        ("--max-nodes", "N", "nodes of the graph"),
    ):
        parser.add_argument(option, metavar=metavar, type=value.quantity, help=text)
    parser.add_argument(
        "--lint", action="store_true", help="fail if the graph breaks its own rules"
    )
    _size_option(parser, "that a limit depends on")


# -- commands --------------------------------------------------------------------------------------
def _command(module: str, function: str) -> Callable[[argparse.Namespace, Console], int]:
    """A command whose body stands in a file of code generation, imported when it is run."""

    def run(options: argparse.Namespace, console: Console) -> int:
        found = getattr(importlib.import_module(f"fxlite.codegen.{module}"), function)
        return int(found(options, console))

    return run


def _trace(options: argparse.Namespace, console: Console) -> int:
    from fxlite.console import print_code, show
    from fxlite.program_file import trace_program
    from fxlite.text.pretty import fitted_text, node_table

    if options.doctor:
        return _doctor(options, console)
    _, module = trace_program(options.program, options.weights, options.input)
    traced = module
    if options.passes:
        from fxlite.passes.manager import PassManager
        from fxlite.passes.pass_names import find_passes

        module = PassManager(find_passes(options.passes))(module)
    if options.query:
        _print_matches(module.graph, options.query, console)
    elif options.draw:
        before = traced.graph if options.color == "change" else None
        module.graph.draw(
            options.draw, depth=options.depth, color=options.color, changed_from=before
        )
        console.print(f"{options.draw} written", soft_wrap=True, markup=False)
    elif options.table:
        show(console, node_table(module.graph, console.width))
    elif options.tree:
        show(console, module.summary(options.depth))
    else:
        text = str(module.graph)
        if console.is_terminal:
            text = fitted_text(module.graph, console.width)
        print_code(console, text)
    return 0


def _print_matches(graph: Graph, query: str, console: Console) -> None:
    """The nodes of each match with their places, matches of several nodes apart; then how many."""
    from fxlite.query.search import unknown_places
    from fxlite.text.pretty import node_line

    matches = graph.find(query)
    apart = any(len(match.nodes) > 1 for match in matches)
    for match in matches:
        for node in match.nodes:
            place = f"  # {node.origin}" if node.origin and node.op != "output" else ""
            console.print(node_line(node) + place, soft_wrap=True, markup=False)
        if apart:
            console.print()
    for said in [] if matches else unknown_places(graph, query):
        console.print(f"# {said}", soft_wrap=True, markup=False)
    console.print(f"# {len(matches)} match{'' if len(matches) == 1 else 'es'}")


def _doctor(options: argparse.Namespace, console: Console) -> int:
    from fxlite.program_file import load_program, unique
    from fxlite.tracing.doctor import trace_doctor

    program = load_program(options.program, options.weights)
    diagnosis = trace_doctor(program, inputs=unique(options.input, "--input"))
    console.print(diagnosis, soft_wrap=True)
    return 0 if diagnosis else 1


def _new_pass(options: argparse.Namespace, console: Console) -> int:
    from fxlite.passes.new_pass import new_pass, next_steps

    files = new_pass(options.name, options.output, options.rule)
    console.print(next_steps(options.name, *files), soft_wrap=True, markup=False)
    return 0


def _info(options: argparse.Namespace, console: Console) -> int:
    from fxlite.codegen.command import clear_cache, info_table
    from fxlite.console import show

    if options.roofs:
        from fxlite.codegen.runtime.roofs import machine_roofs

        show(console, machine_roofs(refresh=True))
        return 0
    show(console, clear_cache() if options.clear_cache else info_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
