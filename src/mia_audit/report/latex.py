"""The tables as LaTeX: booktabs, three decimals, no float around them, so that a paper can \\input them."""

from collections.abc import Sequence

import polars as pl

from mia_audit.report.results import Spec
from mia_audit.report.words import at_least, at_most, rate

ESCAPES = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "×": r"$\times$",
        "ε": r"$\varepsilon$",
        "\u00a0": "~",
    }
)
SETTING = ("dataset", "architecture", "mechanism")
CHANNELS = {"output": "Outputs", "explanation": "Explanations", "joint": "Both together", "signal": "Signals"}


def escape(text: str) -> str:
    """Write text so that LaTeX prints it as it is."""
    return text.translate(ESCAPES)


def _promise(epsilon: float | None) -> str:
    return number(epsilon) if epsilon is None or epsilon == float("inf") else at_most(epsilon)


def _shown(epsilon: float | None) -> str:
    return number(epsilon) if epsilon is None else at_least(epsilon).replace("≥", r"$\geq$")


def number(value: float | None, decimals: int = 3) -> str:
    """Write a number with so many decimals, minus signs and ∞ in maths; nothing known is a dash."""
    if value is None:
        return "--"
    if value == float("inf"):
        return r"$\infty$"
    text = f"{value:.{decimals}f}"
    return f"${text}$" if text.startswith("-") else text


def scientific(value: float | None) -> str:
    """Write a δ: a power of ten where it is one."""
    if value is None:
        return "--"
    mantissa, exponent = f"{value:.2e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".")
    return rf"$10^{{{int(exponent)}}}$" if digits == "1" else rf"${digits}\cdot10^{{{int(exponent)}}}$"


def spread(mean: float | None, sd: float | None, unresolvable: bool = False) -> str:
    """Write mean ± standard deviation."""
    if mean is None:
        return "not resolvable" if unresolvable else "--"
    return number(mean) if sd is None else rf"{number(mean)} $\pm$ {number(sd)}"


def interval(low: float | None, high: float | None) -> str:
    """Write an interval in brackets."""
    return "" if low is None else f"[{number(low)}, {number(high)}]"


def tabular(
    columns: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    comments: Sequence[str],
    long: bool = False,
    footnotes: Sequence[str] = (),
) -> str:
    """Lay out a table; `head` are finished lines, the cells of `rows` and the `footnotes` below them are LaTeX already."""
    environment = "longtable" if long else "tabular"
    packages = r"\usepackage{booktabs,longtable}" if long else r"\usepackage{booktabs}"
    top = [*head, r"\midrule", *([r"\endhead"] if long else [])]
    body = [f"{' & '.join(row)} \\\\" for row in rows]
    below = [rf"\multicolumn{{{len(columns)}}}{{l}}{{\footnotesize {note}}} \\" for note in footnotes]
    bottom = [r"\bottomrule", *below, rf"\end{{{environment}}}"]
    notes = [f"% {comment}" for comment in [f"Needs {packages}.", *comments]]
    return "\n".join([*notes, rf"\begin{{{environment}}}{{{columns}}}", r"\toprule", *top, *body, *bottom]) + "\n"


def render(name: str, frame: pl.DataFrame, spec: Spec) -> str:
    """Write one of the tables of `mia_audit.report.tables` as LaTeX."""
    return WRITERS[name](frame, spec)


def _level(spec: Spec) -> str:
    return f"{spec.confidence * 100:g} % Student-t intervals over targets in brackets."


def _setting_cells(row: dict[str, object]) -> list[str]:
    epsilon = r"$\infty$" if row["epsilon"] == "inf" else escape(str(row["epsilon"]))
    return [*(escape(str(row[name])) for name in SETTING), epsilon]


def _settings(frame: pl.DataFrame, spec: Spec) -> str:
    present = [prefix for prefix in CHANNELS if f"{prefix}_attack" in frame.columns]
    fpr = frame["fpr"].drop_nulls().first()
    at = escape(f"TPR at {rate(float(fpr))} FPR") if isinstance(fpr, float) else "TPR"
    groups = "".join(rf" & \multicolumn{{2}}{{c}}{{{CHANNELS[prefix]}}}" for prefix in present)
    rules = "".join(rf" \cmidrule(lr){{{10 + 2 * i}-{11 + 2 * i}}}" for i in range(len(present)))
    second = [
        "Data set",
        "Architecture",
        "Mechanism",
        r"$\varepsilon$",
        r"$\varepsilon$ spent",
        r"$\varepsilon$ shown",
        r"$\delta$",
        "Train acc.",
        "Test acc.",
    ]
    head = [
        rf"\multicolumn{{9}}{{l}}{{}}{groups} \\",
        rules.strip(),
        " & ".join([*second, *(["AUC", at] * len(present))]) + r" \\",
    ]
    rows = []
    for row in frame.iter_rows(named=True):
        cells = [*_setting_cells(row), _promise(row["epsilon_spent"]), _shown(row["epsilon_shown"])]
        cells.append(scientific(row["epsilon_shown_delta"]))
        cells += [spread(row[f"{name}_mean"], row[f"{name}_sd"]) for name in ("train_accuracy", "test_accuracy")]
        for prefix in present:
            known = row[f"{prefix}_attack"] is not None
            for metric in ("auc", "tpr_at_fpr"):
                mean, _, low, high = (row[f"{prefix}_{metric}_{part}"] for part in ("mean", "sd", "low", "high"))
                shown = number(mean) if mean is not None or not known else "not resolvable"
                cells.append(f"{shown} {interval(low, high)}".strip())
        rows.append(cells)
    comments = [
        "Accuracies: mean and standard deviation over shadow models. The strongest attack of each kind, chosen by its mean AUC.",
        f"Epsilon shown: lower bound of all attacks together at {spec.confidence * 100:g} % confidence, at the delta beside it.",
        _level(spec),
        *_accounting(frame),
        *(f"Left out of row {row}: {why}." for row, why in enumerate(frame["left_out"], start=1) if why),
    ]
    return tabular(
        "llll" + "r" * 5 + "l" * (2 * len(present)),
        head,
        rows,
        comments,
        footnotes=[*_no_guarantees(frame), *_constants(frame)],
    )


def _no_guarantees(frame: pl.DataFrame) -> list[str]:
    """Say of every mechanism that promises nothing why its ε is none."""
    if "no_guarantee" not in frame.columns:
        return []
    told = frame.select("mechanism", "no_guarantee").drop_nulls().unique(maintain_order=True).rows()
    return [escape(f"{mechanism}: ε none, {why}.") for mechanism, why in told]


def _constants(frame: pl.DataFrame) -> list[str]:
    """Say of every data set whose constants were taken from its records what comes on top of every ε."""
    if "constants_epsilon" not in frame.columns:
        return []
    told = frame.select("dataset", "constants_epsilon", "constants_delta").drop_nulls().unique(maintain_order=True)
    return [
        rf"{escape(dataset)}: its constants spent $\varepsilon$ = {at_most(epsilon)} at $\delta$ = {scientific(delta)} besides."
        for dataset, epsilon, delta in told.rows()
    ]


def _accounting(frame: pl.DataFrame) -> list[str]:
    private = frame.filter(pl.col("accountant").is_not_null())
    kinds = private.select("accountant", "sampling", "clipping").unique(maintain_order=True).rows()
    return [
        f"Epsilon spent: the largest over shadow models, {accountant} accountant, {sampling or 'unknown'} sampling, {clipping} clipping."
        for accountant, sampling, clipping in kinds
    ]


def _summary(frame: pl.DataFrame, spec: Spec) -> str:
    metrics = [
        "auc",
        *(
            name.removesuffix("_mean")
            for name in frame.columns
            if name.startswith("tpr_at_fpr_") and name.endswith("_mean")
        ),
    ]
    titles = [
        "AUC",
        *(escape(f"TPR at {rate(float(name.removeprefix('tpr_at_fpr_')))}") for name in metrics[1:]),
    ]
    head = [
        " & ".join(["Data set", "Architecture", "Mechanism", r"$\varepsilon$", "Attack", "Signal", "Variance", *titles])
        + r" \\"
    ]
    rows = [
        [
            *_setting_cells(row),
            *(escape(row[name]) for name in ("attack", "signal", "variance")),
            *(spread(row[f"{name}_mean"], row[f"{name}_sd"], name != "auc") for name in metrics),
        ]
        for row in frame.iter_rows(named=True)
    ]
    comments = [
        "Mean and standard deviation over targets; TPR at a false-positive rate, which a pool of too few non-members does not resolve."
    ]
    return tabular("l" * 7 + "r" * len(metrics), head, rows, comments, long=True)


def _differences(frame: pl.DataFrame, spec: Spec) -> str:
    head = [
        " & ".join(
            [
                "Data set",
                "Architecture",
                "Mechanism",
                r"$\varepsilon$",
                "Metric",
                "Minuend",
                "Subtrahend",
                "Difference",
                "",
            ]
        )
        + r" \\"
    ]
    rows = [
        [
            *_setting_cells(row),
            *(escape(row[name]) for name in ("metric", "minuend", "subtrahend")),
            number(row["mean"]),
            interval(row["low"], row["high"]),
        ]
        for row in frame.iter_rows(named=True)
    ]
    return tabular(
        "l" * 7 + "rl",
        head,
        rows,
        ["Paired over the same targets (accuracy: over the same shadow models).", _level(spec)],
    )


def _null_control(frame: pl.DataFrame, spec: Spec) -> str:
    head = [
        " & ".join(
            ["Data set", "Architecture", "Mechanism", r"$\varepsilon$", "Attack", "Signal", "Variance", "AUC", ""]
        )
        + r" \\"
    ]
    rows = [
        [
            *_setting_cells(row),
            *(escape(row[name]) for name in ("attack", "signal", "variance")),
            spread(row["auc_mean"], row["auc_sd"]),
            interval(row["auc_low"], row["auc_high"]),
        ]
        for row in frame.iter_rows(named=True)
    ]
    return tabular(
        "l" * 7 + "rl", head, rows, ["The same attacks against permuted membership.", _level(spec)], long=True
    )


def _interpretability(frame: pl.DataFrame, spec: Spec) -> str:
    titles = ["Data set", "Architecture", "Mechanism", r"$\varepsilon$", "Explainer", "Quantity", "Measure", "Against"]
    rows = [
        [
            *_setting_cells(row),
            *(escape(row[name] or "--") for name in ("explainer", "quantity", "measure", "against")),
            spread(row["value_mean"], row["value_sd"]),
            interval(row["value_low"], row["value_high"]),
        ]
        for row in frame.iter_rows(named=True)
    ]
    comments = ["Mean over records, then mean and standard deviation over shadow models.", _level(spec)]
    return tabular("l" * 8 + "rl", [" & ".join([*titles, "Value", ""]) + r" \\"], rows, comments, long=True)


def _curves(frame: pl.DataFrame, spec: Spec) -> str:
    titles = ["Data set", "Architecture", "Mechanism", r"$\varepsilon$", "Explainer", "Quantity", "Measure"]
    shares = frame["share"].unique().sort().to_list()
    rows = [
        [
            *_setting_cells(first),
            *(escape(first[name]) for name in ("explainer", "quantity", "measure")),
            *(number(dict(zip(curve["share"], curve["value_mean"], strict=True)).get(share)) for share in shares),
        ]
        for _, curve in frame.group_by(*SETTING, "epsilon", "explainer", "quantity", "measure", maintain_order=True)
        for first in [curve.row(0, named=True)]
    ]
    comments = [
        "The class's probability when so large a share of the coordinates is removed (deletion) or put back (insertion):",
        "mean over records, then over shadow models.",
    ]
    head = [" & ".join([*titles, *(number(share, 2) for share in shares)]) + r" \\"]
    return tabular("l" * 7 + "r" * len(shares), head, rows, comments, long=True)


WRITERS = {
    "settings": _settings,
    "summary": _summary,
    "differences": _differences,
    "null_control": _null_control,
    "interpretability": _interpretability,
    "curves": _curves,
}
"""Tables by name, each with the function that lays it out."""
