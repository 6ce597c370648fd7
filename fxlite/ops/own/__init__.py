"""Ops that are not fxlite's own: those that a program registers with ``fx.op``, and the language
that their bodies are written in."""
