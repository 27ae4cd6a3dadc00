"""From a pool on disk to a block of shadow models: whole, repeatable, and independent of how it is cut into jobs."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mia_audit.cli import main
from mia_audit.models.weights import identity_of, read_weights
from mia_audit.pools.store import write_membership
from mia_audit.storage import read_table

from ..builders import contents, halves, one_line, run, words, write_records

COUNT, PUBLIC = 24, 16
ARCHITECTURE = {"model": "mlp", "parameters": {"width": 8}}
TRAINING = {
    "epochs": 2, "batch": 4, "optimizer": "sgd", "learning_rate": 0.05, "weight_decay": 0.0, "schedule": "cosine"
}  # fmt: skip


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A table of 24 records of 5 features, 16 public ones, and a half design of 3 shadows."""
    folder, random = tmp_path / "pool", np.random.default_rng(0)
    for stem, count in (("records", COUNT), ("public", PUBLIC)):
        records = random.normal(size=(count, 5)).astype(np.float32)
        write_records(folder, stem, records, random.integers(0, 3, count))
    write_membership(folder / "membership.parquet", halves(random, COUNT, 3), {})
    assert architecture(folder) == 0
    return folder


def architecture(pool: Path, section: dict[str, object] = ARCHITECTURE, private: bool = True) -> int:
    spec, private_ones = {"name": "net", "architecture": section}, {"private": ["net"] if private else []}
    out = pool.parent / "architecture.json"
    return run("architecture", pool=pool, spec=spec, run=private_ones, out=out)


def train(*given: Any, **options: Any) -> int:
    return main(arguments(*given, **options))


def arguments(
    pool: Path,
    out: Path,
    shadows: str = "0-1",
    mechanism: str = "dp-sgd",
    epsilon: str = "8",
    public: Path | None = None,
    delta: float = 1e-5,
    accountant: str = "rdp",  # the default one takes seconds for every training
    often: bool = False,
    **training: object,
) -> list[str]:
    spec = {
        "seed": 0,
        "dataset": "toy",
        "architecture": "net",
        "mechanism": {"mechanism": mechanism}
        | ({} if mechanism == "none" else {"delta": delta, "accountant": accountant}),
        "mechanism_name": mechanism,
        "epsilon": epsilon,
        "training": {**TRAINING, **training},
    }
    compute = {"micro_batch": 64} | ({"checkpoint_seconds": 0} if often else {})
    places = {"pool": pool, "architecture": pool.parent / "architecture.json", "public": public, "out": out}
    return words("train", pool.parent, **places, spec=spec, shadows=shadows, threads=1, run={"compute": compute})


@pytest.mark.parametrize(("mechanism", "epsilon"), [("none", "inf"), ("dp-sgd", "8")])
def test_a_block_has_weights_and_a_table_and_the_same_bytes_again(
    pool: Path, tmp_path: Path, mechanism: str, epsilon: str
) -> None:
    for out in ("a", "b"):
        assert train(pool, tmp_path / out, mechanism=mechanism, epsilon=epsilon, accountant="prv") == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    names = [f"shadow-{shadow}{name}" for shadow in (0, 1) for name in ("/weights.safetensors", ".parquet")]
    assert sorted(contents(tmp_path / "a")) == sorted(names)
    rows = [row for table in names[1::2] for row in read_table(tmp_path / "a" / table, "training").to_pylist()]
    assert [(row["shadow"], row["epoch"], row["steps"]) for row in rows] == [(0, 1, 3), (0, 2, 6), (1, 1, 3), (1, 2, 6)]
    assert all(row["records"] == 12 and row["sampling_rate"] == pytest.approx(1 / 3) for row in rows)
    assert [row["train_accuracy"] is None for row in rows] == [True, False, True, False]
    last = rows[-1]
    if mechanism == "none":
        assert last["epsilon"] == last["epsilon_rdp"] == float("inf") and last["noise_multiplier"] == 0
    else:
        assert 7.98 <= last["epsilon"] <= 8 < last["epsilon_rdp"]
        facts = [last[name] for name in ("delta", "accountant", "sampling", "clipping")]
        assert facts == [1e-5, "prv", "poisson", "automatic"]


def test_a_shadow_does_not_depend_on_its_block(pool: Path, tmp_path: Path) -> None:
    assert train(pool, tmp_path / "together", "0-2") == 0
    assert train(pool, tmp_path / "alone", "2-2") == 0
    together = contents(tmp_path / "together")
    assert contents(tmp_path / "alone").items() <= together.items()
    assert len(set(together.values())) == len(together) == 6


KILLED = """
import os, signal, sys
from mia_audit.cli import main
from mia_audit.runtime.progress import _Lines

def step(self, records, epoch):
    if self.what.startswith("shadow 1 ") and epoch == 2:
        os.kill(os.getpid(), signal.SIGKILL)

_Lines.step = step
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_job_goes_on_and_ends_in_the_same_bytes(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "killed"
    kept, line = out / ".checkpoints", arguments(pool, out, often=True)
    killed = subprocess.run([sys.executable, "-c", KILLED, *line], check=False)
    assert killed.returncode == -signal.SIGKILL
    names = [".checkpoints/shadow-1/epoch.safetensors", "shadow-0.parquet", "shadow-0/weights.safetensors"]
    assert sorted(contents(out)) == names
    again = shutil.copytree(kept, tmp_path / "other")
    capsys.readouterr()
    assert train(pool, out) == 0
    log = capsys.readouterr().err
    assert "shadow 0 of 0-1: already trained" in log
    assert "shadow-1/epoch.safetensors: resuming" in log
    assert list(kept.iterdir()) == []
    assert train(pool, tmp_path / "whole") == 0
    assert contents(out) == contents(tmp_path / "whole")
    # another learning rate is another training, which goes on from nothing that was kept
    shutil.copytree(again, kept, dirs_exist_ok=True)
    assert train(pool, out, learning_rate=0.1) == 0
    log = capsys.readouterr().err
    assert "already" not in log and "resuming" not in log
    assert train(pool, tmp_path / "whole", learning_rate=0.1) == 0
    assert contents(out) == contents(tmp_path / "whole")


def test_fine_tuning_starts_from_the_public_model(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, forward = [], nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: (at_once.append(len(x)), forward(self, x))[1])
    spec = {"seed": 0, "dataset": "toy", "architecture": "net", "pretraining": {**TRAINING, "epochs": 30}}
    for out in ("public", "again"):
        places = {"architecture": tmp_path / "architecture.json", "out": tmp_path / f"{out}.safetensors"}
        assert run("pretrain", pool=pool, **places, spec=spec, run={"compute": {"micro_batch": 3}}) == 0
    assert (tmp_path / "public.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    assert max(at_once) == 3  # the memory of a job is bounded by compute.micro_batch, not by the batch
    start = json.loads((tmp_path / "public.json").read_text())
    assert start["records"] == PUBLIC and start["test_records"] == COUNT
    still = {"learning_rate": 1e-30, "mechanism": "none", "epsilon": "inf"}
    assert train(pool, tmp_path / "tuned", public=tmp_path / "public.safetensors", **still) == 0  # type: ignore[arg-type]
    tuned, public = (
        read_weights(tmp_path / name) for name in ("tuned/shadow-0/weights.safetensors", "public.safetensors")
    )
    assert tuned.keys() == public.keys() and all(torch.equal(tuned[name], public[name]) for name in tuned)
    assert identity_of(tmp_path / "public.safetensors") == identity_of(tmp_path / "again.safetensors")


def test_mistakes_are_one_line_and_leave_what_was_there(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "block"
    assert train(pool, out) == 0
    before = contents(out)
    mistakes = [
        ({"batch": 13}, "training.batch: 13 records per step, but the training set has only 12"),
        ({"mechanism": "none", "epsilon": "inf", "batch": 13}, "training.batch"),
        ({"epsilon": "inf"}, "finite budget"),
        ({"epsilon": "1e-9"}, "cannot be reached"),
        ({"mechanism": "dp-sdg"}, "did you mean 'dp-sgd'?"),
        ({"shadows": "2-1"}, "--shadows"),
        ({"shadows": "0-3"}, "no column '3'"),
        ({"public": tmp_path / "none.safetensors"}, "none.safetensors"),
    ]
    for arguments, mend in mistakes:
        capsys.readouterr()
        assert train(pool, out, **arguments) == 2  # type: ignore[arg-type]
        assert mend in one_line(capsys)
    assert contents(out) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_batch_norm_is_refused_before_anything_is_trained(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(pool, "records", np.zeros((1, 3, 32, 32), np.uint8), [0])
    kept = (pool.parent / "architecture.json").read_bytes()
    capsys.readouterr()
    assert architecture(pool, {"model": "resnet10t"}) == 2
    assert "'conv1.1' of 'resnet10t'" in capsys.readouterr().err
    assert (pool.parent / "architecture.json").read_bytes() == kept
    assert architecture(pool, {"model": "resnet10t"}, private=False) == 0


def test_state_that_a_pass_changes_is_refused_before_anything_is_trained(
    pool: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_average = lambda shape, classes: nn.Sequential(  # noqa: E731
        nn.Unflatten(1, (1, *shape)),
        nn.InstanceNorm1d(1, track_running_stats=True),
        nn.Flatten(),
        nn.Linear(shape[0], classes),
    )
    family = SimpleNamespace(
        arguments=lambda model, parameters, shape, classes: {"shape": shape, "classes": classes},
        construct=lambda model, arguments: with_average(**arguments),
        input_shape=lambda arguments: arguments["shape"],
    )
    monkeypatch.setattr("mia_audit.models.architecture.family_of", lambda model: family)
    capsys.readouterr()
    assert architecture(pool) == 2
    assert "'mlp' changes '1.running_mean'" in capsys.readouterr().err
    assert architecture(pool, private=False) == 0


def test_a_delta_that_promises_nothing_is_warned_of_and_kept(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(pool, tmp_path / "usual") == 0
    assert "warning" not in capsys.readouterr().err
    assert train(pool, tmp_path / "block", delta=0.1) == 0
    assert "mechanisms.dp-sgd.delta is not below 1/" in capsys.readouterr().err
    row = read_table(tmp_path / "block" / "shadow-0.parquet", "training").to_pylist()[0]
    assert row["delta"] * row["records"] >= 1


def test_masks_of_the_noise_lie_beside_the_weights(pool: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for stem, count in (("records", COUNT), ("public", PUBLIC)):
        labels = read_table(pool / f"{stem}.parquet", "records")["label"].to_numpy()
        write_records(pool, stem, random.integers(0, 256, (count, 1, 4, 4), dtype=np.uint8), labels)
    parameters = {"width": 0.25, "stages": 1, "stem_stride": 1, "added": 8}
    assert architecture(pool, {"model": "mobilenet_groupnorm", "parameters": parameters}) == 0
    line = arguments(pool, tmp_path / "block", "0-0", "fadp")
    path = Path(line[line.index("--spec") + 1])
    spec = json.loads(path.read_text())
    spec["mechanism"]["importance"] = "public"
    path.write_text(json.dumps(spec))
    assert main(line) == 0
    files = {"shadow-0/weights.safetensors", "shadow-0/masks.safetensors", "shadow-0.parquet"}
    assert set(contents(tmp_path / "block")) == files
    last = read_table(tmp_path / "block" / "shadow-0.parquet", "training").to_pylist()[-1]
    assert last["noise_mask"] == "public records" and last["epsilon"] <= 8
    assert 0 < last["train_loss"] < 10 and 0 < last["test_loss"] < 10
    first = contents(tmp_path / "block")["shadow-0/masks.safetensors"]
    assert main(line) == 0
    assert contents(tmp_path / "block")["shadow-0/masks.safetensors"] == first
    (pool / "public.npy").unlink()
    assert main(line) == 2


def test_a_job_draws_the_training_sets_that_the_membership_table_has(pool: Path, tmp_path: Path) -> None:
    """The workflow's jobs do not wait for the table, which more models change."""
    spec = {"seed": 0, "dataset": "toy", "membership": {"models": 4, "design": "bernoulli"}}
    files = {"records": pool / "records.parquet", "out": pool / "membership.parquet"}
    assert run("membership", spec=spec, **files) == 0
    assert train(pool, tmp_path / "read", "2-3", "none", "inf") == 0
    line = arguments(pool, tmp_path / "drawn", "2-3", "none", "inf")
    path = Path(line[line.index("--spec") + 1])
    path.write_text(json.dumps(json.loads(path.read_text()) | {"draw": {"design": "bernoulli"}}))
    (pool / "membership.parquet").unlink()
    assert main(line) == 0
    weights = [f"shadow-{shadow}/weights.safetensors" for shadow in (2, 3)]
    read, drawn = contents(tmp_path / "read"), contents(tmp_path / "drawn")
    assert [read[name] for name in weights] == [drawn[name] for name in weights]
