"""The results of an audit over its seeds: tables with a row per seed and their mean, figure, page and answer.

A seed repeats the whole audit, so its means over targets are independent of those of other seeds, and the mean over
seeds has Student's interval. Their variance contains both what varies between the targets of a seed and what
varies between seeds. Differences are paired within a seed.

Imports nothing heavy at the top, because the workflow imports it for the names of the files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.foreign_json import read_object
from mia_audit.report.answer import ACCURACIES, ANSWER
from mia_audit.report.findings import TITLES, Estimate, Findings, mean_over_seeds, silence
from mia_audit.report.formatting import count, fixed, joined, upper_first
from mia_audit.report.tables.catalogue import ATTACK, PARTS, SETTING, Layout, laid_out, setting_columns
from mia_audit.seeds import folder_of_seed

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from mia_audit.report.results import Results
    from mia_audit.report.spec import ReportedAudit

UNITS = ("unit", "aggregate")
TABLES: dict[str, tuple[str, ...]] = {
    "settings": tuple(SETTING),
    "summary": (*SETTING, *ATTACK, *UNITS),
    "differences": (*SETTING, "metric", "minuend", "subtrahend"),
    "comparisons": (*SETTING, "metric", "minuend", "subtrahend"),
    "explanation_metrics": (*SETTING, "explainer", "quantity", "measure", "against"),
    "private_explanations": ("dataset", "black_box", "experiment", "protocol", "as_published", "epsilon"),
}
"""The tables that have means over seeds, each with the columns that name its rows."""
FIGURE = "seeds"
MEAN = "mean"
"""The value of the column `seed` in rows over all seeds."""
VARIES = "varies"
"""The name of the strongest attack where seeds have different ones."""
RATES = ("auc", "tpr_at_fpr", "accuracy")
LARGEST = ("epsilon_spent", "epsilon_spent_rdp")
"""Columns of which the row over all seeds has the largest value, because a guarantee has to hold for every seed."""


@dataclass(frozen=True)
class OverSeeds:
    """An audit with `seeds`, and how its results are shown."""

    root: Path
    spec: ReportedAudit
    seeds: tuple[int, ...]

    @property
    def folders(self) -> list[Path]:
        """The folders of the seeds' results."""
        return [self.root / folder_of_seed(seed) for seed in self.seeds]

    @cached_property
    def results(self) -> Results:
        """The private explanations of all seeds."""
        from mia_audit.report.results import ResultsOverSeeds

        return ResultsOverSeeds(self.root, self.spec, folders=tuple(self.folders))

    @property
    def named(self) -> str:
        """The seeds, as named in sentences."""
        return f"{count(len(self.seeds), 'seed')} ({', '.join(map(str, self.seeds))})"


def tables_over_seeds(spec: ReportedAudit) -> list[str]:
    """List the tables over seeds that an audit has."""
    has = {
        **dict.fromkeys(("settings", "summary", "differences"), bool(spec.settings)),
        "comparisons": bool(spec.compare),
        "explanation_metrics": spec.explanation_metrics,
        "private_explanations": bool(spec.studies),
    }
    return [name for name in TABLES if has[name]]


def over_seeds_files(spec: ReportedAudit) -> list[str]:
    """List the tables and figures over seeds, as paths in the results."""
    figures = (f"figures/{FIGURE}.{kind}" for kind in spec.figures.formats)
    return [*(f"tables/{name}.csv" for name in tables_over_seeds(spec)), *figures]


def write(over: OverSeeds) -> None:
    """Write tables, figure, page, answer and provenance."""
    from mia_audit.report.figures.catalogue import paper_style, save
    from mia_audit.report.provenance import base_names, versions, write_page
    from mia_audit.report.tables.catalogue import to_csv
    from mia_audit.seeds import AUDIT_ONLY
    from mia_audit.storage import write_text
    from mia_audit.storage.digests import MANIFEST, sha256

    frames = {name: with_means(over, name) for name in tables_over_seeds(over.spec)}
    for name, frame in frames.items():
        write_text(over.root / "tables" / f"{name}.csv", to_csv(frame))
    answers = [read_object(folder / ANSWER, "the answer of a seed") for folder in over.folders]
    answer = answer_over(over, answers)
    with paper_style(over.spec.figures.font):
        save(_drawn(over, answer), over.root / "figures", FIGURE, _caption(over), over.spec.figures)
    read = [folder / name for folder in over.folders for name in (MANIFEST, "answer.json")]
    sources = {
        "audit": over.spec.audit,
        "seeds": list(over.seeds),
        "notice": AUDIT_ONLY,
        "config": base_names(over.spec.config),
        "config_sha256": over.spec.config_hash,
        "versions": versions(),
        "inputs_sha256": {path.relative_to(over.root).as_posix(): sha256(path) for path in read},
    }
    page = _page(over, answer, frames.get("comparisons", frames.get("differences")))
    write_page(over.root / "report.html", page, answer, sources, over.spec.config)


def with_means(over: OverSeeds, name: str) -> pl.DataFrame:
    """Return the rows of every seed's table, and below them a row over seeds for each of the table's names."""
    import polars as pl

    tables = [
        _of_seed(folder, name).select(pl.lit(str(seed)).alias("seed"), pl.lit(1, pl.Int32).alias("seeds"), pl.all())
        for seed, folder in zip(over.seeds, over.folders, strict=True)
    ]
    every = pl.concat(tables, how="diagonal_relaxed")
    keys = [key for key in TABLES[name] if key in every.columns]
    groups = list(every.group_by(keys, maintain_order=True))
    paired = "minuend" in keys
    confidence = 1 - (1 - over.spec.confidence) / max(len(groups), 1) if name == "comparisons" else over.spec.confidence
    rows = [
        _over(group, every.columns, confidence, clipped=not paired) | dict(zip(keys, key, strict=True))
        for key, group in groups
    ]
    return pl.concat([every, pl.DataFrame(rows, every.schema)])


def _of_seed(folder: Path, name: str) -> pl.DataFrame:
    """Return a seed's table; those of private explanations are in CSV alone."""
    import polars as pl

    from mia_audit.storage import read_frame

    path = folder / "tables" / f"{name}.parquet"
    return read_frame(path, name) if path.exists() else pl.read_csv(path.with_suffix(".csv"), infer_schema_length=None)


def _over(group: pl.DataFrame, columns: Sequence[str], confidence: float, clipped: bool) -> dict[str, Any]:
    import polars as pl

    row: dict[str, Any] = {"seed": MEAN, "seeds": len(group)}
    for column in columns:
        values, prefix = group[column], column.removesuffix(MEAN)
        if column.endswith(MEAN) and f"{prefix}low" in columns:
            row |= dict.fromkeys(f"{prefix}{part}" for part in PARTS)
            known = group.filter(values.is_not_null())
            if len(known) == len(group):
                ends = known.select(pl.col(f"{prefix}{end}").alias(end) for end in (MEAN, "low", "high"))
                value = mean_over_seeds([Estimate.from_numbers(numbers) for numbers in ends.to_dicts()], confidence)
                value = value.as_rate() if clipped and any(rate in prefix for rate in RATES) else value
                parts = {part: getattr(value, part) for part in PARTS}
                row |= {f"{prefix}{part}": None if math.isnan(one) else one for part, one in parts.items()}
        elif column in row or "future" in column:
            continue  # of one seed's targets
        elif column in LARGEST:
            row[column] = values.max()
        elif values.n_unique() == 1:
            row[column] = values[0]
        elif column.endswith(tuple(f"_{name}" for name in ATTACK)):
            row[column] = VARIES
    return row


def answer_over(over: OverSeeds, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of answer.json over seeds: that of an audit, with the seeds' own AUCs in every row."""
    groups: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for seed, answer in zip(over.seeds, answers, strict=True):
        for group in answer["groups"]:
            groups.setdefault(group["name"], []).append((seed, group))
    fprs = {answer["fpr"] for answer in answers}
    studies = [] if over.spec.settings else list(_studies(over))
    return {
        "title": over.spec.title,
        "seeds": list(over.seeds),
        "confidence": over.spec.confidence,
        "fpr": fprs.pop() if len(fprs) == 1 else None,
        "cautions": list(_cautions(over, answers)),
        "groups": studies or [_group(over, group) for group in groups.values()],
    }


def _cautions(over: OverSeeds, answers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield every caution once, with the numbers of the first seed that has it."""
    said: dict[str, tuple[str, dict[str, None]]] = {}
    for seed, answer in zip(over.seeds, answers, strict=True):
        for caution in answer["cautions"]:
            alike = re.sub(r"(?<![\w-])\d[\d.,]*", "", caution)  # keeps the names of settings
            said.setdefault(alike, (caution, {}))[1][str(seed)] = None
    for caution, seeds in said.values():
        first, *others = seeds
        also = f" (and with seed {joined(others)})" if others else ""
        yield f"With seed {first}{also}: {caution}"


def _studies(over: OverSeeds) -> Iterator[dict[str, Any]]:
    """Yield what was found in every study of private explanations."""
    from mia_audit.report.private import conclusions

    for name, conclusion in conclusions(over.results):
        yield {"name": name, "conclusion": f"Means over {over.named}. {conclusion}"}


def _group(over: OverSeeds, groups: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    by_setting: dict[str, list[Mapping[str, Any]]] = {}
    for seed, group in groups:
        for row in group["rows"]:
            by_setting.setdefault(row["setting"], []).append(row | {"seed": seed})
    rows = [_row(listed, over.spec.confidence) for listed in by_setting.values()]
    first, rates = groups[0][1], [group["base_rate"] for _, group in groups if group["base_rate"] is not None]
    return {
        "name": first["name"],
        "conclusion": " ".join(_conclusion(over, rows, first["members"])),
        "sentences": [{"term": "Intervals", "text": CONTAINED}],
        "members": first["members"],
        "base_rate": sum(rates) / len(rates) if rates else None,
        "rows": rows,
    }


CONTAINED = (
    "Every seed repeats the whole audit: the sample of records, the public part and the model started from, the training"
    " sets and the noise. Intervals are Student's over the seeds' means, and contain what varies between the models of a"
    " seed and between seeds. With two seeds they are 12.7 standard errors wide to each side, with three 4.3, with five 2.8."
)
CAPTION = (
    "AUC of the strongest attack: a thin line for every seed, and thick the mean over seeds with its interval. The dashed"
    " line is guessing."
)


STUDIED = (
    "Every seed repeats the whole study: the sample of records, the black boxes, the queries and the noise. Intervals are"
    " Student's over the seeds' means of their repetitions."
)


def _caption(over: OverSeeds) -> str:
    """Return the caption of the figure over seeds."""
    from mia_audit.report.figures.private import loss

    return CAPTION if over.spec.settings else f"{loss.caption} Means over seeds with intervals."


def _row(rows: Sequence[Mapping[str, Any]], confidence: float) -> dict[str, Any]:
    attacks: dict[str, Any] = {}
    for channel in dict.fromkeys(channel for row in rows for channel in row["attacks"]):
        by_seed = {row["seed"]: row["attacks"][channel] for row in rows if channel in row["attacks"]}
        listed = list(by_seed.values())
        auc = mean_over_seeds([Estimate.from_numbers(attack["auc"]) for attack in listed], confidence).as_rate()
        names = {name: {attack[name] for attack in listed} for name in ("attack", "signal")}
        attacks[channel] = {
            **{name: found.pop() if len(found) == 1 else VARIES for name, found in names.items()},
            "beats_guessing": not silence(auc),
            "auc": auc.numbers,
            "by_seed": {str(seed): attack["auc"][MEAN] for seed, attack in by_seed.items()},
        }
    accuracies = {name: [Estimate.from_numbers(row[name]) for row in rows if row[name]] for name in ACCURACIES}
    return {
        "setting": rows[0]["setting"],
        "epsilon": rows[0]["epsilon"],
        "attacks": attacks,
        **{
            name: mean_over_seeds(known, confidence).as_rate().numbers if known else None
            for name, known in accuracies.items()
        },
    }


def _conclusion(over: OverSeeds, rows: Sequence[Mapping[str, Any]], members: str) -> Iterator[str]:
    """Yield a sentence per channel: the settings in which it leaks on average over seeds, and the others."""
    from mia_audit.report.findings import SUBJECTS

    start = f"Over {over.named}, "
    for channel in SUBJECTS:
        known = [(row["setting"], row["attacks"][channel]) for row in rows if channel in row["attacks"]]
        leaking = [f"{name} (AUC {fixed(one['auc'][MEAN])})" for name, one in known if one["beats_guessing"]]
        silent = [name for name, one in known if not one["beats_guessing"]]
        subject = upper_first(start + SUBJECTS[channel])
        if leaking:
            rest = f". Not distinguishable from guessing: {joined(silent)}" if silent else ""
            yield f"{subject} reveal {members}: {joined(leaking)}{rest}."
        elif silent:
            yield f"{subject} reveal nothing measurable: {joined(silent)}."
        start = "" if known else start


def _drawn(over: OverSeeds, answer: Mapping[str, Any]) -> Figure:
    """Draw the AUCs of every group's settings, or the losses of explanations where nothing is attacked."""
    from mia_audit.report.figures.catalogue import GUESSING, errorbars, name_places, panel_grid, shared_legend
    from mia_audit.report.figures.private import loss

    if not over.spec.settings:
        drawn = loss(over.results, Findings(None, []))
        assert not isinstance(drawn, str)
        return drawn

    groups = answer["groups"]
    figure, panels = panel_grid(1, len(groups), 2.2, shared=True, names=max(len(group["rows"]) for group in groups))
    for axes, group in zip(panels.flat, groups, strict=True):
        axes.axhline(0.5, **GUESSING)
        for number, channel in enumerate(TITLES):
            rows = [
                (place, row["attacks"][channel]) for place, row in enumerate(group["rows"]) if channel in row["attacks"]
            ]
            colour = f"C{number}"
            for seed in map(str, answer["seeds"]):
                values = [one["by_seed"].get(seed, math.nan) for _, one in rows]
                axes.plot([place for place, _ in rows], values, color=colour, linewidth=0.5, alpha=0.6)
            means = [(float(place), Estimate.from_numbers(one["auc"])) for place, one in rows]
            axes.plot([place for place, _ in means], [mean.mean for _, mean in means], color=colour, linewidth=1.8)
            errorbars(axes, means, colour, "o", TITLES[channel])
        name_places(axes, [row["setting"] for row in group["rows"]])
        axes.set_title(group["name"])
        axes.set_ylabel("AUC")
    shared_legend(figure, panels)
    return figure


def _page(over: OverSeeds, answer: Mapping[str, Any], differences: pl.DataFrame | None) -> str:
    from markupsafe import Markup

    from mia_audit.report.answer import base_rate_sentence
    from mia_audit.report.figures.catalogue import paper_style
    from mia_audit.report.page import Sheet, forest, page_template, policy, style
    from mia_audit.report.private import over_seeds_section
    from mia_audit.report.provenance import versions
    from mia_audit.sanitise import html

    css, sheet = style(), Sheet()
    with paper_style(over.spec.figures.font):
        panel = sheet.add(_drawn(over, answer), "AUC by setting and seed" if over.spec.settings else "loss by ε")
    return page_template("mia_audit.report", "over_seeds.html.j2", html).render(
        title=over.spec.title,
        version=versions().get("mia-audit", ""),
        cautions=answer["cautions"],
        groups=[
            {**group, "table": forest(group["rows"]), "base_rate": base_rate_sentence(group["base_rate"])}
            if "rows" in group
            else group
            for group in answer["groups"]
        ],
        figure={"name": FIGURE, "caption": _caption(over), "panels": [panel]},
        contained=CONTAINED if over.spec.settings else STUDIED,
        differences=None if differences is None else _differences_layout(over, differences),
        private_studies=over_seeds_section(over.results),
        folders=[folder.name for folder in over.folders],
        glyphs=sheet.glyphs,
        policy=policy(css),
        style=Markup(css),
    )


def _differences_layout(over: OverSeeds, frame: pl.DataFrame) -> Layout | None:
    """Return the differences over seeds; None if there are none."""
    from mia_audit.report.tables.explanations import DIFFERENCE

    columns = [*setting_columns(over.spec.settings), *DIFFERENCE]
    rows = frame.filter(seed=MEAN).drop_nulls(MEAN)
    caption = "Differences, paired within every seed: means over seeds with intervals."
    return laid_out(columns, rows.iter_rows(named=True), caption).condensed() if len(rows) else None
