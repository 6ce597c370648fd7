"""``fxlite optimize``: the work of passes on a program, as a patch on its own files.

In: parsed options and a console. Out: a unified diff on standard output; with ``--apply``, changed
files, and a file that converts weights there and back.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fxlite.base.errors import number_of
from fxlite.cli.shared import UsageError, find_passes, numbers, passes_option, program_options, say

if TYPE_CHECKING:
    from fxlite.codegen.python.patch.patch import Hunk, Patch

_MARK = "Written by fxlite optimize"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite optimize``."""
    parser.description = (
        "Run passes, and print what they do as a unified diff of the program's own files, which "
        "patch -p1 and git apply accept. Before anything is printed, the patched program is run: it has to "
        "give the results of the optimized graph, with weights from the converter."
    )
    parser.epilog = "Needs the extra fxlite[patch]. Only files in the folder of FILE.py are changed."
    program_options(parser)
    passes_option(parser, "what to run; a pass of your own is FILE.py:NAME", required=True)
    parser.add_argument("--diff", action="store_true", help="print the diff (the default)")
    parser.add_argument(
        "--apply",
        action="store_true",
        help="change the files; on a terminal, ask about each hunk, unless --hunks or --yes is given",
    )
    parser.add_argument("--yes", action="store_true", help="with --apply: apply all hunks without asking")
    parser.add_argument("--hunks", metavar="1,3", type=numbers, help="only these hunks, counted from 1")
    parser.add_argument(
        "--converter",
        metavar="FILE.py",
        help="where to write convert(state_dict) and invert(state_dict); default with --apply: "
        "FILE_weights.py beside the program",
    )
    parser.add_argument("--force", action="store_true", help="overwrite a converter that fxlite has not written")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite optimize``. Raises UsageError, PatchError, and the errors of tracing and passes."""
    from fxlite.cli.program_file import ProgramError, fresh_modules, load_program, unique

    file, colon, name = options.program.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise UsageError(f"{options.program} has no source to patch; give FILE.py:NAME")
    if options.yes and not options.apply:
        raise UsageError("--yes is for --apply")
    try:
        from fxlite.codegen.python.patch.patch import make_patch
    except ImportError as error:
        raise UsageError(f"fxlite optimize needs {error.name}: pip install 'fxlite[patch]'") from error
    if not Path(file).is_file():
        raise ProgramError(f"there is no file {file}")
    folder = Path(file).resolve().parent

    def load(sources: Mapping[str, bytes]) -> Any:
        with fresh_modules(folder, sources):
            return load_program(options.program, None if sources else options.weights, sources)

    passes = find_passes(options.passes)
    patch = make_patch(name, folder, load, unique(options.input, "--input"), passes)
    hunks = patch.hunks()
    for text in patch.left:
        print(f"left as it is: {text}", file=sys.stderr)
    if not hunks:
        console.print("the passes change nothing in the program's text", soft_wrap=True)
        return 0
    if options.hunks:
        hunks = [hunks[_numbered(n, len(hunks))] for n in dict.fromkeys(options.hunks)]
    elif options.apply and not options.yes and sys.stdin.isatty():
        hunks = _asked(patch, hunks, console)
    patch = patch.choose(sorted(hunks, key=patch.hunks().index))
    if options.diff or not options.apply:
        sys.stdout.write(patch.diff())
    target = Path(options.converter or Path(file).with_name(f"{Path(file).stem}_weights.py"))
    if (options.apply or options.converter) and patch.converter is not None:
        _check_target(target, options.force)
    if options.apply:
        patch.write()
        say(console, *(f"{changed} changed" for changed in patch.new))
    if (options.apply or options.converter) and patch.new and patch.converter is not None:
        say(console, *(f"{path} written" for path in patch.converter.save(target)))
    return 0


def _numbered(number: int, count: int) -> int:
    if not 1 <= number <= count:
        raise UsageError(f"--hunks {number}: the diff has {number_of(count, 'hunk')}, counted from 1")
    return number - 1


def _asked(patch: Patch, hunks: Sequence[Hunk], console: Console) -> list[Hunk]:
    """The hunks that the user accepts."""
    from fxlite.base.console import print_code

    chosen: list[Hunk] = []
    for number, hunk in enumerate(hunks, 1):
        print_code(console, patch.diff([hunk]))
        while True:
            answer = input(f"apply hunk {number} of {len(hunks)} [y, n, a(ll), q(uit)]? ").lower()
            if answer in ("y", "n", "a", "q"):
                break
        if answer == "a":
            return [*chosen, *hunks[number - 1 :]]
        if answer == "q":
            return chosen
        if answer == "y":
            chosen.append(hunk)
    return chosen


def _check_target(target: Path, force: bool) -> None:
    if target.exists() and not force and _MARK not in target.read_text(encoding="utf-8", errors="replace"):
        raise UsageError(f"{target} exists and was not written by fxlite; give --converter or --force")
