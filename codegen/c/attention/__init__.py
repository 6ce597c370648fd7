"""Attention in C."""
