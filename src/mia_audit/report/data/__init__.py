"""Data: what an audit left on disk, and the findings computed from it."""
