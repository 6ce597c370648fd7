"""Fuzzing programs as people write them: ``python -m tests.fuzz --programs 20000``.

:mod:`.writer` writes the source of a NumPy function, statement by statement, and keeps what NumPy
accepts; :mod:`.expressions`, :mod:`.layers` and :mod:`.statements` are the phrases it knows.
:mod:`.check` traces a program, compiles many of them as one library, and compares each back end
with eager NumPy at several sizes of the named dims. :mod:`.run` gives batches of programs to
processes of their own, so that a crash or a hang is a finding like any other, and makes a failing
program small (:mod:`.shrink`).
"""
