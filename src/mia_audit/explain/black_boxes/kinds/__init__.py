"""The black boxes that a study can build from a pool."""
