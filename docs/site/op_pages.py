"""The catalogue of ops, made of their records.

In: the registry of ops. Out: Markdown by path, a page for each family (a file of ``fxlite/ops/``) and one with all
names. An op's samples, which are its tests, are traced for the types, the costs and the loops in C that stand there.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from functools import cache, partial
from pathlib import Path
from typing import Any

import fxlite as fx
from fxlite import passes
from fxlite.base.errors import FxliteError
from fxlite.codegen.kernel.schedule import loops
from fxlite.codegen.program.program import optimize
from fxlite.ops.op import ALIASES, REGISTRY, Op
from fxlite.ops.samples import Random, Sample
from fxlite.passes.gallery import markdown
from fxlite.passes.group import group

#: Samples of an op that are shown.
SHOWN = 3
#: Family -> what its page is called; the order is that of the site.
FAMILIES = {
    "elementwise": "Elementwise",
    "activation": "Activations",
    "reduction": "Reductions and scans",
    "contraction": "Products and einsum",
    "normalization": "Normalization",
    "attention": "Attention",
    "recurrent": "Recurrent layers",
    "loss": "Losses",
    "composite": "Distances and other composites",
    "view": "Views and shapes",
    "slicing": "Slices and joins",
    "indexing": "Indexing, gather and scatter",
    "creation": "Arrays made from nothing",
    "control": "Loops and conditions",
    "convolution": "Convolutions",
    "transposed_convolution": "Transposed convolutions",
    "volume": "Convolution and pooling in 3-d",
    "pooling": "Pooling",
    "pool_positions": "Positions of maxima",
    "resize": "Resizing",
    "resample": "Resampling",
    "grid_sample": "Sampling at given places",
    "linalg": "Linear algebra",
    "sorting": "Sorting and searching",
    "random": "Random numbers",
    "bits": "Bits of numbers",
    "complex_numbers": "Complex numbers",
    "quantized": "Quantization",
    "quantized_product": "Integer products",
    "quantized_recurrence": "Integer recurrent layers",
}
_KINDS = {
    "pointwise": "each element from the elements at its place",
    "view": "the same elements, in another shape or order",
    "reduction": "several elements become one",
    "contraction": "products, summed",
    "window": "each element from a window of the input",
    "gather": "elements are read at computed places",
    "scatter": "elements are written at computed places",
    "scan": "each element depends on those before it",
    "creation": "elements are made",
    "composite": "put together from other ops",
    "opaque": "only its NumPy function is known",
    "random": "random numbers, which no pass merges or moves",
    "control": "runs graphs of its own",
}
_HEAD = """\
# {title}

{count} of `fxlite.ops`, made from the records in `{source}`. The examples are the ones that the tests run on every back
end. [All ops](index.md).
"""
_ALL = """\
# All ops

An op is one record, from which tracing, printing, passes, all back ends and the tests take what they need
([add one](../guides/op.md), [make one in your program](../guides/own_op.md)). The catalogue is made from these records:
what each of the {count} ops computes, the types that it takes and gives, what it costs, and its loops in C. Programs
need not name ops: NumPy's functions become ops ([which ones](../numpy.md)), and so do the layers of `fxlite.nn`.

"""


def family_of(op: Op) -> str:
    """The name of the file that holds an op's record."""
    return op.reference.__module__.rpartition(".")[2]


@cache
def pages() -> dict[str, str]:
    """Markdown by path."""
    families: dict[str, list[Op]] = {}
    for op in sorted(REGISTRY.values(), key=lambda op: op.name):
        families.setdefault(family_of(op), []).append(op)
    assert families.keys() == FAMILIES.keys(), families.keys() ^ FAMILIES.keys()
    found = {f"ops/{family}.md": _page(family, families[family]) for family in FAMILIES}
    index = [_ALL.format(count=len(REGISTRY))]
    for family, title in FAMILIES.items():
        index.append(f"## [{title}]({family}.md)\n\n| op | what it computes |\n|---|---|")
        index += [f"| [`{op.name}`]({family}.md#{op.name}) | {_first_sentence(op)} |" for op in families[family]]
        index.append("")
    return {"ops/index.md": "\n".join(index), **found}


def _page(family: str, ops: list[Op]) -> str:
    source = ops[0].reference.__module__.replace(".", "/") + ".py"
    head = _HEAD.format(title=FAMILIES[family], count=_count(len(ops), "op"), source=source)
    first: dict[str, str] = {}  # the ops whose rules stand on the page, by the text
    return "\n".join([head, *(entry(op, first) for op in ops)])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _first_sentence(op: Op) -> str:
    text = markdown(" ".join(inspect.cleandoc(op.__doc__ or "").split("\n\n")[0].split()))
    return text.replace("|", "\\|")


# -- an op ---------------------------------------------------------------------------------------------
def entry(op: Op, first: dict[str, str]) -> str:
    """All that the site says of an op. A rule that stands further up, in ``first``, is linked to."""
    parts = [f"## {op.name} {{ #{op.name} }}", _fence("python", f"ops.{op.name}{_wrapped(_signature(op))}")]
    parts += [markdown(inspect.cleandoc(op.__doc__ or "")), _facts(op)]
    samples = op.samples[:SHOWN]
    if samples:
        rows = [_sample_row(op, sample) for sample in samples]
        refused = [_refused_row(op, bad.sample) for bad in op.bad_samples[:SHOWN]]
        parts.append("\n".join(["| call | result | FLOPs |", "|---|---|---|", *rows, *refused]))
    if rule := _source(op._infer):
        holder = first.setdefault(rule, op.name)
        same = f"The type rule is that of [`{holder}`](#{holder})."
        parts.append(_folded("Type rule", "python", rule) if holder == op.name else same)
    if op.has_expansion and (definition := _source(op._expansion)):
        parts.append(_folded("Definition in other ops", "python", definition))
    if samples and (text := kernels(op, samples[0])):
        parts.append(_folded(f"Loops in C: {_call(op, samples[0])}", "c", text))
    return "\n\n".join(parts) + "\n"


def _signature(op: Op) -> str:
    text = str(op.signature).replace("'", '"')
    annotated = text.replace('"Tensor"', "Tensor")
    for parameter in (*op.signature.parameters.values(), None):
        note = op.signature.return_annotation if parameter is None else parameter.annotation
        if isinstance(note, str):
            annotated = annotated.replace(f'"{note}"', note)
    return annotated


def _wrapped(signature: str) -> str:
    """A signature too long for a line of a page with each parameter on a line of its own."""
    if len(signature) <= 80:
        return signature
    parameters, arrow, result = signature[1:].rpartition(") -> ")
    lines = re.split(r", (?=\w+: )", parameters)
    return "(\n" + "".join(f"    {line},\n" for line in lines) + arrow + result


def _facts(op: Op) -> str:
    """What a record states besides its rules."""
    said = [f"**{op.kind}**: {_KINDS[op.kind]}"]
    names = sorted(name for name, other in ALIASES.items() if other is op)
    for word, value in (
        ("other names", ", ".join(f"`{name}`" for name in names)),
        ("NumPy's ufunc", f"`np.{op.ufunc.__name__}`" if op.ufunc else ""),
        ("operator", f"`{op.symbol}`" if op.symbol else ""),
        ("ONNX", f"`{op.onnx}`" if op.onnx else ""),
        ("inverse", f"`{op.inverse}`" if op.inverse else ""),
        ("largest error", f"{op.ulp} units in the last place of a float32" if op.ulp else ""),
        ("gradient", op.gradient.replace("_", " ") if op.gradient else ""),
    ):
        if value:
            said.append(f"{word}: {value}")
    said += [word for word in ("commutative", "associative", "nonnegative") if getattr(op, word)]
    return "; ".join(said) + "."


def _source(rule: Any) -> str:
    """The text of a rule; none where another op's, or a function of fxlite's tables, stands for it."""
    while isinstance(rule, partial):
        rule = rule.func
    if rule is None:
        return ""
    try:
        return textwrap.dedent(inspect.getsource(rule)).rstrip()
    except (OSError, TypeError):
        return ""


def _shown(value: Any) -> str:
    if isinstance(value, Random):
        return str(value.type)
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_shown, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def _call(op: Op, sample: Sample) -> str:
    given = [*map(_shown, sample.args), *(f"{name}={_shown(value)}" for name, value in sample.kwargs.items())]
    return f"{op.name}({', '.join(given)})"


def _traced(op: Op, sample: Sample) -> fx.GraphModule:
    """A call as a program of its own."""
    names = ", ".join(f"x{i}" for i in range(len(sample.types())))
    space: dict[str, Any] = {"call": lambda *values: sample.call(op, values)}
    exec(f"def {op.name}_call({names}): return call({names})", space)
    return fx.symbolic_trace(space[f"{op.name}_call"], *sample.types())


def _sample_row(op: Op, sample: Sample) -> str:
    module = _traced(op, sample)
    result = module.graph.output_node().type
    types = ", ".join(map(str, result)) if isinstance(result, tuple) else str(result)
    return f"| `{_call(op, sample)}` | `{types}` | `{passes.cost(module).total.flops}` |"


def _refused_row(op: Op, sample: Sample) -> str:
    try:
        _traced(op, sample)
    except (FxliteError, ValueError, TypeError) as error:
        said = str(error).split("\n")[0].replace("|", "\\|").replace("<", "&lt;")
        return f"| `{_call(op, sample)}` | refused: {said} | |"
    raise AssertionError(f"{op.name} takes {_call(op, sample)}, which its record says is refused")


def kernels(op: Op, sample: Sample) -> str:
    """The plain loops that a call becomes, without templates; none where routines of C do the work."""
    module = optimize(_traced(op, sample), needed_only=True)[0]
    if not all(n.target.has_body for n in module.graph.nodes if n.op == "call_function"):
        return ""
    texts = [str(loops(found, f"k_{found.root.name}")) for found in group(module)]
    return "\n\n".join(re.sub(rf"\n \* {Path(__file__).name}:\d+", "", text) for text in texts)


def _folded(title: str, language: str, text: str) -> str:
    body = textwrap.indent(_fence(language, text), "    ")
    return f'??? note "{title.replace(chr(34), chr(39))}"\n\n{body}'


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
