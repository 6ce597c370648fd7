"""Profiling: measure where the time of a program goes, and how far it is from the machine's
limits."""
