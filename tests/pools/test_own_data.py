"""A user's own data: folders of images, tables and arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.build import Pool, build_pool
from mia_audit.pools.section import Dataset

from ..builders import Trap
from .conftest import PUBLIC, through_all_stages

VIT = {"model": "vision_transformer", "parameters": {"patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 1}}
COUNT = 24


def build(pool: str, root: Path, **section: Any) -> Pool:
    dataset = Dataset(source=pool, path=str(root), take="first", **section)
    return build_pool(pools[pool].load(dataset, "datasets.mine"), dataset, "mine", 0)


def fails(pool: str, root: Path, words: str, **section: Any) -> str:
    """Check that building fails in one line with these words."""
    with pytest.raises(UserError, match=words) as raised:
        build(pool, root, **section)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """24 colour images of 8 × 8 pixels in the folders cat and dog."""
    root = tmp_path / "photos"
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        folder = root / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:02d}.png")
    (root / "cat" / "notes.txt").write_text("not an image")
    (root / ".cache").mkdir()
    return root


def test_a_folder_of_images_is_classes_of_images(photos: Path) -> None:
    pool = build("images", photos)
    assert pool.metadata["classes"] == ["cat", "dog"]
    assert np.bincount(pool.audited.labels).tolist() == [12, 12]
    first = np.asarray(Image.open(photos / "cat" / "00.png")).transpose(2, 0, 1)
    np.testing.assert_array_equal(np.asarray(pool.audited.data)[0], first)


def test_a_folder_of_images_goes_through_an_audits_stages(photos: Path, tmp_path: Path) -> None:
    signals = through_all_stages({"source": "images", "path": str(photos)}, VIT, tmp_path / "run")
    assert len(signals) == 2 * (COUNT - PUBLIC)


def test_copies_of_an_image_are_dropped(photos: Path) -> None:
    copied = photos / "cat" / "copy.bmp"
    Image.open(photos / "cat" / "00.png").save(copied)
    pool = build("images", photos)
    assert (pool.metadata["duplicates"], len(pool.audited.labels)) == (1, COUNT)


def test_an_image_more_displaces_at_most_one_of_a_sample(photos: Path) -> None:
    """Images are known by their files, not by their place: a name that sorts first moves the place of all others."""

    def drawn() -> set[str]:
        section = Dataset(source="images", path=str(photos), records=10, public=4)
        return set(build_pool(pools["images"].load(section, "datasets.mine"), section, "mine", 0).audited.sha256)

    before = drawn()
    Image.fromarray(np.full((8, 8, 3), 7, dtype=np.uint8)).save(photos / "cat" / "+.png")
    assert len(before - drawn()) <= 1


def test_images_without_a_header_and_images_without_an_end_are_listed_together(photos: Path) -> None:
    (photos / "dog" / "05.png").write_bytes(b"no image")
    content = (photos / "cat" / "04.png").read_bytes()
    (photos / "cat" / "04.png").write_bytes(content[: len(content) // 2])
    message = fails("images", photos, r"datasets\.mine\.path: 2 of 24 images cannot be read")
    assert "cat/04.png" in message and "dog/05.png" in message


def test_grey_images_among_colour_ones_are_named_and_can_be_converted(photos: Path) -> None:
    Image.open(photos / "cat" / "06.png").convert("L").save(photos / "cat" / "06.png")
    fails(
        "images", photos, r"1 grey-scale image among colour ones: .*cat/06\.png\. datasets\.mine\.convert: rgb or grey"
    )
    assert build("images", photos, convert="rgb").metadata["shape"] == [3, 8, 8]
    assert build("images", photos, convert="grey").metadata["shape"] == [1, 8, 8]


def test_images_of_several_sizes_need_one(photos: Path) -> None:
    Image.new("RGB", (12, 9)).save(photos / "dog" / "wide.png")
    fails("images", photos, r"datasets\.mine\.size: missing; images vary in size \(.*wide\.png is not of 8 × 8 pixels")
    assert build("images", photos, size=6).metadata["shape"] == [3, 6, 6]


def test_a_mean_goes_with_the_channels(photos: Path) -> None:
    assert build("images", photos, mean=(0.1, 0.2, 0.3)).metadata["mean"] == (0.1, 0.2, 0.3)
    fails("images", photos, r"datasets\.mine\.mean: 2 numbers, but the images have 3 channels", mean=(0.1, 0.2))


def test_images_of_16_bits_are_converted_or_refused(photos: Path) -> None:
    shades = np.arange(64, dtype=np.uint16).reshape(8, 8) * 65
    Image.fromarray(shades).save(photos / "dog" / "deep.png")
    fails("images", photos, r"deep\.png \(pixels of mode I;16, not of 8 bits per channel; convert: grey accepts it")
    data = np.asarray(build("images", photos, convert="grey", white=4095).audited.data)
    np.testing.assert_array_equal(data[-1, 0], np.rint(shades * (255 / 4095)))
    assert np.asarray(build("images", photos, convert="rgb").audited.data)[-1].max() == round(63 * 65 / 257)


def test_an_empty_class_and_damaged_images_are_named_together(photos: Path) -> None:
    (photos / "fox").mkdir()
    (photos / "cat" / "02.png").write_bytes(b"no image")
    message = fails("images", photos, "1 of 24 images cannot be read")
    assert "no images in fox" in message


def test_a_folder_without_subfolders_is_named(photos: Path) -> None:
    fails("images", photos / "cat", "photos.*: no subfolders with images; expected one subfolder per class")


PEOPLE = {
    "age": [20.0, 35.5, 50.0] * 8,
    "smoker": [True, False] * 12,
    "town": ["Bern", "Ulm", "Aix", "Bern"] * 6,
    "code": [k + 0.5 for k in range(COUNT)],
    "label": ["ill", "well"] * 12,
}


@pytest.fixture(params=["csv", "parquet"])
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """24 people in a table."""
    path = tmp_path / f"people.{request.param}"
    write(pl.DataFrame(PEOPLE), path)
    return path


def write(frame: pl.DataFrame, path: Path) -> None:
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)


def test_a_table_is_numbers_and_one_column_a_word(people: Path) -> None:
    pool = build("table", people)
    assert pool.metadata["features"] == ["age", "smoker", "town=Aix", "town=Bern", "town=Ulm", "code"]
    assert pool.metadata["classes"] == ["ill", "well"]
    data = np.asarray(pool.audited.data)
    assert data[1].tolist() == [35.5, 0, 0, 0, 1, 1.5]
    assert data.dtype == np.float32
    assert pool.audited.labels[:3].tolist() == [0, 1, 0]


def test_a_table_goes_through_an_audits_stages(people: Path, tmp_path: Path) -> None:
    section = {"source": "table", "path": str(people), "standardise": "public"}
    signals = through_all_stages(section, {"model": "mlp", "parameters": {"width": 4}}, tmp_path / "run")
    assert len(signals) == 2 * (COUNT - PUBLIC)


def test_columns_are_standardised_by_stated_constants(people: Path) -> None:
    pool = build("table", people, standardise="stated", constants={"age": (35.5, 10.0), "code": (0.5, 1)})
    data = np.asarray(pool.audited.data)
    np.testing.assert_allclose(data[:3, 0], [-1.55, 0, 1.45], rtol=1e-6)
    assert data[:3, 5].tolist() == [0, 1, 2]
    assert pool.metadata["centre"][0] == 35.5


def test_infinite_numbers_and_columns_of_dates_are_refused(tmp_path: Path) -> None:
    write(pl.DataFrame(PEOPLE | {"age": [1.0] * 23 + [float("inf")]}), tmp_path / "people.parquet")
    fails("table", tmp_path / "people.parquet", r"not finite in column 'age' \(first in row 24")
    dates = pl.DataFrame(PEOPLE).with_columns(pl.date(2020, 1, 1).alias("born"))
    dates.write_parquet(tmp_path / "people.parquet")
    fails("table", tmp_path / "people.parquet", "column 'born' of .* holds Date: expected numbers")


def test_a_table_says_what_its_columns_are(tmp_path: Path) -> None:
    """Six lines of config for a table with ids, a number that is a class of its own, a code, and missing values."""
    table = PEOPLE | {
        "patient": [f"p{k // 2}" for k in range(COUNT)],
        "visit": range(COUNT),
        "year": [1980 + k % 3 for k in range(COUNT)],
        "school": [None, 9.0] * 12,
    }
    write(pl.DataFrame(table), tmp_path / "t.csv")
    columns: Any = {"visit": "drop", "year": "category", "code": "drop", "smoker": "drop"}
    impute: Any = {"school": 12}
    pool = build("table", tmp_path / "t.csv", columns=columns, person="patient", unit="record", impute=impute)
    assert pool.metadata["features"] == [
        *("age", "town=Aix", "town=Bern", "town=Ulm"),
        *("year=1980", "year=1981", "year=1982", "school"),
    ]
    assert np.asarray(pool.audited.data)[:2, 4:].tolist() == [[1, 0, 0, 12], [0, 1, 0, 9]]
    assert pool.audited.persons is not None and pool.audited.persons[:3].tolist() == ["p0", "p0", "p1"]


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (COUNT, *shape), dtype=np.uint8)


@pytest.mark.parametrize(("shape", "stored"), [((8, 8), (1, 8, 8)), ((3, 8, 8), (3, 8, 8)), ((8, 8, 3), (3, 8, 8))])
@pytest.mark.parametrize("folder", [True, False])
def test_arrays_of_images(tmp_path: Path, shape: tuple[int, ...], stored: tuple[int, ...], folder: bool) -> None:
    given, labels = pixels(*shape), np.arange(COUNT) % 3
    root = save(tmp_path, given, labels, folder)
    pool = build("arrays", root)
    expected = given.transpose(0, 3, 1, 2) if shape == (8, 8, 3) else given.reshape(COUNT, *stored)
    np.testing.assert_array_equal(np.asarray(pool.audited.data), expected)
    np.testing.assert_array_equal(pool.audited.labels, labels)


def save(folder: Path, records: np.ndarray, labels: np.ndarray, as_folder: bool = False) -> Path:
    if as_folder:
        np.save(folder / "records.npy", records)
        np.save(folder / "labels.npy", labels)
        return folder
    np.savez(folder / "data.npz", records=records, labels=labels)
    return folder / "data.npz"


def test_arrays_go_through_an_audits_stages(tmp_path: Path) -> None:
    root = save(tmp_path, np.random.default_rng(0).normal(size=(COUNT, 5)), np.array(["a", "b"] * 12))
    section = {"source": "arrays", "path": str(root), "standardise": "public"}
    signals = through_all_stages(section, {"model": "mlp", "parameters": {"width": 4}}, tmp_path / "run")
    assert len(signals) == 2 * (COUNT - PUBLIC)


def test_a_pickle_that_calls_itself_an_array_is_never_run(tmp_path: Path) -> None:
    save(tmp_path, np.array([Trap(tmp_path / "sprung")] * COUNT, dtype=object), np.arange(COUNT), True)
    fails("arrays", tmp_path, "no readable array 'records'")
    assert not (tmp_path / "sprung").exists()
