"""Kinds of canaries, one file each."""
