"""Rewriting by patterns: rules, the matches they find, their replacements, and why they do not fire."""
