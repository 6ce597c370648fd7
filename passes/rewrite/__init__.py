"""Rewriting by patterns: rules, what they match, what they put in, and why they do not fire."""
