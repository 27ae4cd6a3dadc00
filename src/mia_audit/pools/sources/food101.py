"""Food-101: 101,000 colour photographs of at most 512 pixels a side in 101 classes (Bossard et al. 2014)."""

from mia_audit.pools.torchvision_sets import TorchvisionSet, register

SPLITS = (({"split": "train"}, (75_750,)), ({"split": "test"}, (25_250,)))

register(
    "food101",
    TorchvisionSet(
        "Food101",
        SPLITS,
        labels=lambda part: part._labels,
        classes=lambda part: part.classes,
        needs=lambda kind: [(f"food-101/{name}", None) for name in ("images", "meta/train.json", "meta/test.json")],
        varies=True,
        files=lambda part: part._image_files,
    ),
)
