"""The black boxes that a study makes of a pool."""
