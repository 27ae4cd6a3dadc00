"""The processor time of work on this machine, and the machine's speed in Python relative to the machine that gave the constants of `estimate`."""

import argparse
import ast
import inspect
import time
from collections.abc import Callable

PARSED = 0.028
"""Processor seconds to parse the source of `argparse`, a module of 2,700 lines, on the machine that gave the constants."""

TRIES = 5


def pace() -> float:
    """Return this machine's processor time relative to that of the machine that gave the constants. The ratio varies by some 10 % between calls."""
    source = inspect.getsource(argparse)
    return min(processor_seconds(lambda: ast.parse(source)) for _ in range(TRIES)) / PARSED


def processor_seconds(run: Callable[[], object]) -> float:
    """Return the seconds of processor time that a run takes."""
    start = time.process_time()
    run()
    return time.process_time() - start
