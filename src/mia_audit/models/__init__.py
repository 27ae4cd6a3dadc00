"""Models: what shadows are made of, built by name, and their weights on disk."""
