"""German Traffic Sign Recognition Benchmark: colour images from 15 to 250 pixels a side in 43 classes (Stallkamp et al. 2012)."""

from mia_audit.pools.torchvision_sets import TorchvisionSet, register

SPLITS = (({"split": "train"}, (26_640, 39_209)), ({"split": "test"}, (12_630,)))
"""torchvision downloads the training set of the online competition; the final one, which the paper counts, is larger."""

FILES = ("GTSRB/Training", "GTSRB/Final_Test/Images", "GT-final_test.csv")

register(
    "gtsrb",
    TorchvisionSet(
        "GTSRB",
        SPLITS,
        labels=lambda part: [label for _, label in part._samples],
        classes=lambda part: [str(number) for number in range(43)],
        needs=lambda kind: [(f"gtsrb/{name}", None) for name in FILES],
        varies=True,
        files=lambda part: [path for path, _ in part._samples],
    ),
)
