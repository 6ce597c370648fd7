"""Runs a program's own functions in a form in which the tracer sees every call in them."""
