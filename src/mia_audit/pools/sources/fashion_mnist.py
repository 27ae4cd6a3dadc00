"""Fashion-MNIST: 70,000 grey-scale pieces of clothing of 28 × 28 pixels in 10 classes (Xiao et al. 2017)."""

from mia_audit.pools.torchvision_sets import TorchvisionSet, mnist_files, register

SPLITS = (({"train": True}, (60_000,)), ({"train": False}, (10_000,)))

register(
    "fashion_mnist",
    TorchvisionSet("FashionMNIST", SPLITS, lambda part: part.targets, lambda part: part.classes, mnist_files),
)
