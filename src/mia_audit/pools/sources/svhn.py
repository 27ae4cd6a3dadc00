"""Street View House Numbers: 99,289 colour images of 32 × 32 pixels in 10 classes (Netzer et al. 2011)."""

from mia_audit.pools.torchvision_sets import TorchvisionSet, register

SPLITS = (({"split": "train"}, (73_257,)), ({"split": "test"}, (26_032,)))

register(
    "svhn",
    TorchvisionSet(
        "SVHN",
        SPLITS,
        labels=lambda part: part.labels,
        classes=lambda part: [str(number) for number in range(10)],
        needs=lambda kind: [kind.split_list[arguments["split"]][1:] for arguments, _ in SPLITS],
    ),
)
