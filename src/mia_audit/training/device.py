"""Where a process computes, and with how many threads."""

import torch


def device_for(threads: int) -> str:
    """Pin this process's threads and name its device: the GPU where there is one."""
    torch.set_num_threads(threads)
    return "cuda" if torch.cuda.is_available() else "cpu"
