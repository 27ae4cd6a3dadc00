"""Interfaces to the machine: GPUs, memory, precision, determinism, locks, clocks, SLURM, progress."""
