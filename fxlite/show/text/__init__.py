"""Graphs as text: printing, and reading it back."""
