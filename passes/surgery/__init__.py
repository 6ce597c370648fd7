"""Surgery on trained models: probes, pruning of axes with their weights, low rank, adapters."""
