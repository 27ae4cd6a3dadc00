"""MNIST: 70,000 grey-scale digits of 28 × 28 pixels in 10 classes (LeCun et al. 1998)."""

from mia_audit.pools.torchvision_sets import TorchvisionSet, mnist_files, register

SPLITS = (({"train": True}, (60_000,)), ({"train": False}, (10_000,)))

register("mnist", TorchvisionSet("MNIST", SPLITS, lambda part: part.targets, lambda part: part.classes, mnist_files))
