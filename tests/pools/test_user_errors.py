"""What is wrong with a user's files is one line on stderr and exit code 2, from the command that the rule calls, and nothing is left behind."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from .conftest import Publish, pool_command

Fails = Callable[..., str]


@pytest.fixture
def fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fails:
    """Return a function that makes a pool of a section in vain, and returns the line."""

    def run(**section: Any) -> str:
        out = tmp_path / "pool"
        assert pool_command(section, out) == 2
        told = capsys.readouterr().err
        assert told.startswith("mia-audit: datasets.mine") and told.count("\n") == 1, told
        assert not out.exists()
        return told.replace(str(tmp_path), "ROOT")

    return run


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


CIFAR, GTSRB, FOOD, MNIST = "cifar-10-batches-py", "gtsrb/GTSRB", "food-101", "MNIST/raw"


@pytest.mark.parametrize(
    ("name", "damage", "what", "words"),
    [
        ("cifar10", gone, f"{CIFAR}/data_batch_3", f"no readable CIFAR10 in ROOT ({CIFAR}/data_batch_3 is missing)"),
        ("cifar10", gone, f"{CIFAR}/batches.meta", f"({CIFAR}/batches.meta is missing)"),
        ("cifar10", halved, f"{CIFAR}/test_batch", f"({CIFAR}/test_batch is damaged, or not the published file)"),
        ("cifar100", gone, "cifar-100-python/test", "no readable CIFAR100 in ROOT (cifar-100-python/test is missing)"),
        ("svhn", gone, "test_32x32.mat", "no readable SVHN in ROOT (test_32x32.mat is missing)"),
        ("svhn", halved, "train_32x32.mat", "(train_32x32.mat is damaged, or not the published file)"),
        ("mnist", gone, f"{MNIST}/t10k-labels-idx1-ubyte", f"({MNIST}/t10k-labels-idx1-ubyte is missing)"),
        ("mnist", halved, f"{MNIST}/t10k-images-idx3-ubyte", "no readable MNIST in ROOT (3,128 bytes or more, but the file's header states 6,272)"),
        ("fashion_mnist", gone, "FashionMNIST/raw/train-images-idx3-ubyte", "train-images-idx3-ubyte is missing)"),
        ("gtsrb", gone, f"{GTSRB}/Final_Test/Images/00020.ppm", "00020.ppm (no such file or directory). Repair or remove them"),
        ("gtsrb", gone, "gtsrb/GT-final_test.csv", "no readable GTSRB in ROOT (gtsrb/GT-final_test.csv is missing)"),
        ("gtsrb", gone, f"{GTSRB}/Training/00000", "15 train images of GTSRB in ROOT, but 16 were expected"),
        ("gtsrb", emptied, f"{GTSRB}/Training/00000", "(Found no valid file for the classes 00000"),
        ("food101", gone, f"{FOOD}/images/food_1/1.jpg", "1 of 24 records cannot be used: ROOT/food-101/images/food_1/1.jpg"),
        ("food101", gone, f"{FOOD}/images/food_1", "6 of 24 records cannot be used"),
        ("food101", gone, f"{FOOD}/meta/test.json", "no readable Food101 in ROOT (food-101/meta/test.json is missing)"),
        ("food101", halved, f"{FOOD}/meta/test.json", "no readable Food101 in ROOT ("),
        ("food101", halved, f"{FOOD}/images/food_1/1.jpg", "1 of 24 records cannot be used"),
    ],
)  # fmt: skip
def test_published_files_that_are_missing_or_damaged_are_named(
    name: str, damage: Callable[[Path], None], what: str, words: str, tmp_path: Path, publish: Publish, fails: Fails
) -> None:
    publish(name)
    damage(tmp_path / what)
    varying = {"size": 20} if name in ("gtsrb", "food101") else {}
    assert words in fails(source=name, path=str(tmp_path), **varying)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight colour images of 8 × 8 pixels in the folders cat and dog."""
    for number, image in enumerate(np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)):
        folder = tmp_path / "photos" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    return tmp_path / "photos"


def spoil(root: Path, how: str) -> None:
    new = root / "cat" / "new.png"
    if how == "one class":
        shutil.rmtree(root / "dog")
    elif how == "grey with transparency":
        Image.new("LA", (8, 8)).save(new)
    elif how == "no bytes":
        new.touch()
    elif how == "broken link":
        new.symlink_to("/no/such.png")
    elif how == "cut off":
        new.write_bytes((root / "cat" / "0.png").read_bytes()[:60])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("one class", "all records have the class 'cat'"),
        ("grey with transparency", "1 grey-scale image among colour ones"),
        ("no bytes", "1 of 9 images cannot be read: ROOT/photos/cat/new.png (not an image, or of an unknown kind)"),
        ("broken link", "1 of 9 images cannot be read: ROOT/photos/cat/new.png (no such file or directory)"),
        ("cut off", "1 of 9 records cannot be used: ROOT/photos/cat/new.png (image file is truncated)"),
    ],
)
def test_what_is_wrong_with_a_folder_of_images(how: str, words: str, photos: Path, fails: Fails) -> None:
    spoil(photos, how)
    assert words in fails(source="images", path=str(photos))


@pytest.mark.parametrize("pool", ["images", "table", "arrays", "cifar10"])
def test_a_missing_root(pool: str, tmp_path: Path, fails: Fails) -> None:
    told = fails(source=pool, path=str(tmp_path / "no.csv"))
    assert "datasets.mine.path: ROOT/no.csv: no such file" in told and f"the files of pool '{pool}' are" in told
    assert "datasets.mine.path: missing" in fails(source=pool)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "ROOT/t.csv: not readable as a table: empty CSV"),
        ("a,label\n1,x\n2,y,z\n", "not readable as a table: found more fields"),
        ("a,b,label\n1,2,x\n2\n", "values are missing or not finite in column 'b' (first in row 2, 1 in all), 'label'"),
        ("a,label\n1,\n2,y\n3,x\n", "values are missing or not finite in column 'label' (first in row 1"),
        ("a,label\n1,x\n1e300,y\n", "1e+300 in column 'a' (row 2) is too large for a number of 32 bits"),
        ("a,label,label\n1,x,y\n2,y,x\n", "column 'label' occurs twice"),
        ("label\nx\ny\n", "has no column except 'label'"),
    ],
)
def test_what_is_wrong_with_a_csv(content: str, words: str, tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert words in fails(source="table", path=str(tmp_path / "t.csv"))


def test_text_and_a_folder_that_are_called_parquet(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "t.parquet").write_bytes(b'\xff\xfe"a\n1,2,3\n')
    assert "not readable as a table" in fails(source="table", path=str(tmp_path / "t.parquet"))
    (tmp_path / "d.parquet").mkdir()
    assert "a file that ends in .csv or .parquet" in fails(source="table", path=str(tmp_path / "d.parquet"))


def test_classes_that_are_lists_are_refused(tmp_path: Path, fails: Fails) -> None:
    pl.DataFrame({"a": [1, 2], "label": [[1], [2]]}).write_parquet(tmp_path / "t.parquet")
    assert "ROOT/t.parquet holds List(Int64): expected" in fails(source="table", path=str(tmp_path / "t.parquet"))


ROWS, LABELS = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2


@pytest.mark.parametrize(
    ("records", "labels", "words"),
    [
        (np.array(3.0), LABELS, "labels of shape [20] do not match records of shape []"),
        (ROWS[:0], LABELS[:0], "there is no record"),
        (ROWS[:, :0], LABELS, "records of type float64 and shape [20, 0]: expected images"),
        (np.zeros((20, 0, 0), np.uint8), LABELS, "records of type uint8 and shape [20, 0, 0]"),
        (1e300 * ROWS, LABELS, "not finite numbers of 32 bits"),
        (ROWS, LABELS + 10**9 * (LABELS > 0), "record 1 has the label 1000000001, but there are 20 records"),
        (ROWS, LABELS - 1, "record 0 of the data set has the label -1"),
        (ROWS, LABELS.astype(np.uint64) + 2**63, "has the label -"),
        (ROWS, LABELS * 0, "all records have the class '0'"),
        (ROWS, LABELS / 2, "labels of type float64: expected whole numbers"),
        (np.nan * ROWS, LABELS, "not finite numbers"),
        (np.zeros((20, 8, 8), np.float32), LABELS, "shape [20, 8, 8]: expected images as uint8"),
        (np.zeros((20, 3, 8, 3), np.uint8), LABELS, "shape [20, 3, 8, 3]: expected images"),
    ],
)
def test_what_is_wrong_with_arrays(
    records: np.ndarray, labels: np.ndarray, words: str, tmp_path: Path, fails: Fails
) -> None:
    np.savez(tmp_path / "some.npz", records=records, labels=labels)
    assert words in fails(source="arrays", path=str(tmp_path / "some.npz"))


def test_files_that_are_no_arrays(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "some.npz").write_bytes(b"PK\x03\x04 and no more")
    assert "'records' (File is not a zip file)" in fails(source="arrays", path=str(tmp_path / "some.npz"))
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "records.npy", ROWS)
    assert "labels.npy: no readable array 'labels'" in fails(source="arrays", path=str(tmp_path / "folder"))
    halved(tmp_path / "folder" / "records.npy")
    assert "'records' (mmap length is greater" in fails(source="arrays", path=str(tmp_path / "folder"))
