"""Models: the built-in architectures by name, their inputs, and their weights on disk."""

from mia_audit.models.architecture import (
    batch_norm_layers,
    build,
    check_architecture,
    classifier,
    construct,
    describe,
    fetch,
    load,
    own_normalisation,
    read_architecture,
    read_start,
)
from mia_audit.models.catalogue import architectures
from mia_audit.models.inputs import Inputs, Subset, taken_by, to_input
from mia_audit.models.weights import load_weights, save_weights, write_weights

__all__ = [
    "Inputs",
    "Subset",
    "architectures",
    "batch_norm_layers",
    "build",
    "check_architecture",
    "classifier",
    "construct",
    "describe",
    "fetch",
    "load",
    "load_weights",
    "own_normalisation",
    "read_architecture",
    "read_start",
    "save_weights",
    "taken_by",
    "to_input",
    "write_weights",
]
