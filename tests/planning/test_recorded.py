"""What more models take, by the times that the jobs so far have left."""

from pathlib import Path

import pytest

from mia_audit.config.expand import Setting
from mia_audit.planning.recorded import recorded

PLAIN, PRIVATE = Setting("toy", "net", "none", "inf"), Setting("toy", "net", "dp-sgd", "8")


def used(results: Path, rule: str, name: str, seconds: float) -> None:
    path = results / "benchmarks" / rule / f"{name}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"seconds\tcpu_seconds\tpeak_mb\tgpu_peak_mb\n{seconds}\t1.0\t100.0\t0.0\n")


def trained(results: Path, setting: Setting, models: int) -> None:
    for shadow in range(models):
        path = results / setting.path / "models" / f"shadow-{shadow}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_models_are_priced_one_by_one_and_attacks_together(tmp_path: Path) -> None:
    assert recorded(tmp_path, [PLAIN]) is None
    trained(tmp_path, PLAIN, 5)
    assert recorded(tmp_path, [PLAIN]) is None, "no times"
    used(tmp_path, "train", "toy-net-none-epsinf-000-000", 2.0)
    used(tmp_path, "train", "toy-net-none-epsinf-000-004", 8.0)
    used(tmp_path, "signals", "toy-net-none-epsinf-gradient-000-004", 5.0)
    used(tmp_path, "attack", "toy-net-none-epsinf", 4.0)
    used(tmp_path, "evaluate", "toy-net-none-epsinf", 1.0)
    used(tmp_path, "train", "toy-net-dp-sgd-eps8-000-004", 100.0)  # of a setting that is not asked about
    used(tmp_path, "report", "report", 50.0)
    known = recorded(tmp_path, [PLAIN])
    assert known is not None and (known.each, known.together) == (3.0, 5.0)
    assert known.price(5, 4) == pytest.approx(4 * 3 + 5 * 9 / 5)
    assert recorded(tmp_path, [PLAIN, PRIVATE]) is None
    trained(tmp_path, PRIVATE, 2)
    both = recorded(tmp_path, [PLAIN, PRIVATE])
    assert both is not None and both.each == 53.0
