"""Small files in the published formats of torchvision's data sets, and an audit's stages from a pool to signals."""

import hashlib
import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from scipy.io import savemat

from mia_audit.cli import main
from mia_audit.pools import pools
from mia_audit.pools.section import PoolSource
from mia_audit.pools.sources.published import TorchvisionSet
from mia_audit.runtime.torchvision_guard import guard
from mia_audit.storage import read_table

TRAIN, TEST, PUBLIC = 16, 8, 4

Written = tuple[np.ndarray, np.ndarray]
"""Pixels uint8 [n, C, H, W] and labels [n], training images before test images."""


def _pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (TRAIN + TEST, *shape), dtype=np.uint8)


def _labels(classes: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(np.arange(TRAIN + TEST) % classes)


def _pickled(path: Path, content: dict[str, object]) -> list[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
    return [path.name, hashlib.md5(path.read_bytes()).hexdigest()]


def _cifar10(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Pickles of rows, red before green before blue; torchvision's table of checksums is that of these files."""
    from torchvision.datasets import CIFAR10

    pixels, labels, folder = _pixels(3, 32, 32), _labels(10), root / CIFAR10.base_folder

    def batch(name: str, rows: np.ndarray) -> list[str]:
        data = pixels[rows].reshape(len(rows), -1)
        return _pickled(folder / name, {"data": data, "labels": labels[rows].tolist(), "batch_label": name})

    parts = np.array_split(np.arange(TRAIN), 5)
    patch.setattr(CIFAR10, "train_list", [batch(f"data_batch_{i + 1}", rows) for i, rows in enumerate(parts)])
    patch.setattr(CIFAR10, "test_list", [batch("test_batch", np.arange(TRAIN, TRAIN + TEST))])
    names = [f"class {number}" for number in range(10)]
    _, md5 = _pickled(folder / "batches.meta", {"label_names": names, "num_vis": 3072})
    patch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": md5})
    return pixels, labels


def _cifar100(root: Path, patch: pytest.MonkeyPatch) -> Written:
    from torchvision.datasets import CIFAR100

    pixels, labels, folder = _pixels(3, 32, 32), _labels(100), root / CIFAR100.base_folder
    for name, rows in (("train", slice(TRAIN)), ("test", slice(TRAIN, None))):
        fine = {"fine_labels": labels[rows].tolist(), "coarse_labels": (labels[rows] // 5).tolist()}
        data = pixels[rows].reshape(-1, 3072)
        patch.setattr(CIFAR100, f"{name}_list", [_pickled(folder / name, {"data": data, **fine})])
    _, md5 = _pickled(folder / "meta", {"fine_label_names": [f"class {number}" for number in range(100)]})
    patch.setattr(CIFAR100, "meta", CIFAR100.meta | {"md5": md5})
    return pixels, labels


def _svhn(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Matlab files [32, 32, 3, n]; the digit 0 has the label 10."""
    from torchvision.datasets import SVHN

    pixels, labels, table = _pixels(3, 32, 32), _labels(10), dict(SVHN.split_list)
    for split, rows in (("train", slice(TRAIN)), ("test", slice(TRAIN, None))):
        path = root / f"{split}_32x32.mat"
        y = np.where(labels[rows] == 0, 10, labels[rows]).astype(np.uint8)[:, None]
        savemat(path, {"X": pixels[rows].transpose(2, 3, 1, 0), "y": y})
        table[split] = ["", path.name, hashlib.md5(path.read_bytes()).hexdigest()]
    patch.setattr(SVHN, "split_list", table)
    return pixels, labels


def _gtsrb(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """Training images in a folder a class, test images in one folder with their classes in a CSV file."""
    pixels, labels, base = _pixels(3, 20, 20), np.sort(_labels(43)), root / "gtsrb"
    lines = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for number, (record, label) in enumerate(zip(pixels, labels, strict=True)):
        name = f"{number:05d}.ppm"
        folder = base / "GTSRB" / (f"Training/{label:05d}" if number < TRAIN else "Final_Test/Images")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(record.transpose(1, 2, 0)).save(folder / name)
        if number >= TRAIN:
            lines.append(f"{name};20;20;0;0;19;19;{label}")
    (base / "GT-final_test.csv").write_text("\n".join(lines) + "\n")
    return pixels, np.concatenate([np.unique(labels[:TRAIN], return_inverse=True)[1], labels[TRAIN:]])


def _food101(root: Path, patch: pytest.MonkeyPatch) -> Written:
    """JPEG photographs in a folder a class, listed by class for training and for testing."""
    base, count = root / "food-101", 4
    levels = np.linspace(20, 230, TRAIN + TEST).astype(np.uint8)  # flat images come back exactly from JPEG's blocks
    lists: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    for number, level in enumerate(levels):
        split, name = "train" if number < TRAIN else "test", f"food_{number % count}"
        (base / "images" / name).mkdir(parents=True, exist_ok=True)
        lists[split].setdefault(name, []).append(f"{name}/{number}")
        flat = np.full((20 + number, 30, 3), level, dtype=np.uint8)
        Image.fromarray(flat).save(base / "images" / name / f"{number}.jpg")
    (base / "meta").mkdir()
    for split, names in lists.items():
        (base / "meta" / f"{split}.json").write_text(json.dumps(names))
    order = [int(path.split("/")[1]) for split in lists.values() for names in split.values() for path in names]
    pixels = np.broadcast_to(levels[order, None, None, None], (TRAIN + TEST, 3, 20, 20))
    return pixels, np.array(order) % count


def _idx(root: Path, kind: str, pixels: np.ndarray, labels: np.ndarray) -> None:
    raw = root / kind / "raw"
    raw.mkdir(parents=True)
    for stem, rows in (("train", slice(TRAIN)), ("t10k", slice(TRAIN, None))):
        images, truth = pixels[rows, 0], labels[rows].astype(np.uint8)
        header = struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape)
        (raw / f"{stem}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (raw / f"{stem}-labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, len(truth)) + truth.tobytes())


def _mnist(root: Path, patch: pytest.MonkeyPatch) -> Written:
    pixels, labels = _pixels(1, 28, 28), _labels(10)
    _idx(root, "MNIST", pixels, labels)
    return pixels, labels


def _fashion_mnist(root: Path, patch: pytest.MonkeyPatch) -> Written:
    pixels, labels = _pixels(1, 28, 28), _labels(10)
    _idx(root, "FashionMNIST", pixels, labels)
    return pixels, labels


FORMATS: dict[str, Callable[[Path, pytest.MonkeyPatch], Written]] = {
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "svhn": _svhn,
    "gtsrb": _gtsrb,
    "food101": _food101,
    "mnist": _mnist,
    "fashion_mnist": _fashion_mnist,
}

Publish = Callable[[str], Written]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Return a function that writes a set's files below tmp_path and expects as many images as there are, not as were published."""
    guard()

    def write(name: str) -> Written:
        member = pools[name]
        assert isinstance(member.load, TorchvisionSet)
        (train, _), (test, _) = member.load.splits
        small = replace(member.load, splits=((train, (TRAIN,)), (test, (TEST,))))
        monkeypatch.setitem(pools._members, name, PoolSource(small, member.keys))
        return FORMATS[name](tmp_path, monkeypatch)

    return write


def through_all_stages(section: dict[str, Any], architecture: dict[str, Any], folder: Path) -> pa.Table:
    """Run an audit's stages up to the signals of two shadow models under DP-SGD, a command each, with 4 public records."""
    training = {"epochs": 1, "batch": 4}
    dp_sgd = {"mechanism": "dp-sgd", "accountant": "rdp"}  # the quickest one to calibrate
    mechanism = {"mechanism": dp_sgd, "mechanism_name": "dp-sgd", "epsilon": "8"}
    explained = {"explainers": ["ixg", "saliency"], "explain": ["logit"], "explained_class": "predicted"}
    pool, built, models, out = (folder, folder / "a.json", folder / "models", folder / "signals")
    _stage("pool", {"name": "some", "dataset": section | {"public": PUBLIC}}, out=pool)
    shadows = {"dataset": "some", "membership": {"models": 4}}
    _stage("membership", shadows, records=pool / "records.parquet", out=pool / "membership.parquet")
    run = folder / "run.json"
    run.write_text(json.dumps({"private": ["some"]}))
    _stage("architecture", {"name": "some", "architecture": architecture}, pool=pool, run=run, out=built)
    recipe = {"dataset": "some", "architecture": "some", "training": training, **mechanism}
    _stage("train", recipe, pool=pool, architecture=built, shadows="0-1", out=models)
    task = {"dataset": "some", "families": {"gradient": explained}}
    _stage("signals", task, pool=pool, architecture=built, models=models, shadows="0-1", out=out)
    signals = pa.concat_tables(
        [read_table(out / "gradient" / f"shadow-{shadow}.parquet", "signals") for shadow in range(2)]
    )
    assert np.isfinite(signals["ixg_l1"].to_numpy()).all()
    return signals


def _stage(command: str, spec: dict[str, Any], **options: Any) -> None:
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    path = options["out"].parent / f"{command}-spec.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(spec if command == "architecture" else {"seed": 0, **spec}))
    assert main([command, "--spec", str(path), *flags]) == 0, command


def pool_command(section: dict[str, Any], out: Path, name: str = "mine") -> int:
    """Run `mia-audit pool` on the section of a data set; return its exit code."""
    path = out.with_name(f"{out.name}-spec.json")
    path.write_text(json.dumps({"seed": 0, "name": name, "dataset": section}))
    return main(["pool", "--spec", str(path), "--out", str(out)])
