"""Surgery on trained models: probes, axes that shrink with their weights, low rank, adapters."""
