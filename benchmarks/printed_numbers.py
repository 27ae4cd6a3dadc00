"""Printed numbers and their sources: render tables of the pages from committed files, and say what these depend on.

    python benchmarks/printed_numbers.py                   render all tables again (make numbers)
    python benchmarks/printed_numbers.py --take RESULTS    copy the tables of a finished audit to docs/numbers/AUDIT

Results of users are in results/, which git ignores and every audit overwrites, so committed tables have a folder of
their own. docs/numbers/AUDIT has the tables of an audit that are printed (of an audit with seeds the rows of means
alone), those in BESIDE, and provenance.json: the commit, processor, versions, seeds and the
resolved config of the audit, the loss of guessing, and what the attacks and the evaluation of that version say about
made-up signals.

A table of a page is made from the rows of a file that have the given values, or one of several (a|b):

    <!-- numbers: docs/numbers/digits-seeds/settings.csv, epsilon=inf|8
    | setting | test accuracy | AUC |
    | {mechanism}, ε = {epsilon} | {test_accuracy:.1%} | {outputs_auc:.3f} |
    -->
    (the table, and a line that names the file)
    <!-- end of numbers -->

A name in braces is a column of the file, or a mean with the interval of NAME_mean, NAME_low and NAME_high, or, as
one_run_NAME, the interval of NAME in one more run with another seed or on another processor: t over the rows of seeds,
NAME_mean ± t · NAME_sd · √(1 + 1/seeds), at 95 %.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from scipy.stats import t as student

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "docs" / "numbers"
BLOCK = re.compile(
    r"<!-- numbers: (?P<source>.+)\n(?P<template>(?:\|.+\n)+)-->\n(?P<table>(?:.*\n)*?)<!-- end of numbers -->"
)
TABLES = ("settings", "summary", "differences", "comparisons", "explanation_metrics", "private_explanations")
BESIDE = ("paper/table_*.csv", "figures/filters/*/shares.csv")
"""A paper's numbers beside the audit's, and how evenly maps are mixed."""
ALONE = ("compute", "report", "audit", "seed", "seeds")
"""Sections of the config on which no number depends."""
PRECISION = 1e-4
"""Relative difference up to which numbers of two processors count as the same."""


class Template(Formatter):
    """Format a row of a CSV file: percentages and minus signs as the pages have them, means with their intervals."""

    def get_field(self, field_name: str, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Return a column, the mean and the limits of one, or the limits of one run; raises KeyError for any other name."""
        if field_name in kwargs:
            return kwargs[field_name], field_name
        if (name := field_name.removeprefix("one_run_")) != field_name:
            mean, sd, seeds = (float(kwargs[key]) for key in (f"{name}_mean", f"{name}_sd", "seeds"))
            half = float(student.ppf(0.975, seeds - 1)) * sd * math.sqrt(1 + 1 / seeds)
            return [mean - half, mean + half], field_name
        return [kwargs[f"{field_name}_{part}"] for part in ("mean", "low", "high")], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a number in a format, an interval in parentheses, or a text as it is; nothing for an empty cell."""
        if isinstance(value, list):
            *means, low, high = (self.format_field(one, format_spec) for one in value)
            if not means:
                return f"{low.removesuffix(' %')} to {high}"
            mean = means[0]
            return f"{mean} ({low.removesuffix(' %')} to {high.removesuffix(' %')})" if low else mean
        if not format_spec or not value:
            return "∞" if value == "inf" else str(value)
        return format(float(value), format_spec).replace("%", " %").replace("-", "−")


def rows_of(source: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a file that have the values, as in `FILE, column=value, column=a|b`."""
    name, *wanted = source.split(", ")
    values = dict(one.split("=", 1) for one in wanted)
    path = ROOT / name
    with path.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        for row in csv.DictReader(lines, delimiter="\t" if path.suffix == ".tsv" else ","):
            if all(row[column] in value.split("|") for column, value in values.items()):
                yield row


def rendered(page: Path, text: str) -> str:
    """Return a page's text with its tables made again; raises ValueError for a table without a row."""

    def table(match: re.Match[str]) -> str:
        name = match["source"].split(", ")[0]
        head, *templates = match["template"].splitlines()
        rows = [Template().vformat(one, (), row) for row in rows_of(match["source"]) for one in templates]
        if not rows:
            raise ValueError(f"{page}: no row of {match['source']}")
        link = Path(os.path.relpath(ROOT / name, page.parent)).as_posix()
        rule = re.sub(r"[^|]+", "---", head)
        lines = [head, rule, *rows, "", f"Source: [{name}]({link})."]
        return match[0][: match.start("table") - match.start()] + "\n".join(lines) + "\n<!-- end of numbers -->"

    return BLOCK.sub(table, text)


def pages() -> list[Path]:
    """List the pages that may have such tables."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def behaviour() -> dict[str, list[float]]:
    """Return what the attacks say about made-up signals: mean AUC and TPR at 10 % FPR with their intervals, by attack."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    import mia_audit
    from mia_audit.attacks.engine.vectors import blended_vector_ratio

    random = np.random.default_rng(0)
    member = random.random((240, 9)) < 0.5
    level, shift = random.normal(size=(240, 1)), random.gamma(2.0, 0.4, (240, 1))
    confidence = level + shift * member + random.normal(size=member.shape)
    norms = np.exp(level - 0.3 * shift * member + 0.5 * random.normal(size=member.shape))
    attacks, likelihoods = ("threshold", "loss-lira", "l1-lrt", "joint-lrt"), ("blend", "hierarchical", "pooled")
    signals = {"confidence": confidence, "ixg_l1": norms}
    audit = mia_audit.audit(member, signals, attacks=attacks, likelihoods=likelihoods, fprs=(0.1,))
    parts = [f"{metric}_{part}" for metric in ("auc", "tpr_at_fpr_0.1") for part in ("mean", "low", "high")]
    rows = audit.summary.filter(null_control=False).iter_rows(named=True)
    by_attack = {f"{row['attack']}:{row['signal']}:{row['likelihood']}": [row[part] for part in parts] for row in rows}
    vectors = random.normal(size=(240, 1, 3)) + 0.4 * member[:, :, None] + random.normal(size=(240, 9, 3))
    scores = blended_vector_ratio(np.log(norms), [vectors], member)
    by_attack["vector-lrt:blend"] = [roc_auc_score(*pair) for pair in zip(member.T, scores.T, strict=True)]
    return {name: [float(f"{value:.6g}") for value in values] for name, values in by_attack.items()}


def changed(recorded: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield the keys of a resolved config, or of behaviour, that have other values now; new keys and removed ones are left out."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key in recorded.keys() & now.keys():
            yield from changed(recorded[key], now[key], f"{where}.{key}" if where else key)
    elif isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        for number, pair in enumerate(zip(recorded, now, strict=True)):
            yield from changed(*pair, f"{where}[{number}]")
    elif isinstance(recorded, float) and isinstance(now, float):
        if abs(recorded - now) > PRECISION * max(abs(recorded), abs(now)):
            yield f"{where}: {recorded:g}, now {now:g}"
    elif recorded != now:
        yield f"{where}: {recorded}, now {now}"


def config_of(audit: str) -> tuple[Path, dict[str, Any]]:
    """Return the file of the config with this name, and what its numbers depend on."""
    from mia_audit.config.load import load_audit
    from mia_audit.config.specs import resolved
    from mia_audit.report.provenance import base_names

    named = re.compile(rf"^audit: {re.escape(audit)}$", re.MULTILINE)
    (path,) = (one for one in (ROOT / "config").rglob("*.yaml") if named.search(one.read_text(encoding="utf-8")))
    return path, {key: value for key, value in base_names(resolved(load_audit(path))).items() if key not in ALONE}


def stale(folder: Path, today: Mapping[str, list[float]]) -> list[str]:
    """Say which defaults, keys or attacks, by their behaviour today, are no longer those of the numbers in a folder."""
    recorded = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    _, config = config_of(folder.name)
    return [*changed(recorded["config"], config), *changed(recorded["behaviour"], today, "behaviour")]


def take(results: Path, commit: str) -> None:
    """Copy the tables of a finished audit."""
    audited = json.loads((results / "provenance.json").read_text(encoding="utf-8"))
    path, config = config_of(audited["audit"])
    if differences := list(changed(audited["config"], config)):
        raise SystemExit(f"{path}: not the config of {results}: {differences[0]}")
    folder = NUMBERS / audited["audit"]
    folder.mkdir(parents=True, exist_ok=True)
    tables = [results / "tables" / f"{name}.csv" for name in TABLES]
    beside = (path for pattern in BESIDE for path in sorted(results.glob(pattern)))
    for path in [*tables, *beside]:
        if not path.exists():  # an audit may compare nothing, and measure no explanations
            continue
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row.get("seed", "mean") == "mean"]
        if not rows:  # a single setting has no differences
            continue
        used = [column for column in rows[0] if any(row[column] for row in rows)]
        with (folder / path.name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, used, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    provenance = {
        "audit": audited["audit"],
        "commit": commit,
        "processor": processor(),
        "seeds": audited.get("seeds") or [audited["seed"]],
        "versions": audited["versions"],
        "config_sha256": audited["config_sha256"],
        "config": config,
        "guessing_loss": guessing_loss(results),
        "behaviour": behaviour(),
    }
    text = json.dumps(provenance, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    (folder / "provenance.json").write_text(text, encoding="utf-8")


def guessing_loss(results: Path) -> dict[str, float]:
    """Return the loss of answering the classes' shares on every data set, the least over seeds."""
    from mia_audit.report.results import read_guessing

    found: dict[str, float] = {}
    for records in sorted(results.glob("**/pools/*/records.parquet")):
        if guessing := read_guessing(records):
            found[records.parent.name] = min(round(guessing.loss, 4), found.get(records.parent.name, math.inf))
    return found


def processor() -> str:
    """Return the processor's name and its widest instructions, which decide how sums are rounded."""
    import torch

    known = Path("/proc/cpuinfo")
    found = (
        re.search(r"^model name\s*: (.+)$", known.read_text(encoding="utf-8"), re.MULTILINE) if known.exists() else None
    )
    return f"{found[1] if found else platform.processor()}, {torch.backends.cpu.get_cpu_capability()}"


def main() -> None:
    """Render the pages, or copy the tables of an audit."""
    parser = argparse.ArgumentParser(description="Render printed numbers from their files.")
    parser.add_argument("--take", type=Path, metavar="RESULTS", help="results of a finished audit")
    parser.add_argument("--commit", help="the commit that computed them; the one checked out if left out")
    given = parser.parse_args()
    if given.take:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        take(given.take, given.commit or head.stdout.strip())
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (again := rendered(page, text)) != text:
            page.write_text(again, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
