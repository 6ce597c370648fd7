"""Traces views and writes in place: keeps track of values that share memory."""
