"""The zoo: small programs of every sort, on which every pass and every back end is tried.

Each :class:`Program` makes a program, the input types to trace it with, and inputs for one run.
Named dims occur in most of them. ``ZOO`` is in order of name; ``by_name(name)`` finds one.
"""

from tests.zoo import functions, models
from tests.zoo.registry import ZOO, Program, by_name

ZOO.sort(key=lambda p: p.name)

__all__ = ["ZOO", "Program", "by_name", "functions", "models"]
