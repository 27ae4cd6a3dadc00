"""A paper's results on single models, for every setting of finished audits: confusion matrices and membership probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.report.text.formatting import fixed, protection
from mia_audit.storage import read_frame

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

ATTACK, SIGNAL = "shadow-classifier", "confidence"
"""The attack whose probabilities are drawn."""

DRAWN = 400
"""Number of the target's members, and of its non-members, that are drawn: the first ones in the pool."""

CAPTION = (
    "Probability of membership by the shadow classifier on the confidence: records of one target, a cell each, members left of the "
    "line, non-members right of it. AUC: mean over all targets."
)


def confusion(audits: Sequence[Results]) -> pl.DataFrame:
    """Return confusion matrices over the records that a model was not trained on, a row per true and predicted class.

    `share` is the share of the true class's records with that prediction, as mean and standard deviation over models;
    settings without signals, and so without predictions, have no rows.
    """
    place = ("dataset", "architecture", "mechanism", "epsilon", "label", "predicted")
    schema: dict[str, Any] = dict.fromkeys(place[:4], pl.String) | dict.fromkeys((*place[4:], "models"), pl.Int32)
    tables = [
        frame.with_columns(pl.lit(getattr(setting, name)).alias(name) for name in place[:3]).with_columns(
            epsilon=pl.lit(setting.reported_epsilon)
        )
        for results in audits
        for setting in results.spec.settings
        if (frame := _confusion(results.root / setting.path / "signals.parquet")) is not None
    ]
    schema |= dict.fromkeys(("share_mean", "share_sd"), pl.Float64)
    return pl.concat(
        [pl.DataFrame(schema=schema), *(table.select(list(schema)).cast(pl.Schema(schema)) for table in tables)]
    )


def _confusion(path: Any) -> pl.DataFrame | None:
    if not path.exists():
        return None
    signals = read_frame(path, "signals").select("shadow", "member", "label", "predicted").filter(~pl.col("member"))
    counted = signals.group_by("shadow", "label", "predicted").len()
    counted = counted.with_columns(share=pl.col("len") / pl.col("len").sum().over("shadow", "label"))
    models = signals.group_by("label").agg(models=pl.col("shadow").n_unique())  # models tested on the class
    shares = counted.group_by("label", "predicted").agg("share").join(models, on="label").sort("label", "predicted")
    padded = [
        np.array([*row["share"], *[0.0] * (row["models"] - len(row["share"]))])  # 0: mistakes never made
        for row in shares.iter_rows(named=True)
    ]
    return shares.with_columns(
        share_mean=pl.Series([float(values.mean()) for values in padded], dtype=pl.Float64),
        share_sd=pl.Series(
            [float(values.std(ddof=1)) if len(values) > 1 else None for values in padded], dtype=pl.Float64
        ),
    )


def membership_maps(results: Results) -> Iterator[tuple[str, Figure]]:
    """Yield a figure, with its name, for every attacked data set and architecture of an audit, with a panel per setting."""
    known = [setting for setting in results.spec.settings if _auc(results, setting) is not None]
    for group in dict.fromkeys(setting.group for setting in known):
        yield "_".join(group), _figure(results, [setting for setting in known if setting.group == group])


def _figure(results: Results, settings: Sequence[Any]) -> Figure:
    from mia_audit.report.figures.layout import panel_grid

    figure, cells = panel_grid(1, len(settings), height=1.5)
    for axes, setting in zip(cells[0], settings, strict=True):
        scored = results.scored(setting, ATTACK, SIGNAL, "none")
        drawn = membership_grid(scored.score[:, 0], scored.member[:, 0])
        image = axes.imshow(drawn, vmin=0, vmax=1, cmap="coolwarm", aspect="equal", interpolation="nearest")
        axes.axvline(drawn.shape[1] / 2 - 0.5, color="black", linewidth=0.8)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{protection(setting)}\nAUC {fixed(float(_auc(results, setting) or 0.0))}", fontsize=5)
    figure.colorbar(image, ax=list(cells[0]), label="probability of membership", shrink=0.8)
    return figure


def membership_grid(
    score: Float[np.ndarray, " N"], member: Float[np.ndarray, " N"], drawn: int = DRAWN
) -> Float[np.ndarray, "H W"]:
    """Return probabilities from logits on a grid: members in the left half, as many non-members in the right half; NaN in unused cells."""
    from scipy.special import expit

    count = min(drawn, int(member.sum()), int((~member).sum()))
    width = max(1, int(np.ceil(np.sqrt(count / 2))))
    halves = []
    for inside in (True, False):
        cells = np.full(-(-count // width) * width, np.nan)
        cells[:count] = expit(score[member == inside][:count].astype(np.float64))
        halves.append(cells.reshape(-1, width))
    return np.hstack(halves)


def _auc(results: Results, setting: Any) -> float | None:
    rows = results.metrics[results.spec.settings.index(setting)].filter(
        pl.col("attack") == ATTACK, pl.col("signal") == SIGNAL, ~pl.col("null_control")
    )
    return float(rows["auc"].to_numpy().mean()) if len(rows) else None
