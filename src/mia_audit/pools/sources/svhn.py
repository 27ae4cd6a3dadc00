"""Street View House Numbers: 99,289 colour images of 32 × 32 pixels in 10 classes (Netzer et al. 2011)."""

from mia_audit.pools.torchvision_sets import TorchvisionSet, register

SPLITS = (({"split": "train"}, (73_257,)), ({"split": "test"}, (26_032,)))

register("svhn", TorchvisionSet("SVHN", SPLITS, lambda part: part.labels, lambda part: [str(n) for n in range(10)]))
