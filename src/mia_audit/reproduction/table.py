"""The attacks of the paper's Table 3, as printed and as computed from the published matrices, and their ROC curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mia_audit.attacks import attacks
from mia_audit.attacks.io.published import Published
from mia_audit.evaluation.authors_read_out import FPRS, authors_read_out
from mia_audit.evaluation.metrics import target_metrics
from mia_audit.evaluation.roc import log_grid, mean_log_roc
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.layout import COLUMN, draw_roc, log_log
from mia_audit.signals.name import Reading, read_signal

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from matplotlib.figure import Figure

METRICS = ("tpr_at_fpr_0.001", "tpr_at_fpr_0.01", "auc")

THEIRS = "authors' score, exact ROC"
WRITTEN = "as the algorithm is written"
DEFAULT = "blend (default)"
BEST = "joint with the confidence, blend (best)"

LIKELIHOODS = {
    "pooled": "pooled",
    "per-record": "per-record",
    "shrunk": "shrunk",
    "hierarchical": "hierarchical",
    "types": "types",
    DEFAULT: "blend",
}

JOINT = {
    "joint with the confidence, pooled": "pooled",
    "joint with the confidence, hierarchical": "hierarchical",
    "joint with the confidence, types": "types",
    BEST: "blend",
}

PRINTED = {
    "loss": ("Loss LiRA", ((0.054, 0.007), (0.095, 0.012), (0.570, 0.009))),
    "l1": ("L1-LRT", ((0.093, 0.022), (0.156, 0.018), (0.639, 0.008))),
    "l2": ("L2-LRT", ((0.078, 0.021), (0.146, 0.016), (0.633, 0.007))),
    "variance": ("VAR-LRT", ((0.025, 0.008), (0.120, 0.015), (0.613, 0.009))),
}
"""The paper's Table 3 by signal: the attack's name, then mean and standard deviation of TPR at 0.1 % and at 1 % FPR and of the AUC."""


@dataclass(frozen=True)
class Row:
    """One line: the paper's name of the attack, the method used here, its signal, and its scores [N, K] if they are computed."""

    attack: str
    method: str
    signal: str
    values: Float[np.ndarray, "3 K"]
    """The three metrics of every target [3, K], or their printed means and standard deviations [3, 2]."""
    scores: Float[np.ndarray, "N K"] | None = None

    @property
    def mean(self) -> np.ndarray:
        """The means of the three metrics."""
        return self.values[:, 0] if self.scores is None and self.values.shape[1] == 2 else self.values.mean(axis=1)

    @property
    def sd(self) -> np.ndarray:
        """The standard deviations of the three metrics over targets."""
        return (
            self.values[:, 1] if self.scores is None and self.values.shape[1] == 2 else self.values.std(axis=1, ddof=1)
        )


def rows(published: Published) -> Iterator[Row]:
    """Yield the lines of the table by attack, in the order of the paper."""
    for kind, (attack, printed) in PRINTED.items():
        for name in (name for name in published.signals if name == kind or read_signal(name).summary == kind):
            yield Row(attack, "as printed", name, np.array(printed))
            yield from _read(published, attack, name)


def _read(published: Published, attack: str, name: str) -> Iterator[Row]:
    signals, member = published.signals, published.member
    theirs = _scores(published, "authors-lrt", [name])
    read = [authors_read_out(column, here) for column, here in zip(theirs.T, member.T, strict=True)]
    values = np.array([[*tprs, auc] for tprs, auc in read]).T
    yield Row(attack, "authors' score, authors' read-out", name, values)
    yield _row(published, attack, THEIRS, name, theirs)
    if name != "loss":
        yield _row(published, attack, WRITTEN, name, _scores(published, "paper-lrt", [name], "per-record"))
    method = (
        "loss-lira"
        if name == "loss"
        else f"{ {'variance': 'var'}.get(kind := read_signal(name).summary or '', kind) }-lrt"
    )
    scaled = "confidence" if name == "loss" else name
    label = scaled if name == "loss" else f"log {name}"
    yield _row(published, attack, "threshold", name, _scores(published, "threshold", [name]))
    yield _row(published, attack, "pooled", name, _scores(published, f"{method}-raw", [name], "pooled"))
    for name_here, likelihood in LIKELIHOODS.items():
        yield _row(published, attack, name_here, label, _scores(published, method, [scaled], likelihood))
    if name != "loss" and "confidence" in signals:
        for name_here, likelihood in JOINT.items():
            joint = _scores(published, "joint-lrt", ["confidence", name], likelihood)
            yield _row(published, attack, name_here, f"confidence + {label}", joint)


def _scores(published: Published, method: str, names: list[str], likelihood: str = "none") -> Float[np.ndarray, "N K"]:
    readings = [Reading(read_signal(name), [published.signals[name]]) for name in names]
    return attacks[method].score(readings, published.member, likelihood)


def _row(published: Published, attack: str, method: str, signal: str, scores: Float[np.ndarray, "N K"]) -> Row:
    metrics = [target_metrics(column, here, FPRS) for column, here in zip(scores.T, published.member.T, strict=True)]
    values = np.array([[row[name] for row in metrics] for name in METRICS], dtype=np.float64)
    return Row(attack, method, signal, values, scores)


def table(lines: list[Row]) -> pl.DataFrame:
    """Return the table: means and standard deviations over targets; null where a target has too few records to resolve the metric."""
    columns = {
        "attack": [line.attack for line in lines],
        "way": [line.method for line in lines],
        "signal": [line.signal for line in lines],
    }
    numbers = {
        f"{name}_{part}": [float(getattr(line, part)[index]) for line in lines]
        for index, name in enumerate(METRICS)
        for part in ("mean", "sd")
    }
    return pl.DataFrame(columns | numbers).with_columns(pl.col(*numbers).fill_nan(None))


def latex(lines: list[Row]) -> str:
    """Return the table as a LaTeX tabular (booktabs)."""
    body, last = [], ""
    for line in lines:
        if line.attack != last:
            body.append(rf"\midrule \multicolumn{{5}}{{l}}{{{line.attack}}} \\")
            last = line.attack
        digits = 3 if line.method == "as printed" else 4
        cells = [
            rf"${mean:.{digits}f} \pm {sd:.{digits}f}$" if np.isfinite(mean) else "--"
            for mean, sd in zip(line.mean, line.sd, strict=True)
        ]
        body.append(rf"{line.method} & {line.signal.replace('_', ' ')} & {' & '.join(cells)} \\")
    head = r"way & signal & TPR at 0.1\,\% FPR & TPR at 1\,\% FPR & AUC \\"
    return "\n".join([r"\begin{tabular}{llrrr}", r"\toprule", head, *body, r"\bottomrule", r"\end{tabular}", ""])


def plain(lines: list[Row]) -> str:
    """Return the table as text for a terminal."""
    width = max(len(line.method) for line in lines)
    wide = max(len(line.signal) for line in lines)
    text, last = [], ""
    for line in lines:
        if line.attack != last:
            text.append(f"\n{line.attack:{width + wide + 2}}  TPR@0.1%  TPR@1%   AUC")
            last = line.attack
        cells = "  ".join(f"{mean:.4f}" if np.isfinite(mean) else f"{'–':6}" for mean in line.mean)
        text.append(f"  {line.method:{width}}  {line.signal:{wide}}  {cells}")
    return "\n".join(text).lstrip("\n")


def curves_figure(lines: Sequence[Row], member: Bool[np.ndarray, "N K"]) -> Figure:
    """Draw exact log-log ROC curves of the authors' score, of the default attack and of the best one, with printed values as points."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.attack for line in lines))
    figure = Figure(figsize=(COLUMN * len(names), COLUMN * 1.15), layout="constrained")
    grid = log_grid(int((~member).sum(axis=0).max()))
    for index, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), index + 1)
        for way, colour in zip((BEST, DEFAULT, THEIRS), PALETTE, strict=False):
            line = next((line for line in lines if line.attack == name and line.method == way), None)
            if line is None or line.scores is None:
                continue
            mean, sd = mean_log_roc(zip(line.scores.T, member.T, strict=True), grid)
            draw_roc(axes, grid, mean, color=colour, label=way)
            axes.fill_between(
                grid, np.maximum(mean - sd, grid[0] / 2), mean + sd, step="post", color=colour, alpha=0.15, linewidth=0
            )
        printed = next(line for line in lines if line.attack == name and line.method == "as printed")
        axes.plot([0.001, 0.01], printed.mean[:2], "x", color="black", label="as printed")
        log_log(axes, grid[0], label="guessing")
        axes.set(ylabel="true-positive rate", title=name)
        axes.legend(loc="lower right")
    return figure
