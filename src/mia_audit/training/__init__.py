"""Training: shadow models under a privacy mechanism, and what the mechanism promises."""
