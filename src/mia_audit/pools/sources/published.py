"""Data sets that torchvision's own classes read from their published files. All are registered here.

Breast cancer diagnoses bundled with scikit-learn: 569 records of 30 measurements in 2 classes (UCI, Wolberg et al. 1995).

Handwritten digits bundled with scikit-learn: 1,797 grey-scale images of 8 × 8 pixels in 10 classes (UCI, Alpaydin and Kaynak 1998).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError, first_line
from mia_audit.pools.images import Images, guard_pillow, packed_or_not, read_idx, sizes_of
from mia_audit.pools.section import TABLE_KEYS, Header, PoolSource, Source, pool, pools, root_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from mia_audit.pools.section import Dataset

KEYS = ("path", "download", "size")


def cifar_files(kind: Any, root: Path) -> list[tuple[str, str | None]]:
    """List the files of CIFAR-10 and CIFAR-100."""
    batches = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
    return [(f"{kind.base_folder}/{name}", md5) for name, md5 in batches]


def mnist_files(kind: Any, root: Path) -> list[tuple[str, str | None]]:
    """List the files of MNIST and similar sets, packed or not."""
    names = [Path(url).stem for url, _ in kind.resources]
    # published files may be in the root itself rather than in torchvision's folder
    below = "" if any(packed_or_not(root / name) for name in names) else f"{kind.__name__}/raw/"
    return [(f"{below}{name}", None) for name in names]


def from_packed(kind: Any) -> Any:
    """Return torchvision's class for MNIST or a similar set, extended to read the published packed files.

    These may be in the root itself, as in Debian's package of Fashion-MNIST.
    """
    import torch

    def raw_folder(self: Any) -> str:
        name, _ = mnist_files(kind, Path(self.root))[0]
        return str(Path(self.root, name).parent)

    def load(self: Any) -> tuple[Any, Any]:
        stem = Path(self.raw_folder, "train" if self.train else "t10k")
        files = [packed_or_not(Path(f"{stem}-{part}-ubyte")) for part in ("images-idx3", "labels-idx1")]
        images, labels = (torch.from_numpy(read_idx(file).copy()) for file in files if file)
        return images, labels.long()

    def exists(self: Any) -> bool:
        return all(packed_or_not(Path(self.raw_folder, Path(url).stem)) for url, _ in self.resources)

    methods: dict[str, Any] = {"_load_data": load, "_check_exists": exists, "_check_legacy_exist": lambda self: False}
    methods["raw_folder"] = property(raw_folder)
    return type(kind.__name__, (kind,), methods)


@dataclass(frozen=True)
class TorchvisionSet:
    """One of torchvision's data sets: all of its training images, then all of its test images.

    `splits` are the constructor's arguments for each part, with the published number of images (several numbers if
    there are several releases). `labels` and `classes` read a constructed set. `needs` lists the required files below
    the root, by torchvision's class, with published MD5 sums. `varies` marks sets with images of several sizes, and
    `files` returns the images' paths.
    """

    kind: str
    splits: tuple[tuple[Mapping[str, Any], tuple[int, ...]], ...]
    labels: Callable[[Any], Any]
    classes: Callable[[Any], list[str]]
    needs: Callable[[Any, Path], Iterable[tuple[str, str | None]]]
    varies: bool = False
    files: Callable[[Any], list[Any]] | None = None
    reads: Callable[[Any], Any] = lambda kind: kind
    """Turns torchvision's class into one that reads the files."""
    package: tuple[str, str] | None = None
    """The Debian package with the files, and the folder into which it installs them."""

    def __call__(self, dataset: Dataset, where: str) -> Source:
        """Read a data set that torchvision loads as one array; images in separate files are decoded later."""
        guard_pillow()
        parts = [self._part(dataset, where, arguments, counts) for arguments, counts in self.splits]
        starts = [0, *accumulate(len(part) for part in parts)]

        def part_of(row: int) -> tuple[Any, int]:
            number = int(np.searchsorted(starts, row, side="right")) - 1
            return parts[number], row - starts[number]

        def open_image(row: int) -> Image:
            part, index = part_of(row)
            image: Image = part[index][0]
            return image

        def name_of(row: int) -> str:
            part, index = part_of(row)
            return str(self.files(part)[index]) if self.files else f"image {row}"

        def path_of(row: int) -> Path:
            return Path(name_of(row))

        if self.varies and dataset.size is None:
            raise UserError(
                f"{where}.size: missing; the images of {self.kind} vary in size: give the side in pixels to which all are resized,"
                " such as the model's, 224"
            )
        first = open_image(0) if not self.varies else None
        channels = len(first.getbands()) if first else 3
        sizes = sizes_of(dataset.size, first.size if first else None)
        labels = np.concatenate([np.asarray(self.labels(part), dtype=np.int64) for part in parts])
        images = Images(starts[-1], channels, sizes, open_image, name_of, path_of=path_of if self.files else None)
        return Source("image", images, labels, self.classes(parts[0]), [], published=True)

    def _part(self, dataset: Dataset, where: str, arguments: Mapping[str, Any], counts: tuple[int, ...]) -> Any:
        from mia_audit.runtime.torchvision_guard import guard

        guard()
        import torchvision.datasets

        root = root_of(dataset, where, must_exist=not (dataset.download or self.package))
        part = " ".join(str(value) for value in arguments.values() if isinstance(value, str))
        try:
            kind = self.reads(getattr(torchvision.datasets, self.kind))
            images = kind(root, **arguments, download=dataset.download)
        except Exception as error:  # torchvision and the formats' readers raise various errors
            if dataset.download:
                why, remedy = first_line(error), "the download failed; download the files by hand"
            else:
                why = "; ".join(self._wrong(root)) or first_line(error)
                remedy = f"put its published files there, or let torchvision download them with {where}.download: true"
                if self.package:
                    remedy += ", or install Debian's package {} and write path: {}".format(*self.package)
            raise UserError(f"{where}.path: no readable {self.kind} in {root} ({why}): {remedy}") from None
        if len(images) not in counts:
            expected = " or ".join(f"{count:,}" for count in counts)
            raise UserError(
                f"{where}.path: {len(images):,} {part or 'such'} images of {self.kind} in {root}, but {expected} were expected:"
                " files are missing, or are not the published ones"
            )
        return images

    def _wrong(self, root: Path) -> Iterator[str]:
        """List files that are missing below the root, and files that differ from the published ones."""
        import torchvision.datasets
        from torchvision.datasets.utils import check_integrity

        for name, md5 in self.needs(getattr(torchvision.datasets, self.kind), root):
            if not (root / name).exists() and not (root / f"{name}.gz").exists():
                yield f"{name} is missing"
            elif md5 and not check_integrity(root / name, md5):
                yield f"{name} is damaged, or not the published file"


CIFAR_SPLITS = (({"train": True}, (50_000,)), ({"train": False}, (10_000,)))
MNIST_SPLITS = (({"train": True}, (60_000,)), ({"train": False}, (10_000,)))
SVHN_SPLITS = (({"split": "train"}, (73_257,)), ({"split": "test"}, (26_032,)))
FOOD_SPLITS = (({"split": "train"}, (75_750,)), ({"split": "test"}, (25_250,)))
GTSRB_SPLITS = (({"split": "train"}, (26_640, 39_209)), ({"split": "test"}, (12_630,)))
"""Releases of GTSRB's training set: torchvision downloads that of the online competition, but the paper describes the larger final one."""
GTSRB_FILES = ("GTSRB/Training", "GTSRB/Final_Test/Images", "GT-final_test.csv")


def _targets(part: Any) -> Any:
    return part.targets


def _classes(part: Any) -> list[str]:
    classes: list[str] = part.classes
    return classes


SETS = {
    # 60,000 colour images of 32 × 32 pixels in 10 and in 100 classes (Krizhevsky 2009)
    "cifar10": TorchvisionSet("CIFAR10", CIFAR_SPLITS, _targets, _classes, cifar_files),
    "cifar100": TorchvisionSet("CIFAR100", CIFAR_SPLITS, _targets, _classes, cifar_files),
    # 70,000 grey-scale digits of 28 × 28 pixels in 10 classes (LeCun et al. 1998), and pieces of clothing (Xiao et al. 2017)
    "mnist": TorchvisionSet("MNIST", MNIST_SPLITS, _targets, _classes, mnist_files, reads=from_packed),
    "fashion_mnist": TorchvisionSet(
        *("FashionMNIST", MNIST_SPLITS, _targets, _classes, mnist_files),
        reads=from_packed,
        package=("dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist"),
    ),
    # Street View House Numbers: 99,289 colour images of 32 × 32 pixels in 10 classes (Netzer et al. 2011)
    "svhn": TorchvisionSet(
        "SVHN",
        SVHN_SPLITS,
        labels=lambda part: part.labels,
        classes=lambda part: [str(number) for number in range(10)],
        needs=lambda kind, root: [kind.split_list[arguments["split"]][1:] for arguments, _ in SVHN_SPLITS],
    ),
    # 101,000 colour photographs of at most 512 pixels a side in 101 classes (Bossard et al. 2014)
    "food101": TorchvisionSet(
        "Food101",
        FOOD_SPLITS,
        labels=lambda part: part._labels,
        classes=_classes,
        needs=lambda kind, root: [
            (f"food-101/{name}", None) for name in ("images", "meta/train.json", "meta/test.json")
        ],
        varies=True,
        files=lambda part: part._image_files,
    ),
    # German Traffic Sign Recognition Benchmark: colour images from 15 to 250 pixels a side in 43 classes (Stallkamp et al. 2012)
    "gtsrb": TorchvisionSet(
        "GTSRB",
        GTSRB_SPLITS,
        labels=lambda part: [label for _, label in part._samples],
        classes=lambda part: [str(number) for number in range(43)],
        needs=lambda kind, root: [(f"gtsrb/{name}", None) for name in GTSRB_FILES],
        varies=True,
        files=lambda part: [path for path, _ in part._samples],
    ),
}

for name, torchvision_set in SETS.items():
    pools.register(name, torchvision_set)(
        PoolSource(torchvision_set, KEYS, Header("image", sum(max(counts) for _, counts in torchvision_set.splits)))
    )


@pool("breast_cancer", *TABLE_KEYS, header=Header("table", 569))
def breast_cancer(dataset: Dataset, where: str) -> Source:
    """Return float32 [569, 30]."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    classes, features = list(bunch.target_names), list(bunch.feature_names)
    return Source("table", bunch.data.astype(np.float32), bunch.target, classes, features, published=True)


@pool("digits", header=Header("image", 1_797))
def digits(dataset: Dataset, where: str) -> Source:
    """Return uint8 [1797, 1, 8, 8], the 17 grey levels spread over 0 … 255."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return Source(
        "image", pixels[:, None], bunch.target, [str(name) for name in bunch.target_names], [], published=True
    )
