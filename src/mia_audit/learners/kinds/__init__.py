"""Kinds of learners, one file each."""
