"""The device on which a process computes, and its number of threads."""

import torch

from mia_audit.errors import UserError
from mia_audit.runtime.determinism import make_deterministic


def device_for(threads: int, wanted: str = "auto") -> str:
    """Set this process's number of threads and return its torch device, `cpu` or a deterministic `cuda`.

    `wanted` is the config's `compute.device`. `acquire_gpu` has made a numbered GPU the only visible one, so its name
    is `cuda` too. Raises UserError if a GPU is requested but torch finds none.
    """
    torch.set_num_threads(threads)
    available = torch.cuda.is_available()
    if wanted.startswith("cuda") and not available:
        raise UserError(f"compute.device: {wanted} was requested, but torch finds no GPU: `mia-audit doctor` says why")
    if not available or wanted == "cpu":
        return "cpu"
    make_deterministic()
    return "cuda"
