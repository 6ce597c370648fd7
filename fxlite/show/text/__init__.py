"""Graphs as text: printing them and reading them back."""
