"""Fuzzing: random graphs under random rewrites keep their meaning.

``python -m tests.fuzz --examples 2000`` is the long run; ``tests/test_fuzz.py`` the short one. A
program comes from :mod:`tests.strategies`; :mod:`tests.fuzz.rewrites` rewrites it, step by step;
after each step :mod:`tests.fuzz.example` checks that the graph passes lint, that its text parses
back, and that it computes what the first graph did (:mod:`tests.fuzz.results`): interpreted, as
generated Python and as kernels.

:mod:`tests.fuzz.quantized` fuzzes quantized programs, whose results must agree in every bit.
"""
