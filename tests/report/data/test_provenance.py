import hashlib
import json
import platform
from importlib.metadata import version

from mia_audit.report.data.provenance import provenance
from mia_audit.report.data.results import find


def test_where_the_numbers_come_from(small, findings):
    told = provenance(small.results(), findings.settings)
    assert told["seed"] == 3 and told["config"]["membership"]["models"] == 12 and told["config_sha256"] == "c0ffee" * 10
    assert told["versions"]["python"] == platform.python_version() and told["versions"]["torch"] == version("torch")
    path = "toy/net/dp-sgd-eps8/metrics.parquet"
    assert told["inputs_sha256"][path] == hashlib.sha256((small.root / path).read_bytes()).hexdigest()
    weak = told["settings"][1]
    assert (weak["epsilon"], weak["delta"], weak["accountant"], weak["sampling"]) == ("8", 1e-5, "prv", "poisson")
    assert weak["epsilon_spent"] == 7.99 and weak["noise_multiplier"] == 1.5
    assert told["pools"]["toy"]["duplicates"] == 4
    assert told["notice"].startswith("for audit only: whoever knows the seed")


def test_it_is_json_and_says_the_same_every_time(small, imported):
    for audit in (small, imported):
        texts = {
            json.dumps(provenance(audit.results(), find(audit.results()).settings), sort_keys=True, allow_nan=False)
            for _ in range(2)
        }
        assert len(texts) == 1
