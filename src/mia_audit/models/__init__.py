"""Models: what shadows are made of, built by name, and their weights on disk."""

from mia_audit.models.architecture import batch_norm_layers, build, construct, describe, load, read_architecture
from mia_audit.models.catalogue import architectures
from mia_audit.models.inputs import Inputs, Part, to_input
from mia_audit.models.weights import load_weights, save_weights

__all__ = [
    "Inputs",
    "Part",
    "architectures",
    "batch_norm_layers",
    "build",
    "construct",
    "describe",
    "load",
    "load_weights",
    "read_architecture",
    "save_weights",
    "to_input",
]
