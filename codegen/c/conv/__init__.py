"""Convolutions in C."""
