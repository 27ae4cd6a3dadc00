"""Attacks on a mechanism's claim: canaries, neighbouring inputs, and a tester that tries to refute (ε, δ)-DP."""
