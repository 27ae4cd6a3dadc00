"""CIFAR-100: 60,000 colour images of 32 × 32 pixels in 100 classes (Krizhevsky 2009)."""

from mia_audit.pools.torchvision_sets import TorchvisionSet, cifar_files, register

SPLITS = (({"train": True}, (50_000,)), ({"train": False}, (10_000,)))

register(
    "cifar100", TorchvisionSet("CIFAR100", SPLITS, lambda part: part.targets, lambda part: part.classes, cifar_files)
)
