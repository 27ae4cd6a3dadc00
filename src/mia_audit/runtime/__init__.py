"""What a process needs of its machine: GPUs, memory, precision, determinism, locks, clocks, SLURM, progress."""
