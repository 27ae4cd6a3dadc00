"""The gate of a finished audit: a policy, its criteria, and their verdicts."""
