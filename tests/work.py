"""Work counted in lines of Python that are run: a measure of time that no other program disturbs.

In: a call, or what makes inputs of some size and what is done with them. Out: the number of lines;
or an assertion that they grow with the size, and not with its square.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def lines_run(call: Callable[[], Any]) -> int:
    """How many lines of Python a call runs on this thread."""
    count = 0

    def count_lines(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def assert_linear(make: Callable[[int], T], work: Callable[[T], Any], size: int, factor: int = 4) -> None:
    """``work`` on an input of ``factor`` times the size runs at most 1.25 times ``factor`` as many
    lines: with its square they were ``factor`` times as many again. What is made once for all sizes
    is made before."""
    work(make(size // factor))
    small, large = (make(n) for n in (size, factor * size))
    before, after = lines_run(lambda: work(small)), lines_run(lambda: work(large))
    assert before > size, f"{before} lines: the work is done elsewhere"
    assert after <= 1.25 * factor * before, (
        f"{factor} times the size runs {after / before:.1f} times as many lines: {before}, {after}"
    )
