"""Which layer is computed by which scheme: sensitivities, plans and reports."""
