"""How fast this machine runs Python, relative to the machine on which the constants of `estimate` were measured."""

import argparse
import ast
import inspect
import time

PARSED = 0.028
"""Processor seconds to parse the source of `argparse`, a module of 2,700 lines, on that machine."""

TRIES = 5


def pace() -> float:
    """Return the ratio of this machine's processor time to that machine's; it varies by some 10 % between calls."""
    source = inspect.getsource(argparse)
    return min(_seconds(source) for _ in range(TRIES)) / PARSED


def _seconds(source: str) -> float:
    start = time.process_time()
    ast.parse(source)
    return time.process_time() - start
