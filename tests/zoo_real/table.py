"""docs/models.md, from the results: what became of each architecture, and each miss with its reason."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

_STAGES = {
    "export": "torch.export",
    "import": "import",
    "graph": "graph",
    "build": "build of C",
    "c": "numbers of C",
    "ended": "time or memory",
}
_BOTH = "batch, sequence"  # what may differ in one build


def write_table(rows: dict[str, Any], path: Path) -> None:
    """Write the page."""
    families: dict[str, list[Any]] = {}
    for name, row in sorted(rows.items()):
        if row["stage"] != "make":  # with sizes that its type alone says
            families.setdefault(name.partition("/")[0], []).append(row)
    lines = [
        "# Models of other libraries",
        "",
        "Architectures written by others, with random weights and small inputs. Each is",
        "",
        "- imported by `fx.from_torch` and compared with torch (in float32, up to 1e-4 of the largest output; models "
        "that are quantized to 8 bits, up to steps of their scale, which random weights amplify from layer to layer),",
        "- built in C and compared with the graph,",
        "- built once more with sizes that may differ, and compared with torch for five sizes of the batch, and of the "
        "sequence where there is one,",
        "- exported by `fx.to_onnx`, run in ONNX Runtime (in ONNX's reference evaluator where float64 is compared, for "
        "which ONNX Runtime lacks convolutions), imported again by `fx.from_onnx`, and compared with the graph.",
        "",
        "An error is the largest difference, as a part of the largest output. Times are medians of runs in turns with "
        "torch, on one thread, beside other work; for models this small, torch's are mostly those of its calls.",
        "",
        "`python -m tests.zoo_real` writes this page and goes on where it stopped: what is not listed was not run yet, "
        "or is a type of transformers whose small sizes and inputs cannot be made from their names.",
        "",
        "| library | models | right in the graph | right in C | right in ONNX Runtime and back | one build for all "
        "batches, and for all sequences where there is one | time of C / time of torch (geometric mean) |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, found in families.items():
        graph = sum(r["stage"] in ("right", "build", "c") for r in found)
        right = [r for r in found if r["stage"] == "right" and "c_off" in r]
        ratios = [r["c_ms"] / r["torch_ms"] for r in right if "c_ms" in r and "torch_ms" in r]
        mean = f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} ({len(ratios)} models)" if ratios else ""
        built = len(right) + sum(r["stage"] in ("build", "c") for r in found)
        sent = [r for r in found if "onnx" in r]
        back = f"{sum(r['onnx'] == 'right' for r in sent)} of {len(sent)}" if sent else "not run"
        in_c = f"{len(right)} of {built}" if built else "not run"
        asked = [r for r in found if ("sizes" in r or "sizes_error" in r)]
        free = sum(r.get("sizes") == _BOTH or ("sizes_error" not in r and r["sizes"] == "batch") for r in asked)
        sized = f"{free} of {len(asked)}" if asked else "not run"
        lines.append(f"| {family} | {len(found)} | {graph} | {in_c} | {back} | {sized} | {mean} |")
    for family, found in families.items():
        lines += ["", f"## {family}", ""]
        missed = [r for r in found if r["stage"] != "right"]
        if missed:
            lines += ["| not right | fails in | reason |", "|---|---|---|"]
            for row in missed:
                lines.append(f"| {_own(row)} | {_STAGES[row['stage']]} | {_reason(str(row.get('error', '')))} |")
            lines += [
                "",
                "By stage: "
                + ", ".join(f"{_STAGES[s]} {n}" for s, n in Counter(r["stage"] for r in missed).items())
                + ".",
            ]
            lines.append("")
        lost = [r for r in found if r.get("onnx", "right") != "right"]
        if lost:
            lines += ["| not right by way of ONNX | reason |", "|---|---|"]
            lines += [f"| {_own(r)} | {_reason(r['onnx'])} |" for r in lost]
            lines.append("")
        fixed = [r for r in found if "sizes_error" in r]
        if fixed:
            lines += ["| one build does not do for all sizes | but for any | reason |", "|---|---|---|"]
            lines += [f"| {_own(r)} | {r.get('sizes', '')} | {_reason(r['sizes_error'])} |" for r in fixed]
            lines.append("")
        lines += [
            "| model | parameters | nodes | import | build | error: graph | error: C | error: ONNX Runtime "
            "| error: imported again | one build for any | time: torch | time: C |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [_line(r) for r in found if r["stage"] == "right"]
    path.write_text("\n".join(lines) + "\n")


def _own(row: Any) -> str:
    return str(row["name"]).partition("/")[2]


def _reason(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")[:220]


def _line(row: Any) -> str:
    def shown(key: str, form: str) -> str:
        return format(row[key], form) if key in row else ""

    cells = [
        _own(row),
        shown("parameters", ","),
        shown("nodes", ","),
        f"{row['export_s'] + row['import_s']:.1f} s",
        f"{row['build_s']:.1f} s" if "build_s" in row else "",
        shown("graph_off", ".0e"),
        shown("c_off", ".0e"),
        shown("onnx_off", ".0e"),
        shown("back_off", ".0e"),
        row.get("sizes", ""),
        f"{row['torch_ms']:.1f} ms" if "torch_ms" in row else "",
        f"{row['c_ms']:.1f} ms" if "c_ms" in row else "",
    ]
    return f"| {' | '.join(cells)} |"
