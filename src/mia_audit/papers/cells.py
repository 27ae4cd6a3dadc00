"""What a paper prints, cell by cell, beside results of finished audits, and its ROC curves in its own panels."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.catalogue import AUTHORS, AttackRun
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.evaluation.files import of_aggregate
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.metrics import FPRS, authors_read_out, log_grid, mean_log_roc, metrics_of_columns
from mia_audit.evaluation.run import scores_by_count
from mia_audit.explanation_metrics import REFERENCE
from mia_audit.explanation_metrics.catalogue import per_model
from mia_audit.report.figures.catalogue import draw_roc, log_log, panel_grid
from mia_audit.report.series import PALETTE, Interpretation
from mia_audit.sections import budget
from mia_audit.signals.name import Reading
from mia_audit.storage import read_frame

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting

    Values = Float[np.ndarray, " K"]
    Place = tuple[str, str, str, float]


@dataclass(frozen=True)
class Key:
    """The key of a number; `epsilon` is `inf` without privacy, `explainer` and `attack` are empty if they do not apply."""

    dataset: str
    architecture: str
    mechanism: str
    epsilon: str
    explainer: str
    attack: str
    metric: str


@dataclass(frozen=True)
class Printed:
    """A printed number: mean, standard deviation and number of models, None if the paper prints none."""

    table: str
    where: str
    models: int
    key: Key
    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class Panel:
    """A panel of ROC curves: its title, its attack, and the key of each curve by label."""

    title: str
    attack: str
    curves: Mapping[str, tuple[str, str, str, str, str]]
    """Data set, architecture, mechanism, ε and explainer of every curve."""
    config: str = ""
    """The config that trains them, if it differs from the data set's."""
    others: Sequence[int] = ()
    """Numbers of shadow models: every curve is drawn once for each of them, with the same targets."""
    models: int = 0
    """The paper's number of models, if an audit's settings may have more."""


@dataclass(frozen=True)
class Paper:
    """A paper: its tables and figures, and the configs that train the models for each data set's cells."""

    tables: Mapping[str, str]
    """Titles of tables."""
    figures: Mapping[str, Sequence[Panel]]
    configs: Mapping[str, str]
    elsewhere: Mapping[str, str]
    """Tables and figures of the paper that are not written here, with where they are or why there are none."""
    studies: bool = False
    """Whether tables are written from finished studies of private explanations instead of audits of models."""
    tests: str = ""
    """The table that prints tests of one attack against another."""


def printed_rows(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of one of the files of printed numbers, as text by column."""
    text = files("mia_audit.papers").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


def printed_cells(name: str) -> list[Printed]:
    """Return the printed numbers of a paper, in the order of its tables."""
    return [
        Printed(
            table=row["table"],
            where=row["where"],
            models=int(row["models"]),
            key=Key(**{part: row[part] for part in Key.__dataclass_fields__}),
            mean=float(row["mean"]) if row["mean"] else None,
            sd=float(row["sd"]) if row["sd"] else None,
        )
        for row in printed_rows(name)
    ]


SUMMARIES = {"var-lrt": "variance", "l1-lrt": "l1", "l2-lrt": "l2", "threshold": "variance"}
"""The summary that each of the papers' attacks on explanations reads."""

OUTPUTS = {"loss-lira": "loss", "shadow-classifier": "confidence"}
"""The signal that each of the papers' attacks on outputs reads."""

PLAIN = ("threshold", "shadow-classifier")
"""Attacks without a likelihood, which are the same in the papers and here; their metrics are exact."""


@dataclass(frozen=True)
class CellResults:
    """The results for a printed cell: values of its metric, one per target or model; each part is empty if unknown.

    `alike` follows the paper's procedure: its score and, for likelihood ratios, its read-out of the ROC curve. `exact` is
    the exact metric of the same scores, `ours` that of this package's attack on the same signal.
    """

    alike: Values = field(default_factory=lambda: np.empty(0))
    exact: Values = field(default_factory=lambda: np.empty(0))
    ours: Values = field(default_factory=lambda: np.empty(0))
    our_attack: str = ""


class Measured:
    """The settings of finished audits, by their names in a paper."""

    def __init__(self, audits: Sequence[Results]) -> None:
        """Collect the audits' settings; if two audits have the same setting, the later one is used."""
        self._settings: dict[Place, tuple[Results, AuditedSetting]] = {}
        self._read: dict[tuple[Place, str], Float[np.ndarray, "3 K"]] = {}
        self._fewer: dict[tuple[Place, str, str, str, int], tuple[np.ndarray, np.ndarray]] = {}
        for results in audits:
            for setting in results.spec.settings:
                if not setting.explained:
                    self._settings[place_of(setting)] = (results, setting)

    def results_of(self, cell: Printed) -> CellResults:
        """Return the results for a printed cell."""
        key, place = cell.key, place_of(cell.key)
        if place not in self._settings:
            return CellResults()
        if not key.attack:
            return CellResults(alike=self._similar(place, key) if key.explainer else self._trained(place, key.metric))
        signal = signal_of(key)
        if key.attack in PLAIN:
            exact = self._metric(place, key.attack, signal, key.metric, "none")
            return CellResults(alike=exact, exact=exact)
        likelihood = self._settings[place][0].spec.likelihood
        read = "confidence" if key.attack == "loss-lira" else signal
        if self._models(place) > cell.models:
            exact, alike = self._by_fewer(place, signal, AUTHORS, "none", cell)
            ours, _ = self._by_fewer(place, read, key.attack, likelihood, cell)
        else:
            ours = self._metric(place, key.attack, read, key.metric, likelihood)
            exact = self._metric(place, AUTHORS, signal, key.metric, "none")
            alike = self._as_read(place, signal)[READ.index(key.metric)] if len(exact) else np.empty(0)
        return CellResults(alike, exact, ours, f"{key.attack} ({likelihood})" if len(ours) else "")

    def scored(
        self, place: Place, signal: str, attack: str, models: int = 0
    ) -> tuple[Float[np.ndarray, "N K"], Bool[np.ndarray, "N K"]] | None:
        """Return scores and membership of an attack without likelihoods, by at most that many models (0: all); None if there are none."""
        if place not in self._settings or not len(self._metric(place, attack, signal, "auc", "none")):
            return None
        if 0 < models < self._models(place):
            return next(
                ((scores, member) for _, scores, member in self.with_fewer(place, signal, (models - 1,), attack)), None
            )
        results, setting = self._settings[place]
        found = results.scored(setting, attack, signal, "none")
        return found.score, found.member

    def with_fewer(
        self, place: Place, signal: str, numbers: Sequence[int], attack: str = AUTHORS, likelihood: str = "none"
    ) -> Iterator[tuple[int, Float[np.ndarray, "N K"], Bool[np.ndarray, "N K"]]]:
        """Yield each available number of other models, with an attack's scores of all targets from that many, and the membership.

        Scores are computed from the audit's signals; the targets are the same for every number.
        """
        if place not in self._settings:
            return
        results, setting = self._settings[place]
        path = results.root / setting.path / "signals.parquet"
        if not path.is_file():
            return
        file = SignalsFile(path)
        for one in (known for known in file.signals if known.name == signal):
            readings = [Reading(one, file.read(one))]
            known = [others for others in numbers if others < file.models]
            for others, scores in scores_by_count(
                AttackRun(attack, (one,), likelihood, False), readings, file.member, known
            ):
                yield others, scores, file.member

    def _by_fewer(
        self, place: Place, signal: str, attack: str, likelihood: str, cell: Printed
    ) -> tuple[Values, Values]:
        """Return a cell's metric by as many models as the paper has, exactly and by the authors' read-out; empty if unknown."""
        at = place, signal, attack, likelihood, cell.models
        if at not in self._fewer:
            exact, read = np.empty((len(READ), 0)), np.empty((len(READ), 0))
            for _, scores, member in self.with_fewer(place, signal, (cell.models - 1,), attack, likelihood):
                metrics = metrics_of_columns(scores, member, FPRS)
                exact, read = np.array([metrics[name] for name in READ]), read_out(scores, member)
            self._fewer[at] = exact, read
        exact, read = (values[READ.index(cell.key.metric)] for values in self._fewer[at])
        return (exact, read) if not np.isnan(exact).any() else (np.empty(0), read)

    def _models(self, place: Place) -> int:
        """Return the number of targets of a setting."""
        return int(self._metrics(place)["target"].n_unique())

    def over_threshold(self, key: Key) -> tuple[OverTargets | None, OverTargets | None]:
        """Return a metric minus that of the threshold attack on the same signal and targets, for the paper's score and for our attack.

        Both differences are exact; None for one that is unknown.
        """
        place, signal = place_of(key), signal_of(key)
        if place not in self._settings:
            return None, None
        results, _ = self._settings[place]
        threshold = self._over(place, "threshold", signal, key.metric, "none")
        theirs = self._over(place, AUTHORS, signal, key.metric, "none")
        ours = self._over(place, key.attack, signal, key.metric, results.spec.likelihood)
        one, other = (attack.minus(threshold) if attack and threshold else None for attack in (theirs, ours))
        return one, other

    def _over(self, place: Place, attack: str, signal: str, metric: str, likelihood: str) -> OverTargets | None:
        rows = self._rows(place, attack, signal, likelihood)
        known = len(rows) > 1 and metric in rows.columns and not rows[metric].null_count()
        return OverTargets.from_metrics(rows, metric) if known else None

    def _metric(self, place: Place, attack: str, signal: str, metric: str, likelihood: str) -> Values:
        rows = self._rows(place, attack, signal, likelihood)
        if metric not in rows.columns or rows[metric].null_count():
            return np.empty(0)
        return rows[metric].to_numpy()

    def _rows(self, place: Place, attack: str, signal: str, likelihood: str) -> pl.DataFrame:
        wanted = {"attack": attack, "signal": signal, "likelihood": likelihood, "null_control": False}
        return self._metrics(place).filter(**wanted).sort("target")

    def _metrics(self, place: Place) -> pl.DataFrame:
        """Return the metrics of attacks on records."""
        results, setting = self._settings[place]
        return of_aggregate(results.metrics[results.spec.settings.index(setting)], "none")

    def _as_read(self, place: Place, signal: str) -> Float[np.ndarray, "3 K"]:
        if (place, signal) not in self._read:
            results, setting = self._settings[place]
            scored = results.scored(setting, AUTHORS, signal, "none")
            self._read[place, signal] = read_out(scored.score, scored.member)
        return self._read[place, signal]

    def _similar(self, place: Place, key: Key) -> Values:
        """Return the similarity of explanations to those of the unprotected model with the same training set, one value per model."""
        results, setting = self._settings[place]
        path = results.root.joinpath(*setting.group, "explanation_metrics.parquet")
        if not path.exists():
            return np.empty(0)
        interpretation = Interpretation(per_model(read_frame(path, "explanation_metrics")), results.spec.confidence)
        known = [one for one in interpretation.drawn if one.explainer == key.explainer]
        values = interpretation.values(setting, known[0], key.metric, REFERENCE) if known else {}
        return np.array(list(values.values()), dtype=np.float64)

    def _trained(self, place: Place, metric: str) -> Values:
        results, setting = self._settings[place]
        shadows = results.training[results.spec.settings.index(setting)]
        return np.empty(0) if shadows is None else shadows[metric].drop_nulls().to_numpy().astype(np.float64)


READ = (*(f"tpr_at_fpr_{fpr:g}" for fpr in FPRS), "auc")


def read_out(scores: np.ndarray, member: np.ndarray) -> Float[np.ndarray, "3 K"]:
    """Return the metrics of `READ` of every target, by the read-out of the authors' code."""
    read = [authors_read_out(*pair) for pair in zip(scores.T, member.T, strict=True)]
    return np.array([[*tprs, auc] for tprs, auc in read]).T


def signal_of(key: Key) -> str:
    """Return the signal that the paper's attack reads."""
    return OUTPUTS.get(key.attack) or f"{key.explainer}_{SUMMARIES[key.attack]}"


def place_of(one: Key | AuditedSetting) -> Place:
    """Return the setting of a cell or of its results."""
    epsilon = one.epsilon if isinstance(one, Key) else one.budget or one.epsilon
    return one.dataset, one.architecture, one.mechanism, budget(epsilon)


def difference(values: Values, printed: Printed, confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the mean of the values minus the printed mean, and its interval; NaN if either, or a spread, is unknown.

    The models are not the paper's, so nothing is paired. Targets share their shadow models: the variance of a mean over K
    targets is taken to be 2 (K − 1)/(K − 2) times that of independent ones, which holds if nothing leaks and is otherwise
    a rule of thumb (docs/reference/data.md). For accuracies it is that of independent models. The degrees of freedom of t are those
    of the smaller number of models.
    """
    from scipy.special import stdtrit

    if not len(values) or printed.mean is None:
        return math.nan, math.nan, math.nan
    if len(values) < 3 or printed.sd is None:
        return float(values.mean()) - printed.mean, math.nan, math.nan
    shared = bool(printed.key.attack)
    over = OverTargets(values.astype(np.float64))
    own = over.error**2 if shared else over.sd**2 / over.count
    theirs = printed.sd**2 / printed.models
    if shared:
        theirs *= 2 * (printed.models - 1) / (printed.models - 2)
    gap = over.mean - printed.mean
    freedom = min(over.count, printed.models) - 1
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(own + theirs)
    return gap, gap - half, gap + half


def command(paper: Paper, dataset: str) -> str:
    """Return the command that trains and attacks the models for a data set's cells."""
    return f"snakemake --cores all --configfile {paper.configs[dataset]}"


def frame(paper: Paper, printed: Sequence[Printed], measured: Measured) -> pl.DataFrame:
    """Return a row per printed cell; `difference` is `alike` minus the printed number, with its interval, and `command` computes missing results."""
    lines = []
    for cell in printed:
        results = measured.results_of(cell)
        gap, low, high = difference(results.alike, cell)
        line: dict[str, Any] = {"table": cell.table, "where": cell.where} | asdict(cell.key)
        line |= {"printed_mean": cell.mean, "printed_sd": cell.sd, "printed_models": cell.models}
        for name in ("alike", "exact", "ours"):
            values = getattr(results, name)
            line |= {f"{name}_mean": _mean(values), f"{name}_sd": _sd(values)}
        known = len(results.alike) > 0
        line |= {"our_attack": results.our_attack, "models": len(results.alike) or None}
        line |= {"difference": gap, "difference_low": low, "difference_high": high}
        lines.append(line | {"command": "" if known else command(paper, cell.key.dataset)})
    numbers = [name for name in lines[0] if name.endswith(("_mean", "_sd", "_low", "_high")) or name == "difference"]
    counts = dict.fromkeys(("printed_models", "models"), pl.Int32)
    kinds: dict[str, Any] = dict.fromkeys(lines[0], pl.String) | dict.fromkeys(numbers, pl.Float64) | counts
    return pl.DataFrame(lines, schema=kinds).with_columns(pl.col(numbers).fill_nan(None))


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _sd(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


PANEL_FPRS = {"tpr_at_fpr_0.001": 0.001, "tpr_at_fpr_0.01": 0.01}

CAPTION = (
    "ROC curves on logarithmic axes, mean over targets as steps, never interpolated: the paper's score on the audit's models. "
    "Crosses: the TPRs that the paper prints. Dashed: guessing."
)


def roc_panels(paper: Paper, panels: Sequence[Panel], measured: Measured, printed: Sequence[Printed]) -> Figure | None:
    """Draw a figure's panels; a panel without results names the config that trains it. None if no panel has results."""
    figure, cells = panel_grid(1, len(panels), height=2.2)
    drawn = [_draw(axes, panel, measured, printed) for axes, panel in zip(cells[0], panels, strict=True)]
    for axes, panel, known in zip(cells[0], panels, drawn, strict=True):
        if not known:
            (dataset, *_) = next(iter(panel.curves.values()))
            axes.set_axis_off()
            config = panel.config or paper.configs[dataset]
            axes.text(0.5, 0.5, f"no results\n{config}", ha="center", va="center", fontsize=6)
    return figure if any(drawn) else None


def _draw(axes: Axes, panel: Panel, measured: Measured, printed: Sequence[Printed]) -> bool:
    axes.set_title(panel.title)
    lowest = 1e-3
    for (label, scores, member, place), colour in zip(_scores(panel, measured), PALETTE, strict=False):
        grid = log_grid(int((~member).sum(axis=0).max()))
        mean, _ = mean_log_roc(zip(scores.T, member.T, strict=True), grid)
        lowest = min(lowest, grid[0])
        draw_roc(axes, grid, mean, colour, label)
        for cell in printed if not panel.others else ():
            key = cell.key
            where = (key.dataset, key.architecture, key.mechanism, key.epsilon, key.explainer)
            own = (*where, key.attack) == (*place, panel.attack)
            if own and key.metric in PANEL_FPRS and cell.mean is not None:
                axes.plot(PANEL_FPRS[key.metric], cell.mean, "x", color=colour, markersize=4)
    if not axes.lines:
        return False
    log_log(axes, lowest)
    axes.set_ylabel("true-positive rate")
    axes.legend(loc="lower right", fontsize=5)
    return True


def _scores(panel: Panel, measured: Measured) -> Iterator[tuple[str, np.ndarray, np.ndarray, tuple[str, ...]]]:
    """Yield the curves of a panel that have results: label, scores and members [N, K], and their key."""
    attack = "threshold" if panel.attack == "threshold" else AUTHORS
    for label, place in panel.curves.items():
        dataset, architecture, mechanism, epsilon, explainer = place
        where, signal = (dataset, architecture, mechanism, float(epsilon)), f"{explainer}_{SUMMARIES[panel.attack]}"
        for others, scores, member in measured.with_fewer(where, signal, panel.others):
            yield f"{others} shadow models", scores, member, place
        scored = None if panel.others else measured.scored(where, signal, attack, panel.models)
        if scored is not None:
            yield label, *scored, place
