"""Ops that a program registers with ``fx.op``, and the language in which their bodies are written."""
