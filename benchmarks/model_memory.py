"""Compare a job's memory request with its peak: training with and without privacy, and explaining one batch, on a CPU.

    python benchmarks/model_memory.py [MODEL [SIDE [BATCH]]]

Each runs in a separate process, by default for a ViT-S/16 at 224 pixels with batches of 16 records (two minutes). Prints
`mem_mb` of the rules (`planning.requests`), the peak resident size, and their ratio, which should lie between 1 and 2.
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.learners.protocol import ExplanationRequest
from mia_audit.learners.torch_module import module_summaries
from mia_audit.models.architecture import construct, describe
from mia_audit.planning import requests
from mia_audit.privacy.catalogue import Job
from mia_audit.training.loop import OPTIMIZERS

CLASSES = 10


def audit_of(batch: int) -> Audit:
    """Return an audit whose training steps and explanations take one batch."""
    mechanisms = {"none": {}, "dp-sgd": {"epsilon": [8.0], "delta": 1e-5, "accountant": "rdp"}}
    config = {
        "audit": "memory",
        "datasets": {"digits": {"public": 100}},
        "architectures": {"net": {}},
        "mechanisms": mechanisms,
        "training": {"batch": batch, "optimizer": "adam"},
        "compute": {"micro_batch": batch},
        "explainers": {"methods": ["ig"], "ig_nodes": 2},
    }
    return parse(Audit, config, "memory.yaml")


def work(stage: str, described: Path, batch: int) -> None:
    """Run a stage on one batch of random records, and print the process's peak in megabytes."""
    torch.set_num_threads(1)
    architecture, audit = json.loads(described.read_text()), audit_of(batch)
    model = construct(architecture, seed=0)
    inputs = torch.randn(batch, *architecture["input_shape"])
    labels = torch.zeros(batch, dtype=torch.long)
    if stage == "signals":
        options = audit.explainers.model_dump() | {"explainers": ["ig"]}
        request = ExplanationRequest(options["explainers"], options, 0, model=0)
        still = model.eval().requires_grad_(False)
        module_summaries(still, inputs, labels.numpy(), np.arange(batch), request, False, batch, None)
    else:
        training, mechanism = audit.training_of("net", stage), audit.mechanisms[stage]
        public = torch.zeros(1, *architecture["input_shape"]), torch.zeros(1, dtype=torch.long)
        job = Job(
            model=model.train(),
            records=2 * batch,
            epsilon=8.0 if mechanism.kind.private else np.inf,
            training=training,
            micro_batch=batch,
            key=b"memory",
            public=public,
        )
        protection = mechanism.kind.protect(mechanism, job)
        optimizer = OPTIMIZERS[training.optimizer](list(model.parameters()), training)
        for _ in range(2):
            protection.backward(inputs, labels)
            optimizer.step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


def main(model: str = "vit_small_patch16_224", side: int = 224, batch: int = 16) -> None:
    """Print the request, the peak and their ratio for every stage."""
    audit = audit_of(batch)
    with tempfile.TemporaryDirectory() as name:
        described = Path(name) / "architecture.json"
        described.write_text(json.dumps(describe("net", model, {}, (3, side, side), CLASSES)))
        stages = {
            "none": requests.training_of(audit, "net", "none"),
            "dp-sgd": requests.training_of(audit, "net", "dp-sgd"),
            "signals": requests.explaining_bytes,
        }
        print(f"{model}, {side} pixels, {batch} records at once")
        for stage, of_batch in stages.items():
            megabytes = requests.job_memory(audit, str(described), of_batch, attempt=1)
            words = [sys.executable, __file__, "--work", stage, str(described), str(batch)]
            peak = float(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)
            print(
                f"{stage:8} asked {megabytes:6,.0f} MB   peak {peak:6,.0f} MB   ratio {megabytes / peak:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main(*sys.argv[1:2], *(int(word) for word in sys.argv[2:]))
