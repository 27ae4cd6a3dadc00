"""Sheets of filters, from models on disk to pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mia_audit.cli import main
from mia_audit.models.architecture import build, describe
from mia_audit.models.weights import save_weights
from mia_audit.report.figures.explanations import class_sheet, column, record_sheet
from mia_audit.storage import write_json

PARAMETERS = {"maps": 3, "projection": 2}
FACTS = {"shape": [1, 4, 4], "classes": ["cat", "dog"]}


def model(seed: int, shape: tuple[int, ...] = (1, 4, 4)) -> torch.nn.Module:
    return build("locally-linear-maps", PARAMETERS, shape, 2, seed).eval().requires_grad_(False)


def test_a_column_holds_the_maps_with_the_largest_shares() -> None:
    built = model(0)
    shown, sample = torch.randn(3, 1, 4, 4), torch.randn(20, 1, 4, 4)
    found = column("no DP", built, shown, sample, 2)  # type: ignore[arg-type]
    shares = built.shares(built.scores(built.projected(shown)))
    for row, k in enumerate(built(shown).argmax(dim=1).tolist()):
        order = shares[row, :, k].argsort(descending=True)[:2]
        assert found.classes[row] == k
        assert np.allclose(found.shares[row], shares[row, order, k])
        assert np.allclose(found.filters[row], built.filters()[order, k])
    usual = built.shares(built.scores(built.projected(sample))).mean(dim=0).argmax(dim=0)
    assert np.allclose(found.leading, built.filters()[usual, [0, 1]])


@pytest.mark.parametrize(("beta", "even"), [(1e-3, True), (100.0, False)])
def test_a_mixture_in_which_no_map_stands_out_is_named(beta: float, even: bool) -> None:
    built = build("locally-linear-maps", PARAMETERS | {"beta": beta}, (1, 4, 4), 2, 0).eval().requires_grad_(False)
    sample = torch.randn(20, 1, 4, 4)
    found = column("no DP", built, sample[:1], sample, 2)  # type: ignore[arg-type]
    largest = [
        float(shares[:, k].max())
        for shares, k in zip(
            built.shares(built.scores(built.projected(sample))), built(sample).argmax(dim=1), strict=True
        )
    ]
    assert found.top_share == pytest.approx(np.mean(largest)) and found.mixes_evenly is even
    assert ("mixed evenly" in found.title) is even


def test_a_single_map_mixes_nothing() -> None:
    built = build("locally-linear-maps", {"maps": 1}, (1, 4, 4), 2, 0).eval().requires_grad_(False)
    sample = torch.randn(5, 1, 4, 4)
    assert not column("no DP", built, sample, sample, 1).mixes_evenly  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 4, 4), (5,)])
def test_a_sheet_has_a_picture_for_every_record_and_map(shape: tuple[int, ...]) -> None:
    shown = torch.rand(2, *shape)
    columns = [column(name, model(seed, shape), shown, shown, 2) for seed, name in enumerate(("no DP", "ε = 2"))]  # type: ignore[arg-type]
    metadata = FACTS | {"shape": shape}
    by_record = record_sheet(columns, (255 * shown).byte().numpy(), metadata, ["class cat", "class dog"])
    assert sum(len(axes.images) for axes in by_record.axes) == 2 * (1 + 2 * 2)
    by_class = class_sheet(columns, metadata)
    assert sum(len(axes.images) for axes in by_class.axes) == 2 * 2
    assert [axes.get_ylabel().split(" (")[0] for axes in by_class.axes if axes.get_ylabel()] == ["no DP", "ε = 2"]


def test_sheets_are_drawn_from_the_models_on_disk(small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, even = tmp_path / "results", PARAMETERS | {"beta": 1e-3}
    (root / "pools").mkdir(parents=True)
    (root / "pools" / "toy").symlink_to(small.root / "pools" / "toy")
    write_json(root / "toy" / "llm" / "architecture.json", describe("llm", "locally-linear-maps", even, (1, 8, 8), 3))
    for seed, folder in enumerate(("none-epsinf", "dp-sgd-eps2")):
        built = build("locally-linear-maps", even, (1, 8, 8), 3, seed)
        save_weights(built, root / "toy" / "llm" / folder / "models" / "shadow-0" / "weights.safetensors")
    settings = [["no DP", "toy/llm/none-epsinf"], ["ε = 2", "toy/llm/dp-sgd-eps2"]]
    spec = {"seed": 0, "dataset": "toy", "top": 2, "shown": 2, "architectures": {"llm": settings}}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    for out in ("first", "second"):
        arguments = ["--results", str(root), "--spec", str(path), "--out", str(tmp_path / out)]
        assert main(["filters", *arguments]) == 0
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / out).iterdir()} for out in ("first", "second")
    )
    assert first == second
    sheets = {f"llm_{kind}.{suffix}" for kind in ("records", "classes") for suffix in ("pdf", "svg", "png")}
    assert set(first) == sheets | {"shares.csv"}
    said = capsys.readouterr()
    assert "2 records and 3 classes in 2 settings" in said.out
    assert said.err.count("none-epsinf: the mean share of the top") == 2
    shares = first["shares.csv"].decode().splitlines()
    assert shares[0] == "architecture,setting,maps,top_share,even_share,mixed_evenly"
    assert shares[1].startswith("llm,no DP,3,0.3") and shares[1].endswith("true")
    path.write_text(json.dumps(spec | {"architectures": {"llm": [["no DP", "toy/llm/other-epsinf"]]}}))
    assert main(["filters", "--results", str(root), "--spec", str(path), "--out", str(tmp_path / "third")]) == 2
    assert "no folders shadow-{k} there" in capsys.readouterr().err
