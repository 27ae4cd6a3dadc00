"""Training: shadow models under a privacy mechanism, and the mechanism's guarantee."""
