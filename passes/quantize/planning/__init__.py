"""Choosing a scheme for each layer: sensitivities, plans and reports."""
