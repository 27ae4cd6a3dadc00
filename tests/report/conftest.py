"""A small audit on disk: an image pool, a setting that leaks, one at ε = 8 that leaks less and one at ε = 1 that does not."""

import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import rankdata

from mia_audit.config.specs import ReportSpec
from mia_audit.evaluation.exposure import HALVES, Halves
from mia_audit.evaluation.metrics import SHARES, called_columns
from mia_audit.explanation_metrics.tables import COLUMNS, CURVES, MAPS
from mia_audit.report.answer import answer_content
from mia_audit.report.figures.catalogue import draw
from mia_audit.report.findings import Findings
from mia_audit.report.opened import find
from mia_audit.report.provenance import provenance
from mia_audit.report.results import Results
from mia_audit.storage import sha256, write_json, write_table

RECORDS, MODELS = 300, 12
EXPOSED = 17
"""The record that is planted as the most exposed one."""
ATTACKS = [
    ("threshold", "loss", "none", 0.3),
    ("loss-lira", "confidence", "pooled", 0.9),
    ("loss-lira", "confidence", "shrunk", 1.0),
    ("var-lrt", "ixg_variance", "pooled", 0.4),
    ("l1-lrt", "ig_probability_l1", "pooled", 0.6),
]
SETTINGS = {("none", "inf"): 1.0, ("dp-sgd", "8"): 0.4, ("dp-sgd", "1"): 0.0}
DP = {"delta": 1e-5, "accountant": "prv", "clipping": "automatic"}


def _scores(strength: float, member: np.ndarray, random: np.random.Generator) -> Iterator[pa.Table]:
    """Yield one row group per attack and per null control."""
    rows = member.size
    for attack, signal, likelihood, power in ATTACKS:
        score = random.normal(size=member.shape) + strength * power * member
        score[EXPOSED] += 5 * strength * power * member[EXPOSED]
        for null_control in (False, True):
            judged = random.permuted(member, axis=0) if null_control else member
            names = {"attack": attack, "signal": signal, "likelihood": likelihood}
            yield pa.table(
                {
                    **{name: pa.array([value] * rows).dictionary_encode() for name, value in names.items()},
                    "null_control": pa.array([null_control] * rows),
                    "target": pa.array(np.repeat(np.arange(MODELS), RECORDS), pa.int32()),
                    "record": pa.array(np.tile(np.arange(RECORDS), MODELS), pa.int32()),
                    "member": pa.array(judged.T.ravel()),
                    "score": pa.array(score.T.ravel().astype(np.float32)),
                }
            )


FPRS = (0.001, 0.01, 0.1)


def _halves(scores: pa.Table) -> Halves:
    """Calls by the strongest attack, whose scores do not depend on other models."""
    part = scores.slice(2 * RECORDS * MODELS, RECORDS * MODELS)  # the second attack, on the true membership
    score, member = (part[name].to_numpy().reshape(MODELS, RECORDS).T for name in ("score", "member"))
    halves = [(score[:, half], member[:, half]) for half in (slice(MODELS // 2), slice(MODELS // 2, None))]
    return Halves.from_scores(("loss-lira", "confidence", "pooled"), "none", halves, FPRS)


def _metrics(scores: pa.Table) -> pa.Table:
    """Per target AUC and TPRs of untied scores, with made-up intervals."""
    rows = []
    keys = ("attack", "signal", "likelihood", "null_control")
    score, member = (scores[name].to_numpy().reshape(-1, RECORDS) for name in ("score", "member"))
    names = [scores[name].to_numpy()[::RECORDS] for name in (*keys, "target")]
    for index, (*key, target) in enumerate(zip(*names, strict=True)):
        inside, outside = score[index][member[index]], np.sort(score[index][~member[index]])[::-1]
        ranks = rankdata(score[index])[member[index]]
        auc = (ranks.sum() - len(inside) * (len(inside) + 1) / 2) / (len(inside) * len(outside))
        row = dict(zip(keys, key, strict=True)) | {
            "target": target,
            "members": len(inside),
            "non_members": len(outside),
            "unscored": 0,
        }
        row |= {"auc": auc, "auc_low": auc - 0.05, "auc_high": auc + 0.05, "balanced_accuracy": max(0.5, auc)}
        for fpr in FPRS:
            allowed = int(fpr * len(outside) + 1e-9)
            tpr = float((inside > outside[allowed]).mean()) if fpr * len(outside) >= 1 else None
            bounds = (None, None) if tpr is None else (max(tpr - 0.05, 0), min(tpr + 0.05, 1))
            row |= dict(
                zip(
                    (f"tpr_at_fpr_{fpr:g}", f"tpr_at_fpr_{fpr:g}_low", f"tpr_at_fpr_{fpr:g}_high"),
                    (tpr, *bounds),
                    strict=True,
                )
            )
        ranked = member[index][np.argsort(-score[index])]
        for share in SHARES:
            called = ranked[: int(share * RECORDS)]
            row |= dict(zip(called_columns(share), (int(called.sum()), int((~called).sum())), strict=True))
        rows.append(row)
    table = pa.Table.from_pylist(rows)
    kinds = dict.fromkeys(("target", "members", "non_members", "unscored"), pa.int32())
    fields = [
        (name, kinds.get(name, pa.float64() if name.startswith("tpr") else table.schema.field(name).type))
        for name in table.column_names
    ]
    return table.cast(pa.schema(fields))


def _training(mechanism: str, epsilon: str, random: np.random.Generator) -> pa.Table:
    """Two epochs a shadow; accuracies in the last one only."""
    private = mechanism != "none"
    test = {"inf": 0.9, "8": 0.85, "1": 0.7, "z1.3": 0.8}[epsilon]
    asked = 2.7653 if epsilon == "z1.3" else float(epsilon)
    rows = [
        {
            "shadow": shadow,
            "epoch": epoch,
            "loss": 1.0 / epoch,
            "train_accuracy": min(1.0, test + 0.08) if epoch == 2 else None,
            "test_accuracy": test + 0.01 * random.normal() if epoch == 2 else None,
            "train_loss": 0.1 if epoch == 2 else None,
            "test_loss": 0.4 + 0.01 * shadow if epoch == 2 else None,
            "records": RECORDS // 2,
            "steps": 10 * epoch,
            "epsilon": asked * epoch / 2 - 0.01 * (shadow + 1) if private else np.inf,
            "epsilon_rdp": 1.1 * asked if private else np.inf,
            "delta": 1e-5 if private else None,
            "noise_multiplier": 1.5 if private else 0.0,
            "sampling_rate": 0.1,
            "accountant": "prv" if private else "none",
            "sampling": "poisson" if private else "shuffled",
            "clipping": "automatic" if private else "none",
        }
        for shadow in range(MODELS)
        for epoch in (1, 2)
    ]
    return pa.Table.from_pylist(rows)


def _pool(folder: Path, member: np.ndarray, random: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    np.save(folder / "records.npy", random.integers(0, 256, (RECORDS, 1, 8, 8), dtype=np.uint8))
    records = pa.table(
        {"record": pa.array(np.arange(RECORDS), pa.int32()), "label": pa.array(np.arange(RECORDS) % 3, pa.int32())}
    )
    metadata = {
        "kind": "image",
        "shape": [1, 8, 8],
        "classes": ["cat", "dog", "hen"],
        "features": None,
        "mean": 0.5,
        "std": 0.5,
        "duplicates": 4,
    }
    write_table(folder / "records.parquet", records, "records", RECORDS, metadata)
    columns = {"record": np.arange(RECORDS, dtype=np.int32), **{str(k): member[:, k] for k in range(MODELS)}}
    write_table(folder / "membership.parquet", pa.table(columns), "membership", RECORDS, {"design": "half", "seed": 0})


@dataclass(frozen=True)
class Small:
    """The small audit: its folder and its spec."""

    root: Path
    spec: dict[str, Any]

    def results(self, **changes: Any) -> Results:
        """Open it, with other values in its spec."""
        return Results(self.root, ReportSpec(**(self.spec | changes)))


def _write(root: Path, settings: dict[tuple[str, str], float], pool: bool) -> Small:
    random = np.random.default_rng(5)
    member = np.zeros((RECORDS, MODELS), dtype=bool)
    for k in range(MODELS):
        member[random.permutation(RECORDS)[: RECORDS // 2], k] = True
    if pool:
        _pool(root / "pools" / "toy", member, random)
    described = []
    for (mechanism, epsilon), strength in settings.items():
        folder = root / "toy" / "net" / f"{mechanism}-eps{epsilon}"
        rows = 2 * len(ATTACKS) * member.size
        tables = list(_scores(strength, member, random))
        write_table(folder / "scores.parquet", iter(tables), "scores", rows)
        scores = pa.concat_tables(tables).combine_chunks()
        metrics = _metrics(scores)
        write_table(folder / "metrics.parquet", metrics, "metrics", len(metrics), {HALVES: _halves(scores).packed()})
        training = _training(mechanism, epsilon, random)
        write_table(folder / "training.parquet", training, "training", len(training))
        private = mechanism != "none"
        setting = {
            "dataset": "toy",
            "architecture": "net",
            "mechanism": mechanism,
            "epsilon": epsilon,
            "private": private,
        }
        described.append(setting | (DP if private else {}))
    explainers = {
        "methods": ["ixg", "ig"],
        "explain": ["logit", "probability"],
        "explained_class": "predicted",
        "ig_nodes": 5,
    }
    spec = {
        "audit": "toy",
        "title": "A toy",
        "exposed": 3,
        "settings": described,
        "likelihood": "pooled",
        "confidence": 0.95,
        "explainers": explainers,
        "config": {"audit": "toy", "seed": 3, "membership": {"design": "half", "models": MODELS}},
        "config_hash": "c0ffee" * 10,
    }
    return Small(root, spec)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Small]:
    """Return a small audit with the given settings and strengths, written once; treat it as read-only."""
    known: dict[Any, Small] = {}

    def write(settings: dict[tuple[str, str], float], pool: bool = False) -> Small:
        key = (tuple(settings.items()), pool)
        if key not in known:
            known[key] = _write(tmp_path_factory.mktemp("small"), settings, pool)
        return known[key]

    return write


@pytest.fixture(scope="session")
def small(template: Callable[..., Small]) -> Small:
    """The small audit; treat it as read-only."""
    return template(SETTINGS, pool=True)


@pytest.fixture
def written(template: Callable[..., Small], tmp_path: Path) -> Callable[..., Small]:
    """Copy a small audit with the given settings and strengths, to be changed."""

    def copy(settings: dict[tuple[str, str], float], pool: bool = False) -> Small:
        known = template(settings, pool)
        return Small(shutil.copytree(known.root, tmp_path / "audit"), deepcopy(known.spec))

    return copy


@pytest.fixture(scope="session")
def findings(small: Small) -> Findings:
    """What the small audit found."""
    return find(small.results())


@pytest.fixture(scope="session")
def drawn(small: Small, findings: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small audit's figures, which take seconds; treat it as read-only."""
    folder = tmp_path_factory.mktemp("figures")
    draw(small.results(), findings, folder)
    return folder


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render pages without the charts of settings, which take most of the time."""
    monkeypatch.setattr("mia_audit.report.page.group_figures", lambda *given: iter(()))


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Somebody else's signals: one setting in the root folder, without training, pool, config or ε."""
    small = _write(tmp_path_factory.mktemp("imported"), {("none", "inf"): 1.0}, pool=False)
    folder = small.root / "toy" / "net" / "none-epsinf"
    for name in ("scores.parquet", "metrics.parquet"):
        (folder / name).rename(small.root / name)
    (folder / "training.parquet").unlink()
    setting = {
        "dataset": "scores",
        "architecture": "given",
        "mechanism": "none",
        "epsilon": "inf",
        "trained": False,
        "folder": ".",
    }
    return Small(small.root, {"audit": "imported", "exposed": 3, "settings": [setting], "likelihood": "pooled"})


REASON = "the mask is computed from the private batch"


@pytest.fixture
def nominal(written: Callable[..., Small]) -> Small:
    """An audit of no protection, of dp-sgd, and of a mechanism that is named by the same ε and guarantees nothing."""
    small = written({("none", "inf"): 1.0, ("dp-sgd", "8"): 0.4, ("fadp-literal", "8"): 0.5})
    literal = {"private": False, "no_guarantee": REASON, "delta": None, "accountant": None, "clipping": None}
    *settings, last = small.spec["settings"]
    return Small(small.root, small.spec | {"settings": [*settings, last | literal]})


EXPLAINED = ("ixg", "ig")
ALIKE = {"inf": 0.7, "8": 0.6, "1": 0.2}
"""How alike explanations of a setting and the unprotected one are; of the unprotected one, those of two of its models."""


def _explanations(folder: Path, settings: dict[tuple[str, str], float], random: np.random.Generator) -> None:
    """Write made-up measures of five records and maps of two, as `mia-audit explanation-metrics` does."""
    rows = [
        {"mechanism": mechanism, "epsilon": epsilon, "shadow": shadow, "record": record, "explainer": explainer,
         "quantity": "logit", "measure": measure, "against": against,
         "same_class": None if against is None else record != 3,
         "value": (0.5 if against is None else ALIKE[epsilon]) + 0.02 * random.normal()}
        for shadow in range(MODELS)
        for mechanism, epsilon in settings
        for explainer in EXPLAINED
        for measure, against in (("gini", None), ("ssim", "reference"), ("ssim", "other model"))
        if not (against == "reference" and mechanism == "none") and (against != "other model" or shadow % 2)
        for record in range(5)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    write_table(folder / "explanation_metrics.parquet", table, "explanation_metrics", len(table))
    curves = [
        {"mechanism": mechanism, "epsilon": epsilon, "shadow": shadow, "explainer": explainer, "quantity": "logit",
         "measure": "deletion", "share": step / 4, "value": 0.9 - 0.2 * step + 0.02 * random.normal()}
        for mechanism, epsilon in settings
        for shadow in range(MODELS)
        for explainer in EXPLAINED
        for step in range(5)
    ]  # fmt: skip
    write_table(folder / "curves.parquet", pa.Table.from_pylist(curves, schema=CURVES), "curves", len(curves))
    maps = [
        {"mechanism": mechanism, "epsilon": epsilon, "shadow": 0, "record": record, "explainer": explainer,
         "quantity": "logit", "label": 0, "class": int(epsilon == "1"), "height": 8, "width": 8,
         "map": random.normal(size=64).astype(np.float32)}
        for mechanism, epsilon in settings
        for explainer in EXPLAINED
        for record in (4, 7)
    ]  # fmt: skip
    write_table(folder / "explanations.parquet", pa.Table.from_pylist(maps, schema=MAPS), "explanations", len(maps))


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """The small audit with measures of explanations, and a second mechanism at ε = 8; treat it as read-only."""
    settings = SETTINGS | {("other", "8"): 0.4}
    small = _write(tmp_path_factory.mktemp("interpreted"), settings, pool=True)
    _explanations(small.root / "toy" / "net", settings, np.random.default_rng(7))
    return Small(small.root, small.spec | {"explanation_metrics": True, "explanation_maps": True, "curves": True})


@pytest.fixture(scope="session")
def ended(small: Small) -> Path:
    """The folder of the small audit, with the provenance and the page that a finished audit has."""
    results = small.results()
    (small.root / "report.html").write_text("<h1>A toy</h1>")
    page = {"page_sha256": {"report.html": sha256(small.root / "report.html")}}
    write_json(small.root / "provenance.json", provenance(results, find(results).settings) | page)
    write_json(small.root / "answer.json", answer_content(results, find(results)))
    return small.root
