"""`mia-audit cost`: medians and ratios of what logs of training tell."""

import json
from pathlib import Path

import polars as pl

from mia_audit.cli import main
from mia_audit.config import settings as slices
from mia_audit.config.load import check_audit

LINE = "shadow {} of 000-002: train accuracy 0.9, test accuracy 0.8, ε 3 at δ 1e-05, 900 records/s, {} ms a step\n"


def test_medians_and_ratios(tmp_path: Path) -> None:
    logs = {
        "toy-net-none-epsinf-000-002": [9.0, 4.0, 5.0],
        "toy-net-dp-sgd-eps3-000-001": [100.0, 19.0],
        "toy-net-dp-sgd-eps3-002-003": [20.0, 21.0],
        "toy-net-dp-sgd-eps30-000-002": [80.0],
        "toy-net-mine-eps3-000-002": [22.0],
    }
    for name, times in logs.items():
        path = tmp_path / "logs" / "train" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(LINE.format(shadow, time) for shadow, time in enumerate(times))
        path.write_text(f"warning: no card\nshadow 0 of 000-002: epoch 2 of 5, 18 records/s\n{lines}")
    settings = [
        ("toy", "net", "none", "none", "inf"),
        ("toy", "net", "dp-sgd", "dp-sgd", "30"),
        ("toy", "net", "dp-sgd", "dp-sgd", "3"),
        ("toy", "net", "mine", "fadp", "3"),
        ("toy", "other", "mine", "fadp", "3"),
    ]
    out = tmp_path / "cost.csv"
    spec = json.dumps({"settings": settings})
    assert main(["cost", "--results", str(tmp_path), "--spec", spec, "--out", str(out)]) == 0
    rows = pl.read_csv(out).rows()
    assert [row[4:] for row in rows] == [
        (3, 5.0, 1.0, 0.0625),
        (1, 80.0, 16.0, 1.0),
        (4, 20.5, 4.1, 1.0),
        (1, 22.0, 4.4, 1.07),
        (0, None, None, None),
    ]


def test_the_slice_names_what_every_mechanism_is() -> None:
    audit = check_audit(
        {
            "audit": "x",
            "datasets": {"digits": {}},
            "architectures": {"mlp": {}},
            "mechanisms": {"none": {}, "mine": {"mechanism": "dp-sgd", "epsilon": [8]}},
            "explainers": {"methods": ["ixg"]},
        },
        "x",
    )
    assert json.loads(slices.cost_slice(audit))["settings"] == [
        ["digits", "mlp", "none", "none", "inf"],
        ["digits", "mlp", "mine", "dp-sgd", "8"],
    ]
