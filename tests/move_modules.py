"""Moves modules of the package: ``python -m tests.move_modules docs/rooms.toml CHECKOUT``.

In come a map (a table ``[modules]`` of old to new dotted names, ``[packages]`` of folders that move
whole, ``[documentation]`` of docstrings for new folders, ``public`` names that are functions
although a module has the same name) and a clean checkout. Files are moved with git; imports, dotted
names and paths that are mentioned anywhere (code, docs, configuration) follow. What depends on a
file's place (``__file__``), names of families in ``fxlite/ops/__init__.py`` and the lists in
``pyproject.toml`` are left to be mended by hand; ruff, mypy and the tests find them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

SUFFIXES = {".py", ".md", ".toml", ".h", ".c", ".cuh", ".js", ".css", ".yaml"}


class Mover:
    """What moves where, in one checkout."""

    def __init__(self, plan: Mapping[str, dict[str, str]], root: Path, public: set[str]) -> None:
        self.root, self.public = root, public
        self.packages = plan["packages"]
        self.modules = dict(plan["modules"])
        for old, new in self.packages.items():
            for file in sorted(self.path(old).glob("*.py")):
                if file.stem != "__init__":
                    self.modules[f"{old}.{file.stem}"] = f"{new}.{file.stem}"
        self.old = {*self.modules, *self.packages}
        missing = [o for o in self.modules if not self.path(o).with_suffix(".py").exists()]
        if missing:
            raise SystemExit(f"there are no modules {', '.join(missing)}")
        self.paths = {self._file(o, ".py"): self._file(n, ".py") for o, n in self.modules.items()}
        self.paths |= {self._file(o, "/"): self._file(n, "/") for o, n in self.packages.items()}
        longest = sorted(map(re.escape, self.paths), key=len, reverse=True)
        self.mentioned = re.compile(r"(?<![\w/])(?:fxlite/)?(" + "|".join(longest) + ")")

    def path(self, dotted: str) -> Path:
        """Where a module or package lies."""
        parts = dotted.split(".")
        return self.root.joinpath(*(parts[1:] if parts[1] in ("passes", "codegen") else parts))

    def _file(self, dotted: str, end: str) -> str:
        return self.path(dotted).relative_to(self.root).as_posix() + end

    def new(self, dotted: str) -> str:
        """The new name of a module or package."""
        return self.modules.get(dotted) or self.packages.get(dotted) or dotted

    def imports(self, text: str, package: str) -> str:
        """The text of a file with its imports rewritten."""
        lines = text.split("\n")
        found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
        for node in sorted(found, key=lambda n: -n.lineno):
            wanted = self._import(node) if isinstance(node, ast.Import) else self._of(node, package)
            if wanted:
                first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
                indent, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
                lines[first : last + 1] = [f"{indent}{line}{tail}" for line in wanted]
        return "\n".join(lines)

    def _import(self, node: ast.Import) -> list[str]:
        if not any(a.name in self.old for a in node.names):
            return []
        return [
            f"import {self.new(a.name)}" + (f" as {a.asname}" if a.asname else "")
            for a in node.names
        ]

    def _of(self, node: ast.ImportFrom, package: str) -> list[str]:
        base = node.module or ""
        if node.level:
            above = package.split(".")
            above = above[: len(above) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        groups: dict[str, list[str]] = {}
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            if whole in self.old and whole not in self.public:
                parent, leaf = self.new(whole).rsplit(".", 1)
                name = alias.asname or (alias.name if leaf != alias.name else None)
            else:
                parent, leaf, name = self.new(base), alias.name, alias.asname
            groups.setdefault(parent, []).append(leaf + (f" as {name}" if name else ""))
        changed = node.level or set(groups) != {base}
        return [f"from {m} import {', '.join(n)}" for m, n in groups.items()] if changed else []

    def mentions(self, line: str) -> str:
        """A line with the names and paths in it rewritten; imports are left as they are."""
        if re.match(r"\s*(from|import) fxlite", line):
            return line
        line = re.sub(r"(?<![\w.])fxlite(?:\.[A-Za-z_]\w*)+", self._mention, line)
        return self.mentioned.sub(lambda m: m[0].replace(m[1], self.paths[m[1]]), line)

    def _mention(self, match: re.Match[str]) -> str:
        parts = match[0].split(".")
        for count in range(len(parts), 1, -1):
            head = ".".join(parts[:count])
            if head in self.old and not (count == len(parts) and head in self.public):
                return ".".join([self.new(head), *parts[count:]])
        return match[0]

    def git(self, *arguments: str) -> str:
        """What git prints."""
        done = subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True)
        return done.stdout.decode()

    def run(self, documentation: Mapping[str, str]) -> None:
        """Rewrite all tracked files, then move."""
        for name in self.git("ls-files").split():
            file = self.root / name
            if file.is_symlink() or file.suffix not in SUFFIXES:
                continue
            text = before = file.read_text()
            if file.suffix == ".py":
                parts = Path(name).parent.parts
                text = self.imports(
                    text, ".".join(("fxlite", *parts) if parts[:1] != ("fxlite",) else parts)
                )
            if name not in ("pyproject.toml", "docs/rooms.toml"):
                text = "\n".join(map(self.mentions, text.split("\n")))
            if text != before:
                file.write_text(text)
        for old, new in self.packages.items():
            self.path(new).parent.mkdir(parents=True, exist_ok=True)
            self.git("mv", str(self.path(old)), str(self.path(new)))
        for package, says in documentation.items():
            self.path(package).mkdir(parents=True, exist_ok=True)
            if not (start := self.path(package) / "__init__.py").exists():
                start.write_text(f'"""{says}"""\n')
        for old, new in self.modules.items():
            source, target = (self.path(n).with_suffix(".py") for n in (old, new))
            if source != target and source.exists():
                self.git("mv", str(source), str(target))
        self.git("add", "-A")


def main() -> int:
    """Move what the map says in the checkout."""
    plan = tomllib.loads(Path(sys.argv[1]).read_text())
    root = Path(sys.argv[2]).resolve()
    Mover(plan, root, set(plan.get("public", ()))).run(plan["documentation"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
