"""The published score matrices of Huang et al. 2024: the paper's Table 3 as printed, by the authors' read-out, exactly, and by our attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mia_audit.attacks import attacks
from mia_audit.attacks.io.layouts import PublishedMatrices
from mia_audit.evaluation.metrics import FPRS, log_grid, mean_log_roc, target_metrics
from mia_audit.papers.cells import READ, printed_cells, read_out
from mia_audit.report.figures.catalogue import COLUMN, draw_roc, log_log
from mia_audit.report.series import PALETTE
from mia_audit.signals.name import Reading, read_signal

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from matplotlib.figure import Figure

ATTACKS = {
    "loss": ("Loss LiRA", "loss-lira"),
    "variance": ("VAR-LRT", "var-lrt"),
    "l1": ("L1-LRT", "l1-lrt"),
    "l2": ("L2-LRT", "l2-lrt"),
    "linf": ("L∞-LRT", "linf-lrt"),
}
"""The attack on each signal or summary: in the paper's words, and by name."""

PRINTED, EXACT, DEFAULT, JOINT = (
    "as printed",
    "authors' score, exact ROC",
    "blend (default)",
    "joint with the confidence",
)
BEST = f"{JOINT}, blend (best)"
LIKELIHOODS = {name: name for name in ("pooled", "per-record", "shrunk", "hierarchical", "types")} | {DEFAULT: "blend"}
JOINTLY = {f"{JOINT}, {name}": name for name in ("pooled", "hierarchical", "types")} | {BEST: "blend"}


@dataclass(frozen=True)
class MatrixRow:
    """A line of the table: the paper's name of the attack, the method, its signal, mean and spread over targets of `READ`, and scores."""

    attack: str
    method: str
    signal: str
    mean: Float[np.ndarray, " 3"]
    sd: Float[np.ndarray, " 3"]
    scores: Float[np.ndarray, "N K"] | None = None


def rows(published: PublishedMatrices) -> Iterator[MatrixRow]:
    """Yield the lines of the table by attack; without printed numbers for what the paper does not print."""
    printed = {(cell.key.attack, cell.key.metric): cell for cell in printed_cells("huang2024") if cell.table == "3"}
    for kind, (words, attack) in ATTACKS.items():
        for name in (name for name in published.signals if name == kind or read_signal(name).summary == kind):
            cells = [printed[attack, metric] for metric in READ if (attack, metric) in printed]
            if cells:
                mean, sd = (np.array([getattr(cell, part) for cell in cells], float) for part in ("mean", "sd"))
                yield MatrixRow(words, PRINTED, name, mean, sd)
            yield from _computed(published, words, attack, name)


def _computed(published: PublishedMatrices, words: str, attack: str, name: str) -> Iterator[MatrixRow]:
    def scores(method: str, *names: str, likelihood: str = "none") -> Float[np.ndarray, "N K"]:
        readings = [Reading(read_signal(one), [published.signals[one]]) for one in names]
        return attacks[method].score(readings, published.member, likelihood)

    def row(method: str, signal: str, values: Float[np.ndarray, "N K"]) -> MatrixRow:
        pairs = zip(values.T, published.member.T, strict=True)
        metrics = [target_metrics(column, here, FPRS) for column, here in pairs]
        return _over_targets(words, method, signal, [[one[metric] for one in metrics] for metric in READ], values)

    loss = name == "loss"
    theirs = scores("authors-lrt", name)
    yield _over_targets(words, "authors' score, authors' read-out", name, read_out(theirs, published.member))
    yield row(EXACT, name, theirs)
    if not loss:
        yield row("as the algorithm is written", name, scores("paper-lrt", name, likelihood="per-record"))
    yield row("threshold", name, scores("threshold", name))
    yield row("pooled", name, scores(f"{attack}-raw", name, likelihood="pooled"))
    read, label = ("confidence", "confidence") if loss else (name, f"log {name}")
    for method, likelihood in LIKELIHOODS.items():
        yield row(method, label, scores(attack, read, likelihood=likelihood))
    if not loss and "confidence" in published.signals:
        for method, likelihood in JOINTLY.items():
            yield row(method, f"confidence + {label}", scores("joint-lrt", "confidence", name, likelihood=likelihood))


def _over_targets(
    attack: str,
    method: str,
    signal: str,
    values: Sequence[Sequence[float]] | np.ndarray,
    scores: np.ndarray | None = None,
) -> MatrixRow:
    known = np.asarray(values, dtype=np.float64)
    return MatrixRow(
        attack=attack,
        method=method,
        signal=signal,
        mean=known.mean(axis=1),
        sd=known.std(axis=1, ddof=1),
        scores=scores,
    )


def table(lines: Sequence[MatrixRow]) -> pl.DataFrame:
    """Return the table: means and standard deviations over targets; null where a target has too few records to resolve the metric."""
    words = {"attack": "attack", "way": "method", "signal": "signal"}
    columns = {title: [getattr(line, part) for line in lines] for title, part in words.items()}
    numbers = {
        f"{name}_{part}": [float(getattr(line, part)[index]) for line in lines]
        for index, name in enumerate(READ)
        for part in ("mean", "sd")
    }
    return pl.DataFrame(columns | numbers).with_columns(pl.col(*numbers).fill_nan(None))


def plain(lines: Sequence[MatrixRow]) -> str:
    """Return the table as text for a terminal."""
    width, wide = (max(len(getattr(line, part)) for line in lines) for part in ("method", "signal"))
    text, last = [], ""
    for line in lines:
        if line.attack != last:
            text.append(f"\n{line.attack:{width + wide + 2}}  TPR@0.1%  TPR@1%   AUC")
            last = line.attack
        cells = "  ".join(f"{mean:.4f}" if np.isfinite(mean) else f"{'–':6}" for mean in line.mean)
        text.append(f"  {line.method:{width}}  {line.signal:{wide}}  {cells}")
    return "\n".join(text).lstrip("\n")


def curves_figure(lines: Sequence[MatrixRow], member: Bool[np.ndarray, "N K"]) -> Figure:
    """Draw exact log-log ROC curves of the authors' score, of the default attack and of the best one, with printed values as points."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.attack for line in lines))
    figure = Figure(figsize=(COLUMN * len(names), COLUMN * 1.15), layout="constrained")
    grid = log_grid(int((~member).sum(axis=0).max()))
    for index, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), index + 1)
        for way, colour in zip((BEST, DEFAULT, EXACT), PALETTE, strict=False):
            line = next((line for line in lines if (line.attack, line.method) == (name, way)), None)
            if line is None or line.scores is None:
                continue
            mean, sd = mean_log_roc(zip(line.scores.T, member.T, strict=True), grid)
            draw_roc(axes, grid, mean, colour, way, band=(np.maximum(mean - sd, grid[0] / 2), mean + sd))
        for line in lines:
            if (line.attack, line.method) == (name, PRINTED):
                axes.plot(FPRS, line.mean[:2], "x", color="black", label=PRINTED)
        log_log(axes, grid[0], label="guessing")
        axes.set(ylabel="true-positive rate", title=name)
        axes.legend(loc="lower right")
    return figure
