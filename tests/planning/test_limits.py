"""What can never fit is refused before it runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mia_audit.config.load import check_audit, parse
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.planning import requests
from mia_audit.planning import requests as limits

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"breast_cancer": {"records": 500}},
    "membership": {"models": 10},
    "architectures": {"mlp": {}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2]}},
    "training": {"batch": 100},
    "compute": {"micro_batch": 64},
}
METADATA = {"input_shape": [30], "parameters": 20_000_000, "stored_bytes": 80_000_000, "activation_bytes": 40_000_000}


@pytest.fixture
def refuse(tmp_path: Path) -> Callable[[int | None], None]:
    """Describe a model whose records keep 40 MB each, and check it against a limit in megabytes."""
    group = tmp_path / "breast_cancer" / "mlp"
    group.mkdir(parents=True)
    (group / "architecture.json").write_text(json.dumps(METADATA))

    def run(megabytes: int | None, **config: Any) -> None:
        known = check_audit(CONFIG | config, "test")
        limits.write(tmp_path / "specs" / limits.FILE, known, CONFIG | config, "cpu", megabytes)
        limits.refuse(tmp_path / "specs" / limits.FILE, tmp_path)

    return run


def test_a_model_that_fits_no_machine_is_refused_with_the_batch_that_fits(refuse: Callable[..., None]) -> None:
    with pytest.raises(UserError) as caught:
        refuse(3000)
    # 700 of the process, 4 × 80 of weights and optimizer, 3 × 4 × 80 of per-record gradients, and 40 a record
    said = str(caught.value)
    assert said.startswith("architectures.mlp: training under dp") and "4,540 MB with compute.micro_batch: 64" in said
    assert "3,000 MB: set compute.micro_batch: 16," in said and said.endswith("in compute.memory_mb")
    refuse(3000, compute={"micro_batch": 16})
    refuse(4540)
    refuse(None)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"stored_bytes": "x"}', '{"stored_bytes": null}', b"\xff"])
def test_a_damaged_description_is_one_line_that_names_it(
    refuse: Callable[..., None], tmp_path: Path, text: str | bytes
) -> None:
    path = tmp_path / "breast_cancer" / "mlp" / "architecture.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        refuse(3000)
    assert str(caught.value).startswith(f"{path}: damaged")


def test_a_model_that_no_batch_makes_fit_is_too_large(refuse: Callable[..., None]) -> None:
    with pytest.raises(UserError, match=r"no compute\.micro_batch is small enough: choose a smaller model"):
        refuse(900)


def test_models_of_an_earlier_config_or_of_somebody_else_are_not_judged(
    refuse: Callable[..., None], tmp_path: Path
) -> None:
    refuse(900, architectures={"other": {"model": "mlp"}})
    (tmp_path / "breast_cancer" / "mlp" / "architecture.json").write_text(
        json.dumps({"learner": "script", "input_shape": [30]})
    )
    refuse(900)


def test_a_further_attempt_asks_for_no_more_than_there_is(tmp_path: Path) -> None:
    described = tmp_path / "architecture.json"
    described.write_text(json.dumps(METADATA))
    audit = parse(Audit, CONFIG, "tiny.yaml")
    asked = [
        requests.job_memory(audit, str(described), requests.explaining_bytes, attempt, 6000) for attempt in (1, 2, 3)
    ]
    assert asked == [3340, 6000, 6000]


def test_models_and_signals_that_do_not_fit_the_disk_are_refused(tmp_path: Path) -> None:
    audit, group = parse(Audit, CONFIG, "tiny.yaml"), tmp_path / "breast_cancer" / "mlp"

    def check(free: float, records: int = 0) -> None:
        usage = (10**12, 0, int(free))
        limits.refuse_full_disk(audit, "breast_cancer", "mlp", METADATA, group, records, lambda _: usage)

    check(30 * 80e6)
    with pytest.raises(UserError) as caught:
        check(30 * 80e6 - 1)
    said = str(caught.value)
    assert said.startswith("architectures.mlp on breast_cancer: 30 ") and "of which 0 exist" in said
    assert "another 2.4 GB" in said and "but 2.4 GB are free at " in said
    with pytest.raises(UserError):
        check(30 * 80e6, records=500)
    (group / "none-epsinf" / "models" / "shadow-3").mkdir(parents=True)
    check(29 * 80e6)


def test_of_temporary_weights_one_setting_has_to_fit_and_what_is_kept(tmp_path: Path) -> None:
    changes = {"compute": {"weights": "temporary"}, "explanation_metrics": {"records": 0}}
    audit, group = parse(Audit, CONFIG | changes, "tiny.yaml"), tmp_path / "breast_cancer" / "mlp"

    def check(free: float) -> None:
        usage = (10**12, 0, int(free))
        limits.refuse_full_disk(audit, "breast_cancer", "mlp", METADATA, group, 0, lambda _: usage)

    check((10 + 2) * 80e6)
    with pytest.raises(UserError, match="make room"):
        check((10 + 2) * 80e6 - 1)
