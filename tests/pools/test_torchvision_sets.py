"""Every published data set is read from files in its own format by torchvision's own class, and goes through an audit."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.build import Pool, build_pool
from mia_audit.pools.section import Dataset

from .conftest import FORMATS, PUBLIC, TEST, TRAIN, Publish, through_all_stages

VARYING = {"gtsrb": {"size": 20}, "food101": {"size": 20}}
VIT = {"patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 1, "img_size": 8}


def build(name: str, root: Path, **section: Any) -> Pool:
    dataset = Dataset(source=name, path=str(root), **VARYING.get(name, {}) | section)
    return build_pool(pools[name].load(dataset, "datasets.some"), dataset, "some", 0)


@pytest.mark.parametrize("name", FORMATS)
def test_a_published_set_comes_as_it_was_written(name: str, tmp_path: Path, publish: Publish) -> None:
    pixels, labels = publish(name)
    pool = build(name, tmp_path, take="first")
    np.testing.assert_array_equal(np.asarray(pool.audited.data), pixels[pool.audited.source])
    np.testing.assert_array_equal(pool.audited.labels, labels)
    assert len(pool.metadata["classes"]) > labels.max()


@pytest.mark.parametrize("name", FORMATS)
def test_a_published_set_goes_through_an_audits_stages(name: str, tmp_path: Path, publish: Publish) -> None:
    publish(name)
    section = {"source": name, "path": str(tmp_path), **VARYING.get(name, {})}
    signals = through_all_stages(section, {"model": "vision_transformer", "parameters": VIT}, tmp_path / "run")
    assert len(signals) == 2 * (TRAIN + TEST - PUBLIC)


def test_the_first_records_are_training_before_test_images(tmp_path: Path, publish: Publish) -> None:
    publish("cifar10")
    pool = build("cifar10", tmp_path, take="first", records=TRAIN + 2, public=3)
    assert pool.audited.source.tolist() == list(range(TRAIN + 2))
    assert pool.public.source.tolist() == [TRAIN + 2, TRAIN + 3, TRAIN + 4]
    assert pool.metadata["read"] == TRAIN + 5


def test_images_are_read_by_several_threads_as_by_one(tmp_path: Path, publish: Publish) -> None:
    publish("food101")
    section = Dataset(source="food101", path=str(tmp_path), size=20)
    one, four = (
        build_pool(pools["food101"].load(section, "datasets.some"), section, "some", 0, threads=threads)
        for threads in (1, 4)
    )
    np.testing.assert_array_equal(np.asarray(one.audited.data), np.asarray(four.audited.data))
    assert one.audited.sha256 == four.audited.sha256


def test_a_size_is_what_pillow_resizes_to(tmp_path: Path, publish: Publish) -> None:
    from PIL import Image

    pixels, _ = publish("mnist")
    pool = build("mnist", tmp_path, take="first", size=14)
    expected = Image.fromarray(pixels[0, 0]).resize((14, 14), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(np.asarray(pool.audited.data)[0, 0], np.asarray(expected))


@pytest.mark.parametrize(
    ("name", "damage", "section", "words"),
    [
        ("svhn", "test_32x32.mat", {}, r"datasets\.some\.path: no readable SVHN in .*datasets\.some\.download: true"),
        ("cifar10", "cifar-10-batches-py/test_batch", {}, "no readable CIFAR10 in .*test_batch is damaged"),
        (
            "gtsrb",
            "gtsrb/GTSRB/Final_Test/Images/00020.ppm",
            {},
            r"1 of 24 records .*00020\.ppm \(.*Repair or remove them",
        ),
        ("gtsrb", "", {"size": None}, r"datasets\.some\.size: missing; the images of GTSRB vary in size"),
        ("mnist", "", {"root": ""}, r"datasets\.some\.path: missing; state where the files of pool 'mnist' are"),
        ("mnist", "", {"root": "/no/such"}, "/no/such: no such file or folder"),
    ],
)
def test_what_is_wrong_with_the_files_is_one_line(
    name: str, damage: str, section: dict[str, Any], words: str, tmp_path: Path, publish: Publish
) -> None:
    publish(name)
    if damage:
        (tmp_path / damage).write_bytes(b"damaged")
    with pytest.raises(UserError, match=words) as raised:
        build(name, **{"root": tmp_path} | section)
    assert "\n" not in str(raised.value)


def test_a_wrong_number_of_files_is_one_line(tmp_path: Path, publish: Publish) -> None:
    publish("gtsrb")
    next((tmp_path / "gtsrb/GTSRB/Training/00000").iterdir()).unlink()
    (tmp_path / "gtsrb/GTSRB/Training/00000").rmdir()
    with pytest.raises(UserError, match=rf"{TRAIN - 1} train images of GTSRB in .*, but {TRAIN} were expected"):
        build("gtsrb", tmp_path)


def test_a_label_outside_the_classes_is_one_line(tmp_path: Path, publish: Publish) -> None:
    publish("gtsrb")
    path = tmp_path / "gtsrb/GT-final_test.csv"
    path.write_text(path.read_text().rstrip().rpartition(";")[0] + ";43\n")
    last = TRAIN + TEST - 1
    with pytest.raises(
        UserError, match=rf"record {last} of the data set has the label 43, .* 43 classes are numbered from 0 to 42"
    ):
        build("gtsrb", tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_published_files_may_stay_packed(name: str, tmp_path: Path, publish: Publish) -> None:
    pixels, labels = publish(name)
    for file in sorted(tmp_path.glob("*/raw/*-images-*")):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    pool = build(name, tmp_path, take="first")
    np.testing.assert_array_equal(np.asarray(pool.audited.data), pixels[pool.audited.source])
    np.testing.assert_array_equal(pool.audited.labels, labels)
    (raw,) = tmp_path.glob("*/raw")
    own = Dataset(source="idx", path=str(raw), take="first")
    same = build_pool(pools["idx"].load(own, "datasets.some"), own, "some", 0)
    np.testing.assert_array_equal(np.asarray(same.audited.data), np.asarray(pool.audited.data))


def test_published_files_may_lie_in_the_root_itself_as_a_package_has_them(tmp_path: Path, publish: Publish) -> None:
    pixels, _ = publish("fashion_mnist")
    raw = tmp_path / "FashionMNIST/raw"
    pool = build("fashion_mnist", raw, take="first")
    np.testing.assert_array_equal(np.asarray(pool.audited.data), pixels[pool.audited.source])
    (raw / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(
        UserError, match=r"\(t10k-images-idx3-ubyte is missing\): .* Debian's package dataset-fashion-mnist"
    ):
        build("fashion_mnist", raw)
    with pytest.raises(
        UserError, match=r"no readable FashionMNIST in .*/none .* path: /usr/share/datasets/fashion-mnist"
    ):
        build("fashion_mnist", tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an IDX file of bytes"),
        (b"\0\0\x0d\3" + bytes(16), "not an IDX file of bytes"),
        (b"\0\0\x08\3" + b"\0\0\0\4" * 3, "0 bytes or more, but the file's header states 64"),
        (b"\0\0\x08\3" + b"\xff\xff\xff\xff" * 3, "takes .* in memory"),
    ],
)
def test_damaged_files_of_this_format_are_one_line(content: bytes, words: str, tmp_path: Path) -> None:
    for name, data in (("images-idx3", content), ("labels-idx1", b"\0\0\x08\1\0\0\0\1\0")):
        (tmp_path / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(data))
    with pytest.raises(UserError, match=words) as raised:
        pools["idx"].load(Dataset(source="idx", path=str(tmp_path)), "datasets.some")
    assert "\n" not in str(raised.value)


def test_a_download_that_fails_is_one_line(tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import mnist

    publish("mnist")
    (tmp_path / "MNIST/raw/t10k-images-idx3-ubyte").unlink()

    def unreachable(*_: Any, **__: Any) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(mnist, "download_and_extract_archive", unreachable)
    with pytest.raises(UserError, match=r"no readable MNIST in .*: the download failed") as raised:
        build("mnist", tmp_path, download=True)
    assert "\n" not in str(raised.value)
