"""Kinds of canaries, a file each."""
