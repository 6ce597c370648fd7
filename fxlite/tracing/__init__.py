"""Tracing: running a program on stand-ins for arrays and recording what it computes."""
