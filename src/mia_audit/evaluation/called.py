"""The shares of records that are called members for bounds on ε, fixed before any score is seen."""

SHARES = (0.001, 0.01, 0.025, 0.1, 0.5, 0.9, 0.975, 0.99)
"""Shares of a target's scored records that are called members."""


def called_columns(share: float) -> tuple[str, str]:
    """Name the columns of metrics.parquet that count members and non-members among the highest-scoring share."""
    return f"members_in_top_{share:g}", f"non_members_in_top_{share:g}"
