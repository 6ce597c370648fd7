"""The table test: every function x dtype x shape x hard values, on all rungs, against NumPy.

:mod:`values` makes the arrays, :mod:`rows` the calls, :mod:`bounds` says how far each function may
be off, :mod:`differences` lists what is documented to differ, :mod:`check` runs it all.
:mod:`functional` has the rows of fxlite.nn.functional, which :mod:`torch_peer` also compares with
torch's. ``python -m tests.fuzz --table`` runs the whole; tests/test_table.py runs a sample.
"""
