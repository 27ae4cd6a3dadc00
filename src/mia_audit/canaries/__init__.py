"""Audit one real training run with canaries, each in its training set with probability one half."""
