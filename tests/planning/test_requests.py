"""Memory and GPUs that jobs ask for."""

from typing import Any

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
    assert 1700 < requests.attack_memory(large, "digits") == requests.report_memory(large) < 2500
    assert requests.attack_memory(audit(), "digits") == 4000, "the config does not say how many records there are"


def test_a_job_asks_for_a_gpu_where_the_config_names_one() -> None:
    for device, gpus in (("auto", 0), ("cpu", 0), ("cuda", 1), ("cuda:1", 1)):
        assert requests.model_job(audit(compute={"device": device})) == {"mem_mb": 2000, "gpu": gpus, "device": device}
