"""Checking passes: what one changed is run before and after, and must agree."""
