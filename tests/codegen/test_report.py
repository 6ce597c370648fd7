"""``fx.report``: what the page holds, and how it behaves in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import compiler, nn
from fxlite.base.errors import ArgumentError, CodegenError
from fxlite.base.location import Scope
from fxlite.codegen import backends
from fxlite.codegen.program.program import optimize
from fxlite.codegen.reporting.report import History, ModelReport, history
from fxlite.codegen.runtime.toolchain import CompilerNotFound
from fxlite.show.drawing.colours import CHANGES, css_class
from tests import models
from tests.browser import Elements, browser, in_browser, no_serious_findings, opened
from tests.roofs import ROOFS
from tests.zoo.registry import by_name


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return np.maximum(self.norm(self.conv(x)), 0)


class Net(nn.Module):
    """Three equal blocks, which a picture draws once, and a head with a composite."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return fx.ops.softmax(self.head(self.blocks(x).mean(axis=(2, 3))), axis=-1)


@pytest.fixture(scope="module")
def net() -> fx.GraphModule:
    return fx.symbolic_trace(Net().eval(), x="f32[B,4,8,8]")


def made(gm: fx.GraphModule, **options: Any) -> ModelReport:
    return fx.report(gm, **{"sizes": {"B": 2}, "repeat": 2, "roofs": ROOFS, **options})


@pytest.fixture(scope="module")
def found(net: fx.GraphModule) -> ModelReport:
    return made(net)


@pytest.fixture(scope="module")
def page(found: ModelReport) -> str:
    return found.to_html()


def data_of(text: str) -> Any:
    data = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    return json.loads(data[1])


def part_of(stage: Any, label: str) -> Any:
    (part,) = (p for p in stage["parts"] if p["label"] == label)
    return part


# -- the page --------------------------------------------------------------------------------------
def test_the_page_loads_nothing(page: str) -> None:
    elements = Elements(page)
    for tag, attributes in elements.found:
        assert not {"src", "href", "srcset", "action"} & set(attributes), tag
        assert not any(name.startswith("on") for name in attributes), tag
    assert "@import" not in page and "url(" not in page.replace("url(#arrow)", "")
    assert set(re.findall(r"\w+://[\w./]+", page)) == {"http://www.w3.org/2000/svg"}
    policy = next(a for t, a in elements.found if "http-equiv" in a)["content"]
    assert policy is not None and policy.startswith("default-src 'none';")


def test_without_scripts_all_is_there(page: str, found: ModelReport) -> None:
    bare = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for name in ("graph", "time", "memory", "modules", "passes", "machine"):
        assert f'<section id="{name}"' in bare
    for text in ("conv2d", "k0_blocks_0_conv", "made up", "remove_dropout", "arena", "Block ×3"):
        assert text in bare
    assert bare.count("<svg") == 8  # the graph, two flame graphs, rooflines and timelines, the marker


def test_a_node_has_its_facts(page: str) -> None:
    data = data_of(page)
    traced, optimized = data["stages"]
    facts = part_of(traced, "conv2d")["facts"]
    assert facts["inputs"] == [["x", "x: f32[B,4,8,8]"], ["weight", "self.blocks[0].conv.weight: f32[4,4,3,3]"]]
    cost = dict(facts["cost"])
    assert cost["FLOPs"] == "18432*B = 36,864 (36.9k)"  # 2 · 4·8·8 results · 4·3·3 products
    assert cost["bytes written"] == "1024*B = 2,048"
    assert cost["parameters"] == "144"
    time = dict(facts["time"])
    assert {"in NumPy", "least", "share", "rate", "bound by", "all 3 copies"} == set(time)
    source = facts["source"]
    lines = data["files"][source["file"]]["lines"]
    line = lines[str(source["line"])]
    assert line[slice(*source["columns"])] == "self.conv(x)"
    assert str(source["line"] - 6) in lines
    (kernel,) = (data["kernels"][k] for k in facts["kernels"])
    assert (kernel["name"], kernel["function"]) == ("k0_blocks_0_conv", "k0_block_conv")
    assert "conv2d" in kernel["nodes"]
    text = data["functions"]["k0_block_conv"]
    assert text.lstrip().startswith("/*") and "k0_block_conv(" in text
    assert facts["others"] == 2  # the kernels of the other copies
    time = dict(part_of(optimized, "conv2d")["facts"]["time"])
    assert time["kernel in C"].startswith("k0_blocks_0_conv: ")


def test_a_module_has_sums(page: str) -> None:
    traced = data_of(page)["stages"][0]
    (block,) = (p for p in traced["parts"] if p["times"] == 3)
    cost = dict(block["facts"]["cost"])
    one, every = cost["FLOPs"], cost["FLOPs of all 3"]
    assert int(every.split("*")[0]) == 3 * int(one.split("*")[0]) > 3 * 18432
    assert dict(block["facts"]["time"]).keys() == {"in this one", "in all 3"}
    assert block["facts"]["runs"] == [0]


def test_every_colouring_covers_all_parts(page: str) -> None:
    for stage in data_of(page)["stages"]:
        assert list(stage["colours"]) == ["op", "dtype", "change", "FLOPs", "time"]
        for part in stage["parts"]:
            assert part["paint"].keys() == stage["colours"].keys()
            assert all(number < len(stage["palette"]) for number, _ in part["paint"].values())
    traced, optimized = data_of(page)["stages"]
    kinds = [name for name, _ in traced["colours"]["change"]["legend"]]
    assert {"removed", "changed", "unchanged"} == set(kinds)
    assert {name for name, _ in optimized["colours"]["change"]["legend"]} >= {"added", "changed"}


def test_copies_lead_to_the_one_that_is_drawn(page: str) -> None:
    traced = data_of(page)["stages"][0]
    assert traced["parts"][traced["aliases"]["conv2d_2"]]["label"] == "conv2d"


def test_what_the_program_says_stays_text() -> None:
    bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"

    def program(x: Any) -> Any:
        """</script><script>alert(2)</script>"""
        return np.exp(x)  # </script><b>

    gm = fx.symbolic_trace(program, x="f32[B]")
    gm.name = "<i>name</i>"
    (node,) = gm.graph.find_nodes(op="call_function")
    node.scope = Scope(bad, "<b>")
    text = made(gm, backend="python").to_html()
    tags = [tag for tag, _ in Elements(text).found]
    assert tags.count("script") == 2 and not {"img", "i", "b"} & set(tags)
    data = data_of(text)
    assert any("alert(1)" in p["title"] for p in data["stages"][0]["parts"])
    assert any("</b>" in line or "<b>" in line for line in data["files"][0]["lines"].values())


# -- what is measured, and what cannot be ----------------------------------------------------------
def test_without_a_compiler(net: fx.GraphModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise CompilerNotFound("none")

    monkeypatch.setattr(backends, "find_compiler", missing)
    monkeypatch.setattr(compiler, "machine_roofs", lambda: None)
    report = made(net, roofs=None)
    assert report.optimized.profile is not None and report.optimized.profile.backend == "python"
    assert "There is no C compiler" in str(report)
    text = report.to_html()
    assert "There is no C compiler" in text and "was not measured" in text
    assert data_of(text)["kernels"]  # the source needs no compiler


def test_what_cannot_be_compiled_is_said() -> None:
    gm = fx.symbolic_trace(lambda x: fx.ops.dropout(x, 0.5, training=True), x="f32[B]")
    report = made(gm)
    assert report.program is None and report.notes[0].startswith("No C could be generated from it")
    assert "random ops are not compiled" in report.to_html()
    with pytest.raises(CodegenError, match="random ops"):
        made(gm, backend="c")


def test_nothing_measured(net: fx.GraphModule) -> None:
    report = made(net, profile=False, roofs=None)
    assert report.traced.profile is report.optimized.profile is report.roofs is None
    text = report.to_html()
    assert "Nothing was measured, as requested." in text
    assert "time" not in data_of(text)["stages"][0]["colours"]


def test_in_python_alone(net: fx.GraphModule) -> None:
    report = made(net, backend="python")
    assert report.notes == () and report.program is None
    data = data_of(report.to_html())
    assert data["kernels"] == []
    assert "in NumPy" in dict(part_of(data["stages"][1], "conv2d")["facts"]["time"])


def test_bad_arguments(net: fx.GraphModule) -> None:
    with pytest.raises(ArgumentError, match="the kernels of 'cuda' cannot be timed; choose the back end 'c'"):
        made(net, backend="cuda")
    with pytest.raises(ArgumentError, match="there is no named dim 'N'"):
        made(net, sizes={"N": 2})


def test_it_prints(found: ModelReport) -> None:
    lines = str(found).splitlines()
    assert re.match(
        r"Net: \d+ nodes traced, \d+ after optimization in \d+ kernels(; composite ops were taken apart)?, B=2$",
        lines[0],
    )
    assert lines[1].startswith("traced: ") and "in C" in lines[2]


@pytest.mark.parametrize("name", ["nested_outputs", "scalars_and_empty", "in_place", "half_precision", "tied_weights"])
def test_of_other_programs(name: str) -> None:
    report = fx.report(by_name(name).trace()[0], profile=False)
    parts = [part for stage in data_of(report.to_html())["stages"] for part in stage["parts"]]
    for part in parts:
        is_call = any(name == "op" for name, _ in part["details"])
        assert bool(part["facts"].get("cost")) == (is_call or part["kind"] == "box")


def test_of_a_leaf_module() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.last = Block(), nn.Linear(8, 2)

        def forward(self, x: Any) -> Any:
            return {"result": self.last(self.block(x)), "inputs": [x]}

    gm = fx.symbolic_trace(Model().eval(), x="f32[B,4,8,8]", leaf=[Block])
    report = made(gm, profile=False)
    assert "a leaf module cannot be compiled" in str(report)
    facts = part_of(data_of(report.to_html())["stages"][0], "block")["facts"]
    assert dict(facts["cost"])["FLOPs"] == "?"


# -- history ---------------------------------------------------------------------------------------
def history_of(gm: fx.GraphModule) -> History:
    optimized, manager = optimize(gm)
    return history(gm.graph, optimized.graph, manager.report)


def test_history_of_a_fusion(net: fx.GraphModule) -> None:
    told = history_of(net)
    assert told.traced["batch_norm"] == ["fuse_conv_bn: removed; conv2d is read in its place"]
    assert told.became["batch_norm"] == ["conv2d"]
    assert told.optimized["conv2d"][0] == "fuse_conv_bn: stands for batch_norm, too"
    (relu,) = told.optimized["relu"]
    assert relu == "fuse_conv_bn: reads conv2d in place of batch_norm"


def test_history_of_an_expansion(net: fx.GraphModule) -> None:
    told = history_of(net)
    assert told.traced["softmax"][0].startswith("decompose: replaced by softmax_max, softmax_sub")
    assert told.became["softmax"][-1] == "softmax"
    assert told.optimized["softmax_exp"] == ["decompose: made from softmax"]


def test_history_of_an_unrolled_loop() -> None:
    def program(x: Any) -> Any:
        for _ in range(30):
            x = fx.ops.silu(x)
        return x

    told = history_of(fx.symbolic_trace(program, x="f32[4]"))
    assert told.became["silu_7"] == ["silu_7_sigmoid", "silu_7"]
    assert told.optimized["silu_7_sigmoid"] == ["decompose: made from silu_7"]


def test_history_of_a_rule_and_a_chain() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x.T.T) + fx.ops.silu(x), x="f32[4,5]")
    told = history_of(gm)
    texts = [text for lines in told.traced.values() for text in lines]
    assert any(text.startswith("simplify: removed; x is read in its place") for text in texts)
    assert told.became["permute_1"] == ["x"]
    twice = fx.symbolic_trace(lambda x: np.exp(x) * np.exp(x), x="f32[4]")
    told = history_of(twice)
    assert told.traced["exp_1"] == ["cse: removed; exp is read in its place"]


def test_history_of_a_refusal() -> None:
    class Shared(Block):
        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            return self.norm(y) + y

    told = history_of(fx.symbolic_trace(Shared().eval(), x="f32[B,4,8,8]"))
    assert told.traced["batch_norm"][-1].startswith("fuse_conv_bn: left alone: ")


# -- in a browser ----------------------------------------------------------------------------------
@browser
def test_click_shows_the_panel(tmp_path: Path, page: str) -> None:
    seen = in_browser(
        tmp_path,
        page,
        """
      press(part("conv2d"));
      return { title: $("#details h2").textContent,
        headings: [...document.querySelectorAll("#details h3")].map(h => h.textContent),
        marked: $("#details mark").textContent, here: $("#details .here").textContent,
        kernel: $("#details pre.kernel").textContent, passes: $("#details ul").textContent };
    """,
    )
    assert seen["title"] == "conv2d"
    assert seen["headings"][:3] == ["Operands", "Cost", "Time"]
    assert seen["headings"][3].startswith("tests/codegen/test_report.py:")
    assert seen["headings"][4:] == ["Passes", "Kernel, and 2 for the other copies"]
    assert seen["marked"] == "self.conv(x)" and "self.norm(self.conv(x))" in seen["here"]
    assert "blocks_0_conv_weight" in seen["kernel"]
    assert "stands for batch_norm, too" in seen["passes"]


@browser
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(tmp_path: Path, page: str, dark: bool) -> None:
    with opened(tmp_path, page, dark=dark) as found:
        for tab in ("graph", "time", "memory", "modules", "passes", "rewrites", "machine"):
            found.click(f"#tab-{tab}")
            no_serious_findings(found)


@browser
def test_a_narrow_window(tmp_path: Path, page: str) -> None:
    """Plots fit the window or are half as large, and lines of a diff are as wide as the diff."""
    with opened(tmp_path, page, size=(420, 800)) as found:
        found.click("#tab-time")
        widths = found.eval_on_selector_all("section.open svg", "all => all.map(s => s.getBoundingClientRect().width)")
        assert widths and max(widths) <= 520
        found.click("#tab-rewrites")
        code = found.evaluate("() => document.querySelector('.rewrite.shown .row code').clientWidth")
        assert code > 300


@browser
def test_slider_keeps_the_node_and_the_colours(tmp_path: Path, page: str) -> None:
    seen = in_browser(
        tmp_path,
        page,
        """
      const colour = name => part(name).querySelector(".shape").classList[0];
      const set = (what, value, event) => {
        $(what).value = value;
        $(what).dispatchEvent(new Event(event));
      };
      const state = () => ({ title: $("#details h2").textContent, names: names(),
        way: $("#colour").value, legend: $("#legend").textContent,
        now: $(".slider .now").textContent, time: $("#details").textContent.includes("in C") });
      press(part("conv2d"));
      set("#colour", "change", "change");
      const before = { ...state(), removed: colour("batch_norm") };
      set("#stage", 1, "input");
      const after = { ...state(), same: colour("x") };
      set("#colour", "time", "change");
      return { before, after, notes: document.querySelectorAll("#picture .note").length };
    """,
    )
    before, after = seen["before"], seen["after"]
    assert before["title"] == after["title"] == "conv2d"
    assert (before["now"], after["now"]) == ("traced", "optimized")
    assert before["way"] == after["way"] == "change"
    assert any("batch_norm" in name for name in before["names"])
    assert not any("batch_norm" in name for name in after["names"])
    assert before["removed"] == css_class(CHANGES["removed"]) and "removed" in before["legend"]
    assert "added" in after["legend"] and after["time"] and not before["time"]
    assert seen["notes"] > 3


@browser
def test_search_and_fold(tmp_path: Path, page: str) -> None:
    seen = in_browser(
        tmp_path,
        page,
        """
      document.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }));
      const focused = document.activeElement.id;
      press($("#close-all"));
      const closed = names();
      type("conv2d");
      const count = $("#results h2").textContent;
      $("#results a").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
      return { focused, closed, count, chosen: $(".chosen").textContent, open: names() };
    """,
    )
    assert seen["focused"] == "search"
    assert "▸ blocks" in seen["closed"]
    assert not any("conv2d" in name for name in seen["closed"])
    assert int(seen["count"].split()[0]) >= 1
    assert "conv2d" in seen["chosen"] and any("conv2d" in name for name in seen["open"])


@browser
def test_tabs_and_links_to_nodes(tmp_path: Path, page: str) -> None:
    seen = in_browser(
        tmp_path,
        page,
        """
      const shown = () => [...document.querySelectorAll("section")].filter(
        s => getComputedStyle(s).display !== "none").map(s => s.id);
      const first = shown();
      press($("#tab-time"));
      const time = shown(), host = $("#time .wide");
      const bars = host.shadowRoot.querySelectorAll("rect").length;
      $("#tab-time").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
      const next = shown();
      press([...document.querySelectorAll("a[data-node]")].find(
        a => a.textContent === "k2_blocks_2_conv"));
      return { first, time, bars, next, last: shown(), now: $(".slider .now").textContent,
        title: $("#details h2").textContent };
    """,
    )
    assert seen["first"] == ["graph"] and seen["time"] == ["time"] and seen["next"] == ["memory"]
    assert seen["bars"] > 5
    assert seen["last"] == ["graph"] and seen["now"] == "optimized"
    assert seen["title"] == "conv2d_2"


@browser
def test_nothing_of_the_program_runs(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[B]")
    (node,) = gm.graph.find_nodes(op="call_function")
    code = "</script><script>window.bad=1</script>"
    node.scope = Scope("<img src=x onerror='window.bad=1'>", code)
    gm.name = code
    seen = in_browser(
        tmp_path,
        made(gm, backend="python").to_html(),
        """
      press(part("exp"));
      return { bad: "bad" in window, images: document.querySelectorAll("img").length,
        text: $("#details").textContent };
    """,
    )
    assert seen["bad"] is False and seen["images"] == 0
    assert "onerror" in seen["text"]


@browser
def test_a_large_model_opens_folded(tmp_path: Path) -> None:
    report = made(models.traced("bert"), sizes={"B": 1, "T": 8}, profile=False, backend="python")
    seen = in_browser(
        tmp_path,
        report.to_html(),
        """
      return { drawn: document.querySelectorAll(".part").length, legend: $("#legend").textContent };
    """,
    )
    assert 20 < seen["drawn"] < 60
    assert re.search(r"\d+ nodes: \d+ drawn", seen["legend"])


def test_rewrites_stand_below_each_other(page: str) -> None:
    """Without scripts all are there, with what changed and the values."""
    bare = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    count = bare.count('<article class="rewrite"')
    assert count and f"Rewrite {count} of {count}: " in bare
    assert "fuse_conv_bn 1 of" in bare and bare.count("Results, after all rewrites of fuse_conv_bn: ") == 1
    assert '<div class="row removed">' in bare
    tab = bare.split('<section id="rewrites"')[1].split("</section>")[0]
    assert re.search(r"… \d+ unchanged nodes", tab) and "<summary>" not in tab, "each rewrite lists the whole graph"


@browser
def test_one_key_for_each_rewrite(tmp_path: Path, page: str) -> None:
    seen = in_browser(
        tmp_path,
        page,
        """
      const key = name => document.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
      const shown = () => [...document.querySelectorAll(".rewrite.shown h3")].map(
        h => h.textContent);
      const all = document.querySelectorAll(".rewrite").length;
      const closed = (key("n"), shown());
      document.querySelector("#tab-rewrites").click();
      const first = shown();
      key("n");
      const second = shown();
      key("ArrowLeft"); key("b");
      const back = shown();
      for (let i = 0; i < all + 3; i++) key("ArrowRight");
      const last = shown();
      key("p");
      return { all, closed, first, second, back, last, where: $("#step-where").textContent };
    """,
    )
    count = seen["all"]
    assert seen["closed"] == seen["first"] == seen["back"]
    assert [len(seen[k]) for k in ("first", "second", "back", "last")] == [1] * 4
    assert seen["first"][0].startswith(f"Rewrite 1 of {count}: ")
    assert seen["second"][0].startswith(f"Rewrite 2 of {count}: ")
    assert seen["last"][0].startswith(f"Rewrite {count} of {count}: ")
    assert seen["where"] == f"{count} of {count}"
