"""Audit one real training with canaries, each in its training set with probability one half."""
