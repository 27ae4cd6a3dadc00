"""A few scalars per model and record: their names, how they are computed and merged."""
