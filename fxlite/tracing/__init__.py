"""Tracing: runs a program on proxies for arrays and records its computations."""
