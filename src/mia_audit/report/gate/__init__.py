"""The rule that a finished audit is held to: a policy, its criteria, and their verdicts."""
