"""Made-up images: the same ones for the same seed, readable as a pool, and never over something that is there."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.cli import main
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset


def images(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.png"))}


def test_they_are_a_pool_and_the_same_ones_again(tmp_path: Path) -> None:
    one, again, other = (tmp_path / name for name in ("one", "again", "other"))
    for folder, seed in ((one, "0"), (again, "0"), (other, "1")):
        assert (
            main(["sample-images", str(folder), "--images", "11", "--classes", "3", "--size", "8", "--seed", seed]) == 0
        )
    assert images(one) == images(again) != images(other)
    source = pools["images"].load(Dataset(source="images", path=str(one)), "datasets.some")
    assert source.records.shape == (11, 3, 8, 8)
    assert np.bincount(source.labels).tolist() == [4, 4, 3]


def test_their_sizes_vary_where_that_is_asked_for(tmp_path: Path) -> None:
    from PIL import Image

    assert (
        main(["sample-images", str(tmp_path / "new"), "--images", "20", "--classes", "2", "--size", "16", "--vary"])
        == 0
    )
    sides = [Image.open(path).size for path in (tmp_path / "new").rglob("*.png")]
    assert len(set(sides)) > 1 and all(8 <= side <= 16 for pair in sides for side in pair)


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--classes", "1"], "at least 2 classes"), ([], "the folder is not empty")]
)
def test_mistakes_are_one_line(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    assert main(["sample-images", str(tmp_path), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
