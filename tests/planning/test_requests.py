"""Memory and GPUs that jobs ask for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.planning import requests

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"public": 100}},
    "architectures": {"mlp": {}},
    "mechanisms": {"none": {}},
}


def audit(**changes: Any) -> Audit:
    return parse(Audit, CONFIG | changes, "tiny.yaml")


def test_an_attack_asks_for_memory_by_its_records_and_models() -> None:
    small = audit(datasets={"digits": {"records": 1000}}, membership={"models": 10})
    large = audit(datasets={"digits": {"records": 60_000}}, membership={"models": 257})
    assert requests.attack_memory(small, "digits") < 500
    assert 1100 < requests.attack_memory(large, "digits") < 2500
    assert requests.report_memory(large) == requests.attack_memory(large, "digits") + requests.DRAWING_MEGABYTES
    assert requests.attack_memory(audit(), "digits") == 4000, "the config does not say how many records there are"


@pytest.mark.parametrize(
    ("section", "cell", "record"),
    [
        ({"methods": ["threshold", "loss-lira"]}, 40, 3000),
        ({"methods": ["threshold", "loss-lira"], "likelihoods": ["hierarchical", "pooled"]}, 40, 0),
        ({"methods": ["loss-lira"], "likelihoods": ["pooled", "types"]}, 40, 3000),
        ({"methods": ["loss-lira", "joint-lrt"], "likelihoods": ["pooled"]}, 60, 0),
        ({"methods": ["loss-lira", "joint-lrt"]}, 60, 12_000),
        ({"methods": ["shadow-classifier:confidence"], "likelihoods": ["pooled"]}, 200, 0),
    ],
)
def test_attacks_on_several_signals_and_types_ask_for_more(section: dict[str, Any], cell: int, record: int) -> None:
    known = audit(attacks=section, datasets={"digits": {"records": 100_000}}, membership={"models": 100})
    asked = requests.attack_memory(known, "digits") - requests.PROCESS_MEGABYTES
    assert asked == (100 * cell + record) / 10


def asked(audit: Audit, described: str, on_cpu: requests.OfBatch = requests.explaining_bytes, attempt: int = 1) -> int:
    return requests.job_memory(audit, described, on_cpu, attempt)


@pytest.fixture
def described(tmp_path: Path) -> str:
    """An architecture of 20 million parameters, a record of which keeps 40 MB."""
    path = tmp_path / "architecture.json"
    path.write_text(json.dumps({"parameters": 20_000_000, "stored_bytes": 80_000_000, "activation_bytes": 40_000_000}))
    return str(path)


def test_a_job_on_models_asks_for_memory_by_its_model_and_batch(described: str) -> None:
    one = audit(
        mechanisms={"none": {}, "dp-sgd": {"epsilon": [8]}}, compute={"micro_batch": 50}, training={"batch": 1000}
    )
    process = requests.PROCESS_BYTES / 1e6
    plain = asked(one, described, requests.training_of(one, "mlp", "none"))
    assert plain == process + 4 * 80 + 50 * 40
    # gradients of four records at least, and what vmap computes them from
    assert asked(one, described, requests.training_of(one, "mlp", "dp-sgd")) == plain + 3 * 4 * 80
    assert asked(one, described) == process + 80 + 50 * 40
    assert asked(one, described, requests.pretraining_of(one, "mlp")) <= plain


def test_each_attempt_asks_for_more(described: str) -> None:
    first, third = (asked(audit(), described, attempt=attempt) for attempt in (1, 3))
    assert third == 3 * first


def test_on_a_gpu_the_host_holds_no_activations(described: str) -> None:
    on_gpu = audit(compute={"device": "cuda", "micro_batch": 1000})
    assert asked(on_gpu, described) == 4080
    anywhere = audit(compute={"device": "auto", "micro_batch": 1000})
    assert asked(anywhere, described) > 40_000


def test_somebody_elses_model_is_asked_for_by_a_constant_that_grows(tmp_path: Path) -> None:
    (tmp_path / "architecture.json").write_text(json.dumps({"learner": "script"}))
    assert asked(audit(), str(tmp_path / "architecture.json"), attempt=2) == 4000


def test_a_model_that_is_not_described_yet_is_asked_for_later(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asked(audit(), str(tmp_path / "architecture.json"))


@pytest.mark.slow
def test_a_vision_transformer_at_224_pixels_takes_what_its_jobs_ask_for() -> None:
    """Each stage runs in a process of its own, whose peak is at least half of the request."""
    program = Path(__file__).parents[2] / "benchmarks" / "model_memory.py"
    words = [sys.executable, str(program), "vit_tiny_patch16_224", "224", "8"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    ratios = {line.split()[0]: float(line.split()[-1]) for line in printed.splitlines()[1:]}
    assert ratios.keys() == {"none", "dp-sgd", "signals"}
    assert all(1 <= ratio <= 2 for ratio in ratios.values()), printed
