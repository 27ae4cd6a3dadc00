"""The device and the number of threads that a process computes with."""

import torch

from mia_audit.errors import UserError
from mia_audit.runtime.determinism import make_deterministic


def device_for(threads: int, wanted: str = "auto") -> str:
    """Set this process's number of threads and return its torch device, `cpu` or a deterministic `cuda`.

    `wanted` is the config's `compute.device`. A numbered GPU has been made the only visible one by `acquire_gpu`, so its
    name is `cuda` too. Raises UserError if a GPU is requested and torch has none.
    """
    torch.set_num_threads(threads)
    available = torch.cuda.is_available()
    if wanted.startswith("cuda") and not available:
        raise UserError(f"compute.device: {wanted} was asked for, but torch sees no GPU: `mia-audit doctor` says why")
    if not available or wanted == "cpu":
        return "cpu"
    make_deterministic()
    return "cuda"
