"""The gallery of passes, which shows on examples what each pass is for.

In: the passes that come with fxlite. Out: the page ``docs/passes.md``, and a picture of one example
of each pass. A test compares them with the passes; after a change, ``python -m
fxlite.passes.gallery`` writes them again (with an argument FOLDER, into that folder).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import PASSES, Example, Pass
from fxlite.passes.checking.verify import run_example, source_of
from fxlite.passes.ledger import ledger
from fxlite.passes.rewrite.rule_set import RuleSet
from fxlite.show.drawing.draw import to_svg
from fxlite.show.drawing.svg import ROOT
from fxlite.show.text.pretty import call_text

PAGE = "passes.md"
IMAGES = "images/passes"
_LARGEST_PICTURE = 12  # nodes; a larger graph cannot be read at a glance
_ARROW = 70  # pixels between the two graphs
_EXACTNESS = {
    "exact": "exact: the results are the same bit for bit",
    "allclose": "allclose: the results may differ by rounding",
    "sqnr": "sqnr: the results differ by noise within a bound",
    "changes": "changes: the results differ; their structure, shapes and dtypes stay",
}

HEAD = """\
# Passes

The passes that come with `fxlite.passes`, each on small examples: a program, its graph before and
after, and programs that the pass leaves alone, with the reason. The examples are next to each pass
in its source and run as tests. `python -m fxlite.passes.gallery` makes this page from them.

Run passes with `passes.cse(gm)`, `passes.PassManager(["cse", "dce"])(gm)` or `fxlite trace
model.py:Net --passes cse,dce`; start one of your own with `fxlite new-pass NAME`."""


def own_passes() -> list[Pass]:
    """The registered passes that come with fxlite, sorted by name."""
    found = (p for p in PASSES.values() if (p.__module__ or "").startswith("fxlite."))
    return sorted(found, key=lambda p: p.name)


def gallery(items: Iterable[Pass]) -> dict[str, str]:
    """The files of the gallery: their contents by path."""
    items = list(items)
    files: dict[str, str] = {}
    rows = [f"| [{p.name}](#{p.name}) | {markdown(p.summary)} | {p.exactness} |" for p in items]
    page = [HEAD, "| pass | what it does | results |\n| --- | --- | --- |\n" + "\n".join(rows)]
    for item in items:
        picture = _picture(item)
        page.append(f"## {item.name}")
        page.append(markdown(inspect.cleandoc(item.__doc__ or "")))
        page.append(f"Results: {_EXACTNESS[item.exactness.kind]}. Source: `{_source_file(item)}`.")
        for number, example in enumerate(item.examples):
            page.append(_example_text(item, example))
            if number == 0 and picture:
                files[f"{IMAGES}/{item.name}.svg"] = picture
                page.append(f'<img src="{IMAGES}/{item.name}.svg" alt="{item.name}: the graph before and after">')
        page += [_counterexample_text(item, example) for example in item.counterexamples]
        if isinstance(item, RuleSet):
            page.append(_rules_table(item))
    files[PAGE] = "\n\n".join(page) + "\n"
    return files


def _source_file(item: Pass) -> str:
    module = item.__module__
    if isinstance(item, RuleSet):  # an instance; its class is defined elsewhere than its rules
        module = item.rules[0].__module__
    return f"{module.removeprefix('fxlite.').replace('.', '/')}.py"


# -- one example -----------------------------------------------------------------------------------
def _example_text(item: Pass, example: Example) -> str:
    before, after = run_example(item, example)
    return (
        f"**{_headline(example)}**\n\n{_fence('python', _program(example))}\n\n"
        f"Before, and after `{_call(item, example)}`:\n\n"
        f"{_fence('python', _graph_text(before.graph))}\n\n"
        f"{_fence('python', _graph_text(after.graph))}"
    )


def _counterexample_text(item: Pass, example: Example) -> str:
    after = run_example(item, example)[1]
    text = f"**Left alone: {example.about}**\n\n{_fence('python', _program(example))}"
    if example.options:
        text += f"\n\nwith `{_call(item, example)}`"
    said = [f"{entry.pass_name}: {entry.node}: {entry.reason}" for entry in ledger(after)]
    if said:
        text += f"\n\nThe ledger says:\n\n{_fence('text', chr(10).join(said))}"
    return text


def _headline(example: Example) -> str:
    about = example.about or "an example"
    return about[0].upper() + about[1:]


def _call(item: Pass, example: Example) -> str:
    options = "".join(f", {name}={_shown(value)}" for name, value in example.options.items())
    return f"{item.name}(gm{options})"


def _shown(value: Any) -> str:
    return repr(set(value)) if isinstance(value, frozenset) else repr(value)


def _program(example: Example) -> str:
    types = ", ".join(f"{name}: {type}" for name, type in example.inputs.items())
    first, *rest = source_of(example.program).splitlines()
    return "\n".join([f"{first}  # {types}" if types else first, *rest])


def _graph_text(graph: Graph) -> str:
    """The text of a graph, without the comments that show its source lines."""
    return "\n".join(re.sub(r"(?<=\S)  # .*", "", line) for line in graph.text(full=True).splitlines())


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def markdown(text: str) -> str:
    """Convert the two marks of reStructuredText that docstrings use into Markdown."""
    text = re.sub(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


# -- pictures --------------------------------------------------------------------------------------
def _picture(item: Pass) -> str | None:
    """A picture of the first example that is small enough, before and after."""
    for example in item.examples:
        modules = run_example(item, example)
        if all(_drawn(module) <= _LARGEST_PICTURE for module in modules):
            return side_by_side(*(to_svg(module.graph) for module in modules))
    return None


def _drawn(module: GraphModule) -> int:
    return sum(node.op != "get_attr" for node in module.graph.nodes)


def side_by_side(before: str, after: str) -> str:
    """Two pictures in one, with an arrow between them."""
    (w0, h0), (w1, h1) = map(_size, (before, after))
    height, middle = max(h0, h1), max(h0, h1) / 2
    inner = [
        re.sub(r"<svg [^>]*?width", f'<svg class="{ROOT}" x="{x}" y="{(height - h) / 2:.0f}" width', svg, count=1)
        for svg, x, h in ((before, 0, h0), (after, w0 + _ARROW, h1))
    ]
    width = w0 + _ARROW + w1
    tip = w0 + _ARROW - 16
    places = re.sub(
        r"<title>(.*?)</title>", lambda m: f"<title>{m[1].splitlines()[0]}</title>", "".join(inner), flags=re.DOTALL
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">\n'
        f'<g class="{ROOT}"><rect class="page" width="{width}" height="{height}"/></g>\n{places}'
        f'<path d="M{w0 + 16},{middle:.0f} H{tip} m-9,-6 l9,6 l-9,6" fill="none" '
        f'stroke="#7d8b99" stroke-width="2"/>\n</svg>\n'
    )


def _size(svg: str) -> tuple[int, int]:
    found = re.search(r'width="(\d+)" height="(\d+)"', svg)
    assert found is not None
    return int(found[1]), int(found[2])


# -- the rules of a set ----------------------------------------------------------------------------
def _rules_table(rules: RuleSet) -> str:
    """One row for each rule: its pattern, its replacement, and what it leaves alone."""
    headings = ("rule", "what it says", "before", "after", "left alone")
    rows = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    for rule in rules.rules:
        assert isinstance(rule, Pass)
        example, other = rule.examples[0], rule.counterexamples[0]
        after = run_example(rule, example)[1]
        left = _line(other.program)
        cells = (
            rule.name,
            markdown(" ".join((rule.__doc__ or "").split())),
            f"`{_line(example.program)}`",
            f"`{_expression(after.graph)}`",
            f"`{left}`: {other.about}" if left else other.about,
        )
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return f"Its rules, in the order in which they are tried:\n\n{chr(10).join(rows)}"


def _line(program: Callable[..., Any]) -> str:
    """The expression that a one-statement program returns; "" for other programs."""
    _, first, *rest = source_of(program).splitlines()
    if not first.strip().startswith("return "):
        return ""
    return " ".join([first.strip().removeprefix("return "), *map(str.strip, rest)])


def _expression(graph: Graph) -> str:
    """The result of a small graph, written as one expression."""
    texts: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            texts[node.name] = _with_operands(node, texts)
    (result,) = graph.output_node().all_input_nodes
    return texts.get(result.name, result.name)


def _with_operands(node: Node, texts: dict[str, str]) -> str:
    def operand(found: re.Match[str]) -> str:
        text = texts.get(found[0], found[0])
        return f"({text})" if " " in text and not text.endswith(")") else text

    return re.sub(r"(?<![\w.])[a-z]\w*\b(?![(=])", operand, call_text(node))


def main(folder: str = "docs") -> None:
    """Write the gallery into ``folder``."""
    for path, text in gallery(own_passes()).items():
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{file} written\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
