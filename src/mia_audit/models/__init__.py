"""Models: the built-in architectures by name, their inputs, and their weights on disk."""
