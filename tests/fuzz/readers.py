"""Every reader of files that may come from others, with a file that it reads: what the fuzzer breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Make = Callable[[Path], None]
Read = Callable[[Path], object]


class Reader(NamedTuple):
    """What writes a whole file into a folder, the file's name there, and what reads it."""

    name: str
    make: Make
    read: Read


MEMBER = np.arange(48).reshape(12, 4) % 3 > 0
VALUES = np.random.default_rng(0).gamma(2.0, size=(12, 4))
CONFIG = """audit: a
seed: 3
datasets: {breast_cancer: {public: 20, records: 100}}
membership: {design: half, models: 5}
architectures: {mlp: {parameters: {width: 8}, sweep: {depth: [1, 2]}}}
training: {epochs: 2, batch: 32, learning_rate: 1.0e-3}
mechanisms: {none: {}, dp-sgd: {epsilon: [8, 2], delta: 1.0e-5}}
explainers: {methods: [ixg, saliency]}
report: {title: "a title"}
"""


def _matrix(path: Path) -> object:
    from mia_audit.attacks.io.matrices import MatrixFiles, parse_signal_file, read_membership

    np.save(path.parent / "member.npy", MEMBER)
    key = ":loss" if path.suffix == ".npz" else ""
    files = MatrixFiles(str(path.parent / "member.npy"), [parse_signal_file(f"loss={path}{key}")])
    read_membership(f"{path}{key}")
    return [files.read(signal) for signal in files.signals]


def _source(name: str) -> Read:
    def read(path: Path) -> object:
        from mia_audit.config.load import parse
        from mia_audit.pools import pools
        from mia_audit.pools.section import Dataset

        root = path.parent.parent if name == "images" else path
        section = parse(
            Dataset, {"source": name, "path": str(root)} | ({"label": "y"} if name == "table" else {}), "fuzz"
        )
        source = pools[name].load(section, "datasets.d")
        return [source.records[row] for row in range(min(2, len(source.labels)))]

    return read


def _image(suffix: str) -> Make:
    def make(folder: Path) -> None:
        from PIL import Image

        for label in ("a", "b"):
            (folder / label).mkdir(exist_ok=True)
            pixels = np.random.default_rng(1).integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"0.{suffix}")

    return make


def _decoded(path: Path) -> object:
    from mia_audit.pools.section import BadRecordError

    try:
        return _source("images")(path)
    except BadRecordError as error:
        assert "\n" not in str(error)
        return None


def _ledger(folder: Path) -> None:
    from mia_audit.privacy.ledger import Entry, Ledger, LedgerHeader

    with Ledger(folder / "x.ledger", LedgerHeader("record", "zero-out", {"delta": 1e-6})) as ledger:
        for _ in range(3):
            ledger.append([Entry("explanation", "record", "zero-out", {"mu_squared": 0.1}, {"explanation": [0.5]})])


def _ledger_read(path: Path) -> object:
    from mia_audit.privacy.ledger import Ledger, LedgerHeader

    with Ledger(path, LedgerHeader("record", "zero-out", {"delta": 1e-6})) as ledger:
        return [asdict(entry) for entry in ledger.entries]


def _config_read(path: Path) -> object:
    from mia_audit.config.load import load_audit

    return load_audit(path)


def _spec(folder: Path) -> None:
    from mia_audit.config.load import load_audit
    from mia_audit.config.specs import ReportSpec

    (folder / "audit.yaml").write_text(CONFIG)
    ReportSpec.from_audit(load_audit(folder / "audit.yaml")).write(folder).rename(folder / "spec.json")


def _spec_read(path: Path) -> object:
    from mia_audit.config.specs import ReportSpec

    return ReportSpec.read(path)


def _foreign_signals(folder: Path) -> None:
    columns = {"shadow": np.repeat(np.arange(4), 12), "record": np.tile(np.arange(12), 4)}
    columns |= {"member": MEMBER.T.ravel(), "loss": VALUES.T.ravel() + 1.5}
    pq.write_table(pa.table(columns), folder / "signals.parquet")


def _foreign_signals_read(path: Path) -> object:
    from mia_audit.attacks.io.parquet import SignalsFile

    file = SignalsFile(path)
    return [file.read(signal) for signal in file.signals]


def _foreign_metrics(folder: Path) -> None:
    text = {"attack": ["a"], "signal": ["loss"], "likelihood": ["none"]}
    numbers = {"null_control": [False], "target": [0], "members": [5], "non_members": [5], "auc": [0.5]}
    pq.write_table(pa.table(text | numbers), folder / "metrics.parquet")


def _frame(path: Path) -> object:
    from mia_audit.storage import read_frame, table_metadata

    return read_frame(path, path.stem), table_metadata(path, path.stem)


def _results(folder: Path) -> None:
    """Write results with their manifest: a pool, a block of a model, a page and its provenance."""
    import hashlib

    from torch import nn

    from mia_audit.models.weights import save_weights
    from mia_audit.pools import pools
    from mia_audit.pools.build import build_pool
    from mia_audit.pools.section import Dataset
    from mia_audit.pools.store import write_pool
    from mia_audit.storage import write_table
    from mia_audit.storage.digests import write_manifest

    section = Dataset(source="digits", records=4, public=3)
    pool = build_pool(pools["digits"].load(section, "datasets.digits"), section, "digits", 0)
    write_pool(pool, folder / "pools" / "digits")
    write_table(folder / "b" / "000-000" / "training.parquet", pa.table({"shadow": np.array([0])}), "training", 1)
    save_weights(nn.Linear(3, 2), folder / "b" / "000-000" / "shadow-0" / "weights.safetensors")
    (folder / "report.html").write_text("<!DOCTYPE html><h1>x</h1><section id=answer><p>said</p></section>")
    answer = {"title": "x", "confidence": 0.95, "cautions": [], "groups": [{"name": "", "conclusion": "said"}]}
    (folder / "answer.json").write_text(json.dumps(answer))
    page = {"report.html": hashlib.sha256((folder / "report.html").read_bytes()).hexdigest()}
    (folder / "provenance.json").write_text(json.dumps({"inputs_sha256": {}, "page_sha256": page}))
    write_manifest(folder)


def _command(*words: str) -> Read:
    """Run a command on the folder that the file is in, or on one above it that has the list of files."""

    def read(path: Path) -> object:
        from mia_audit.cli import main

        root = next(folder for folder in path.parents if (folder / "provenance.json").exists())
        out, error = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(error):
            code = main([word.replace("RESULTS", str(root)) for word in words])
        assert code in (0, 2), code
        assert (error.getvalue().count("\n") == 1) == (code == 2), error.getvalue()
        return code

    return read


def _architecture(folder: Path) -> None:
    from mia_audit.models.architecture import describe

    (folder / "architecture.json").write_text(json.dumps(describe("n", "mlp", {}, (5,), 3)))


def _architecture_read(path: Path) -> object:
    from mia_audit.models.architecture import read_architecture

    return read_architecture(path)


def _weights(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"w": torch.zeros(3, 2), "b": torch.ones(2)}, folder / "w.safetensors")
    torch.save({"w": torch.zeros(3, 2)}, folder / "w.pth")


def _weights_read(path: Path) -> object:
    from mia_audit.models.architecture import read_tensors

    return read_tensors(path, "architectures.a.pretrained")


def _table(folder: Path) -> None:
    columns = {"x": VALUES[:, 0], "c": [f"{one % 3}" for one in range(12)], "y": [f"k{one % 2}" for one in range(12)]}
    pq.write_table(pa.table(columns), folder / "t.parquet")
    lines = ["x,c,y", *(f"{x:.4f},w{one % 3},k{one % 2}" for one, x in enumerate(VALUES[:, 0]))]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")


def _matrices(folder: Path) -> None:
    np.save(folder / "m.npy", VALUES)
    np.savez(folder / "m.npz", loss=VALUES)
    np.savetxt(folder / "m.csv", VALUES, delimiter=",")
    pq.write_table(pa.table({str(model): VALUES[:, model] for model in range(4)}), folder / "m.parquet")


def _arrays(folder: Path) -> None:
    np.savez_compressed(folder / "a.npz", records=VALUES.astype(np.float32), labels=np.arange(12) % 2)


def _results_of(path: str, *words: str) -> Reader:
    return Reader(path, _results, _command(*words))


LIGHT = [
    *(Reader(f"m.{suffix}", _matrices, _matrix) for suffix in ("npy", "npz", "csv", "parquet")),
    Reader("a.npz", _arrays, _source("arrays")),
    *(Reader(f"t.{suffix}", _table, _source("table")) for suffix in ("csv", "parquet")),
    *(
        Reader(f"a/0.{suffix}", _image(suffix), _decoded)
        for suffix in ("png", "jpg", "bmp", "tif", "webp", "gif", "ppm")
    ),
    Reader("audit.yaml", lambda folder: (folder / "audit.yaml").write_text(CONFIG) and None, _config_read),
    Reader("spec.json", _spec, _spec_read),
    Reader("x.ledger", _ledger, _ledger_read),
    Reader("signals.parquet", _foreign_signals, _foreign_signals_read),
    Reader("metrics.parquet", _foreign_metrics, _frame),
]
"""Readers that need no torch."""

HEAVY = [
    Reader("architecture.json", _architecture, _architecture_read),
    Reader("w.safetensors", _weights, _weights_read),
    Reader("w.pth", _weights, _weights_read),
    _results_of("answer.json", "answer", "RESULTS"),
    *(
        _results_of(path, "verify", "RESULTS")
        for path in (
            *("SHA256SUMS", "provenance.json", "pools/digits/records.npy", "pools/digits/records.parquet"),
            *("b/000-000/training.parquet", "b/000-000/shadow-0/weights.safetensors"),
        )
    ),
]
"""Readers that import torch, or that check a whole folder."""
