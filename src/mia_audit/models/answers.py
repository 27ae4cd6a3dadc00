"""What a torch module returns for records: checked with an untrained module, before the first model is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mia_audit.errors import UserError, first_line

SQUASHED = {"SoftmaxBackward0": "softmax", "SigmoidBackward0": "sigmoid"}
"""The last operation of modules that return probabilities, by the name of its gradient."""

WRAPPERS = ("_orig_mod", "module", "_module")
"""The attributes in which torch.compile, DataParallel and Opacus keep the wrapped module."""

WRAPPING = ("OptimizedModule", "DataParallel", "DistributedDataParallel", "AveragedModel", "GradSampleModule")
"""Classes of modules that compute what the module in them computes."""


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module in the wrappers of torch.compile, data parallelism, averages and Opacus, whose weights have other names."""
    while type(module).__name__ in WRAPPING:
        module = next(inner for name in WRAPPERS if isinstance(inner := getattr(module, name, None), nn.Module))
    return module


def in_full_precision(module: nn.Module) -> nn.Module:
    """Return the module with parameters and buffers of half precision as float32, the type of the records."""
    half = (torch.float16, torch.bfloat16)
    if any(value.dtype in half for value in (*module.parameters(), *module.buffers())):
        return module.float()
    return module


def check_tensor(outputs: object, where: str) -> Tensor:
    """Return a module's outputs; UserError if they are no tensor of real numbers."""
    if not isinstance(outputs, Tensor):
        held = f" of {', '.join(map(repr, list(outputs)[:3]))}" if isinstance(outputs, dict) else ""
        raise UserError(
            f"{where}: the module returns a {type(outputs).__name__}{held}, where a tensor of logits [n, classes] was expected:"
            " let forward return the logits alone, or define predict(model, records)"
        )
    if outputs.is_complex():
        raise UserError(f"{where}: the module returns complex numbers, where real logits were expected")
    return outputs


def answered(module: nn.Module, inputs: Tensor, where: str) -> Tensor:
    """Return a module's logits [n, C] for records, its only argument; UserError if it fails, or returns anything else."""
    if inputs.is_floating_point():
        inputs = inputs.detach().requires_grad_()  # frozen weights do not tell the last operation
    try:
        outputs = module.eval()(inputs)
    except UserError:
        raise
    except Exception as error:  # a user's module may raise anything
        raise UserError(
            f"{where}: the module fails for records {list(inputs.shape)} of {str(inputs.dtype).removeprefix('torch.')}, which are its"
            f" only argument: {type(error).__name__}: {first_line(error)}"
        ) from None
    logits = check_tensor(outputs, where)
    if logits.ndim != 2 or len(logits) != len(inputs) or logits.shape[1] < 2:
        raise UserError(
            f"{where}: the module returns {list(logits.shape)} for {len(inputs)} records; expected one logit for each class, of which"
            " there are at least two"
        )
    last = SQUASHED.get(type(logits.grad_fn).__name__ if logits.grad_fn is not None else "")
    if last:
        raise UserError(
            f"{where}: the module ends in a {last}, so it returns probabilities, where logits were expected: return the values"
            f" before the {last}, and compute the loss of logits in training"
        )
    return logits


def check_untrained(module: nn.Module, inputs: Tensor, classes: int, where: str) -> None:
    """Raise UserError unless an untrained module, called with records alone, returns one logit for each class."""
    try:
        logits = answered(module, inputs, where)
    except UserError as error:
        if "device" in str(error):
            return  # built for a GPU, which this job has not
        raise
    if logits.shape[1] != classes:
        raise UserError(
            f"{where}: the module returns {logits.shape[1]} logits for each record; expected one for each of {classes} classes"
        )
