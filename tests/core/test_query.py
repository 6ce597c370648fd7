"""Graph queries: every form of the language on one program, errors, and long graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.base.errors import FxliteError, QueryError
from fxlite.show.query.parser import parse_query
from fxlite.show.query.search import QueryMatch, unknown_places
from fxlite.show.query.values import parse_quantity
from tests.work import assert_linear


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8, bias=False)

    def forward(self, x: Any) -> Any:
        q, k, v = np.split(self.qkv(x), 3, axis=-1)
        return self.out(F.softmax(q @ k.transpose(0, 2, 1), dim=-1) @ v)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        return self.norm(x + self.attn(x))


class Net(nn.Module):
    """Convolutions, two attention layers, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, groups=2)
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = np.maximum(self.bn(self.conv1(x)), 0)
        y = F.relu(self.conv2(y)) * 2.0  # FIRST
        y = y.reshape(y.shape[0], 8, -1).transpose(0, 2, 1)
        y = self.layers(y)
        y = F.dropout(y, 0.25)
        return self.head(y.mean(axis=(0, 1)))


@pytest.fixture(scope="module")
def graph() -> fx.Graph:
    return fx.symbolic_trace(Net().eval(), x="f32[B,3,8,8]").graph


def names(matches: list[QueryMatch]) -> list[str]:
    return [" ".join(node.name for node in match.nodes) for match in matches]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # ops, opcodes, names, alternatives
        ("conv2d", ["conv2d", "conv2d_1"]),
        ("multiply", ["mul"]),  # NumPy's name
        ("maximum", []),  # np.maximum(x, 0) is relu
        ("placeholder", ["x"]),
        ("output", ["output"]),
        ("*:input", ["x"]),
        ("#relu_1", ["relu_1"]),
        ("(max_pool2d|batch_norm|relu)", ["batch_norm", "relu", "relu_1"]),
        ("(conv2d[groups=2]|linear[bias])", ["conv2d_1", "linear", "linear_2", "linear_4"]),
        # attributes and operands
        ("conv2d[groups=1]", ["conv2d"]),
        ("conv2d[groups!=1]", ["conv2d_1"]),
        ("conv2d[stride=(2,2)]", ["conv2d_1"]),
        ("conv2d[stride>=2]", ["conv2d_1"]),
        ("conv2d[bias]", ["conv2d_1"]),
        ("conv2d[bias=None]", ["conv2d"]),
        ("conv2d[bias!=None]", ["conv2d_1"]),
        ("batch_norm[training=False]", ["batch_norm"]),
        ("batch_norm[training]", []),
        ("mul[y=2]", ["mul"]),
        ("mul[y=True]", []),
        ("split[axis=2]", ["split", "split_1"]),
        ("split[dim=-1]", ["split", "split_1"]),
        ("split[axis!=2]", []),
        ("split[sizes=8]", ["split", "split_1"]),
        ("mean[axis=(1, 0)]", ["mean"]),
        ("mean[axis=1]", []),
        ("getitem[index=1]", ["getitem_1", "getitem_4"]),
        ("[index<1]", ["getitem", "getitem_3"]),
        ("[kind=reduction]", ["mean"]),
        ('get_attr[path="bn.running_*"]', ["bn_running_mean", "bn_running_var"]),
        # types
        ("conv2d[shape=f32[B,8,8,8]]", ["conv2d"]),
        ("conv2d[shape=(B,8,*,3)]", ["conv2d_1"]),
        ("conv2d[shape=(..., 3)]", ["conv2d_1"]),
        ("conv2d[shape!=f32[...]]", []),
        ("[shape=f64[...]]", []),
        ("[shape=[5]]:not(get_attr)", ["linear_4"]),
        ("*[dtype!=f32]", []),
        ("[rank=2]:not(get_attr)", []),
        ("[size=512*B]:not(relu)", ["conv2d", "batch_norm"]),
        ("get_attr[bytes>800]", ["conv1_weight", "conv2_weight"]),
        ("get_attr[bytes>0.8kB][bytes<1KiB]", ["conv1_weight"]),
        # users, flow
        ("[rank=3]:users(2)", ["permute", "layer_norm"]),
        ("linear:users( 0 )", []),
        ("linear:users(>=1):last", ["linear_4"]),
        (":random", ["dropout"]),
        (":dead", []),
        ("relu:first, conv2d:last", ["relu", "conv2d_1"]),
        # modules
        ('module("layers.*.attn") softmax', ["softmax", "softmax_1"]),
        ('module("layers.1") linear', ["linear_2", "linear_3"]),
        ('module("conv*")', ["conv1_weight", "conv2d", "conv2_weight", "conv2_bias", "conv2d_1"]),
        ('linear:in("**.out")', ["linear_1", "linear_3"]),
        ('linear:in("*")', ["linear", "linear_1", "linear_2", "linear_3", "linear_4"]),
        ('relu:in("**")', ["relu", "relu_1"]),
        ('relu:in("*")', []),
        ('module("layers.0") add > layer_norm > linear', []),
        # chains
        ("conv2d > batch_norm[training=False] > relu", ["conv2d batch_norm relu"]),
        ("conv2d > relu", ["conv2d_1 relu_1"]),
        ("conv2d>>relu", ["conv2d relu", "conv2d_1 relu_1"]),
        ("batch_norm >> conv2d >> softmax:first", ["batch_norm conv2d_1 softmax"]),
        ("matmul > softmax > matmul", ["matmul softmax matmul_1", "matmul_2 softmax_1 matmul_3"]),
        ("relu > batch_norm", []),
        ("#x , conv2d", ["x", "conv2d", "conv2d_1"]),
        ("conv2d > relu, conv2d >> relu", ["conv2d relu", "conv2d_1 relu_1"]),
        ("linear:not([bias])", ["linear_1", "linear_3"]),
        ('linear:not(:in("layers")|[bias=None])', ["linear_4"]),
    ],
)
def test_language(graph: fx.Graph, query: str, expected: list[str]) -> None:
    assert names(graph.find(query)) == expected


def test_what_a_match_holds(graph: fx.Graph) -> None:
    (match,) = graph.find("conv2d > batch_norm > relu")
    assert [n.target.name for n in match.nodes] == ["conv2d", "batch_norm", "relu"]
    assert match.last is match.nodes[-1]
    assert repr(match) == "QueryMatch(conv2d, batch_norm, relu)"


def test_lines(graph: fx.Graph) -> None:
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# FIRST"))
    name = Path(__file__).name
    assert names(graph.find(f':at("{name}:{line}"):not(get_attr)')) == ["conv2d_1", "relu_1", "mul"]
    assert names(graph.find(f'relu:at("core/{name}:{line - 1}-{line}")')) == ["relu", "relu_1"]
    assert names(graph.find(f'relu:at("{name}")')) == ["relu", "relu_1"]
    assert graph.find(f':at("{name}:1")') == graph.find(':at("query.py")') == []


def test_constants_and_dead_values() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[B,4]"))
    graph.placeholder("w", fx.parse_type("f32[2]"))
    table = graph.call_function("full", (), {"shape": (4,), "value": 1.0, "dtype": "f32"})
    double = graph.call_function("mul", (table, 2.0))
    rows = graph.call_function("full", (), {"shape": (fx.dims("B"), 4), "value": 1.0})
    graph.call_function("neg", (graph.call_function("exp", (x,)),))
    graph.output(graph.call_function("add", (graph.call_function("add", (x, double)), rows)))
    assert names(graph.find(":constant")) == ["full", "mul"]  # full_1: B comes from an input
    assert names(graph.find(":dead")) == ["exp", "neg"]
    assert names(graph.find("placeholder:users(0)")) == ["w"]


def test_leaf_modules_are_in_their_own_path() -> None:
    gm = fx.symbolic_trace(Net().eval(), x="f32[B,3,8,8]", leaf=["head"])
    assert names(gm.graph.find('module("head")')) == ["head"]
    assert names(gm.graph.find('mean > call_module[path="he*"]')) == ["mean head"]


def test_sizes_decide_comparisons(graph: fx.Graph) -> None:
    assert names(graph.find("conv2d[bytes>10kB]", {"B": 8})) == ["conv2d"]
    assert names(graph.find("conv2d[bytes>10kB]", {"B": 80})) == ["conv2d", "conv2d_1"]
    assert names(graph.find("conv2d[bytes>10kB]", {"B": 1})) == []
    assert names(graph.find("conv2d[shape=(4,*,*,3)]", {"B": 4})) == ["conv2d_1"]
    for_all_sizes = graph.find("(conv2d|mul)[size<=512*B], batch_norm[size<512*B], relu[size>=B]")
    assert names(for_all_sizes) == ["conv2d", "relu", "conv2d_1", "relu_1", "mul"]
    with pytest.raises(QueryError, match=r'whether this holds .* depends on B; give sizes=\{"B": …\}') as caught:
        graph.find("relu > conv2d[bytes>10kB]")
    assert "conv2d_1: f32[B,8,3,3]" in str(caught.value)
    assert str(caught.value).endswith(f"\n  {' ' * len('relu > conv2d')}^^^^^^^^^^^^")


def test_without_types() -> None:
    found = fx.symbolic_trace(lambda x: F.softmax(F.relu(x), dim=-1)).graph
    assert names(found.find("relu > softmax[axis=-1]")) == ["relu softmax"]
    assert names(found.find("softmax[axis=1]")) == []  # the rank is not known
    with pytest.raises(QueryError, match="trace with input types"):
        found.find("[dtype=f32]")


@pytest.mark.parametrize(
    ("query", "problem", "marked"),
    [
        ("conv2d > batchnorm", "there is no op 'batchnorm'; did you mean batch_norm?", "batchnorm"),
        ("conv2d relu", 'two steps need ">" (reads it)', "r"),
        ("conv2d[padd=1]", "conv2d has no attribute 'padd'; did you mean padding?", "padd"),
        ("conv2d[axis=1]", "conv2d has no attribute 'axis'", "axis"),
        ("[shap=3]", "there is no attribute 'shap'; did you mean shape?", "shap"),
        ("(conv1d|conv2d)[axis]", "no attribute 'axis'", "axis"),
        ("conv2d[stride>]", "a value is needed after '>'", "]"),
        ("conv2d[stride>'same']", "'>' needs a number here", "'same'"),
        ("conv2d[stride=1", "this bracket is not closed", "["),
        ("conv2d[stride=1+]", "1+ is not a value", "1+"),
        ("conv2d[stride>(1,2)]", "'>' needs a number here", "(1,2)"),
        ("[bytes>1XB]", "1XB is not a value", "1XB"),
        ("[dtype=f33]", "'f33' is not a dtype", "f33"),
        ("[dtype>f32]", "use = or !=", "f32"),
        ("[shape=B]", "a shape is written f32[B,3,*,*]", "B"),
        ("[shape=(...,3,...)]", '"..." once at most', "(...,3,...)"),
        ("relu:user(1)", "there is no :user; did you mean users?", "user"),
        ("relu:users(many)", "a number of users is needed", "m"),
        ("relu:in(a)", 'a text in quotes is needed here, as in :in("layers.*.attn")', "a"),
        ('relu:in("a)', "this quote is not closed", '"'),
        ("conv1d|conv2d", "alternatives need parentheses", "|"),
        ("(conv1d|conv2d", "this parenthesis is not closed", "("),
        ("(conv1d conv2d)", 'alternatives are separated by "|"', "c"),
        ('relu > module("a") relu', 'use :in("…") for one step', "module"),
        ("relu, , relu", "a step is needed here", ","),
        ("relu)", "')' does not belong here", ")"),
        ("relu:not", ":not needs parentheses", ""),
        ("relu >", "not the end", ""),
        ("", "not the end", ""),
    ],
)
def test_errors_point_at_the_place(query: str, problem: str, marked: str) -> None:
    with pytest.raises(QueryError) as caught:
        fx.symbolic_trace(lambda x: x + 1, "f32[2]").graph.find(query)
    said, shown, caret = str(caught.value).rsplit("\n", 2)
    assert problem in said, said
    assert shown == f"  {query}"
    start, end = caret.index("^") - 2, len(caret) - 2
    assert query[start:end] == marked
    assert isinstance(caught.value, FxliteError) and isinstance(caught.value, ValueError)


TOKENS = [
    *"[](){}<>=!,|:#*.'\"-+ ",
    ">>",
    "relu",
    "conv2d[",
    "batch_norm",
    ":not(",
    ":users(",
    ":first",
    "module(",
    ":in(",
    ":at(",
    "axis",
    "stride=",
    "shape=",
    "bytes>",
    "dtype=",
    "f32",
    "B",
    "x",
    "(B,*)",
    "1",
    "0",
    "1MB",
    "1e999",
    "-1",
    "...",
    "None",
    "'layers'",
    '"net.py:3"',
    "\u03bb",
]


@hypothesis.given(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join))
@hypothesis.settings(max_examples=300, deadline=None)
def test_any_text_is_a_query_or_an_error_with_a_place(text: str) -> None:
    try:
        parse_query(text)
    except QueryError as error:
        shown, caret = str(error).split("\n")[-2:]
        assert shown == f"  {text}"
        assert 2 <= caret.index("^") <= len(text) + 2


def test_names_that_the_graph_does_not_have(graph: fx.Graph) -> None:
    (said,) = unknown_places(graph, 'module("layers.*.atn") relu')
    assert said.startswith("no node was made in a module 'layers.*.atn'; did you mean layers.")
    assert unknown_places(graph, "#rellu > conv2d:not(#relu)")[0].startswith(
        "no node is named rellu; did you mean relu"
    )
    assert unknown_places(graph, ':at("model.py:3")') == ["no node was made at model.py:3"]
    assert unknown_places(graph, 'max_pool2d:in("layers.*"), #relu') == []


def test_quantities() -> None:
    texts = ("200MB", "64MiB", "5G", "1000000", "1.5kB", "2 KiB", "1e3")
    values = (200e6, 64 * 2**20, 5e9, 10**6, 1500, 2048, 1000)
    assert tuple(map(parse_quantity, texts)) == values
    assert [parse_quantity(text, "FLOPs") for text in ("7 FLOPs", "1 FLOP", "2G")] == [7, 1, 2 * 10**9]
    assert [parse_quantity(text, "") for text in ("7", "5k")] == [7, 5000]
    for wrong in ("", "MB", "-3", "3 apples", "5iB", "5 FLOPs"):
        with pytest.raises(QueryError, match="is not a number of bytes; write 200MB"):
            parse_quantity(wrong)
    with pytest.raises(QueryError, match="'2MB' is not a number of FLOPs; write 200MFLOPs, 5G"):
        parse_quantity("2MB", "FLOPs")
    with pytest.raises(QueryError, match="'200MB' is not a count; write 100 or 5k"):
        parse_quantity("200MB", "")


@pytest.mark.parametrize("query", ["[rank=2MB]", "[size>1MB]", "[bytes>1MFLOPs]"])
def test_units_that_an_attribute_does_not_have(graph: fx.Graph, query: str) -> None:
    with pytest.raises(QueryError, match=r"is not a (count|number of bytes); write"):
        graph.find(query)


def test_matches_are_real_chains_and_none_is_missed() -> None:
    """Against the definition, written as loops over all pairs, on random graphs."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        graph = fx.Graph()
        values = [graph.placeholder("x", fx.parse_type("f32[4]"))]
        for _ in range(25):
            name = rng.choice(["relu", "exp", "add", "mul"])
            count = 1 if name in ("relu", "exp") else 2
            picked = rng.integers(max(0, len(values) - 6), len(values), count)
            values.append(graph.call_function(str(name), tuple(values[i] for i in picked)))
        graph.output(values[-1])
        depends: dict[Any, set[Any]] = {}
        for node in graph.nodes:
            read = node.all_input_nodes
            depends[node] = set(read).union(*(depends[used] for used in read))
        for link, before in ((">", lambda n: set(n.all_input_nodes)), (">>", depends.get)):
            ends = {
                (b.name, c.name)
                for c in graph.find_nodes(op="call_function", target="relu")
                for b in before(c)
                if b.op == "call_function" and b.target.name == "add"
                if any(a.target is ops.exp for a in before(b))
            }
            found = graph.find(f"exp {link} add {link} relu")
            assert {match.last.name for match in found} == {c for _, c in ends}
            assert len({match.last for match in found}) == len(found)
            for match in found:
                assert match.nodes[0] in before(match.nodes[1])
                assert match.nodes[1] in before(match.nodes[2])


def long_chain(length: int) -> fx.Graph:
    graph = fx.Graph()
    value = graph.placeholder("x", fx.parse_type("f32[B,4]"))
    for _ in range(length // 4):
        value = graph.call_function("exp", (value,))
        value = graph.call_function("add", (value, value))
        value = graph.call_function("relu", (value,))
        value = graph.call_function("mul", (value, 0.5))
    graph.output(value)
    return graph


@pytest.mark.parametrize(
    "query",
    [
        "exp >> relu >> mul",
        "exp > add > relu:users(1)",
        "[shape=(B,4)]:not(exp):last",
        ":dead",
        "mul[y=0.5]",
        ":constant",
    ],
)
def test_time_is_linear(query: str) -> None:
    assert len(long_chain(2_000).find("exp >> relu")) == 500
    assert_linear(long_chain, lambda graph: graph.find(query), 500)
