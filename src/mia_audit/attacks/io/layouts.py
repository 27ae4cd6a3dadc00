"""Read score matrices of papers and of other audit tools into one table of signals; nothing in them is executed."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mia_audit.arrays import check_logits, class_numbers
from mia_audit.attacks.io.matrices import as_membership, check_order, read_matrix
from mia_audit.attacks.io.parquet import LEAST_MODELS, QUERY, check_finite, check_membership, check_values
from mia_audit.errors import UserError, suggest
from mia_audit.signals.families import confidence_from_loss, confidence_from_probability, loss_from_probability
from mia_audit.signals.name import read_signal
from mia_audit.storage import write_table
from mia_audit.storage.unpacked import NOT_NUMPY, read_foreign

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Bool, Float, Int

    Layout = Callable[[Path, Mapping[str, str], Path | None], "PublishedMatrices"]


def confidence_of(logits: Float[np.ndarray, "... N Q C"], labels: Int[np.ndarray, " N"], where: str) -> np.ndarray:
    """Return z_y − logsumexp of the other logits, [..., N, Q] (Carlini et al. 2022); UserError for labels outside the classes."""
    classes = logits.shape[-1]
    if classes < 2:
        raise UserError(
            f"{where}: {classes} logit per record; expected one for each of at least two classes, in the last axis"
        )
    class_numbers(labels, where, classes)
    values = np.asarray(logits, dtype=np.float64)
    place = np.broadcast_to(labels[:, None, None], (*values.shape[:-1], 1))
    own = np.take_along_axis(values, place, axis=-1)[..., 0]
    others = values.copy()
    np.put_along_axis(others, place, -np.inf, axis=-1)
    highest = others.max(axis=-1)
    with np.errstate(invalid="ignore"):
        rest: np.ndarray = highest + np.log(np.exp(others - highest[..., None]).sum(axis=-1))
    return np.asarray(own - rest)


def over_shifts(logits: Float[np.ndarray, "N S Q C"], labels: Int[np.ndarray, " N"], where: str) -> np.ndarray:
    """Return the confidence of probabilities averaged over the second axis, [N, Q], as in score.py of Carlini et al."""
    check_logits(logits, where)
    values = np.asarray(logits, dtype=np.float64)
    values = values - values.max(axis=-1, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    with np.errstate(divide="ignore"):
        mean = np.log(np.exp(values).mean(axis=1))
    return confidence_of(mean, labels, where)


def check_labels(labels: np.ndarray, records: int, where: str, longer: bool = False) -> Int[np.ndarray, " N"]:
    """Return labels as whole numbers, one for each record; UserError for anything else. `longer` allows labels of further records at the end."""
    flat = labels.ravel()
    if max(labels.shape, default=0) < labels.size:
        shape = " × ".join(str(size) for size in labels.shape)
        raise UserError(f"{where}: {shape} labels; expected one whole number per record")
    flat = class_numbers(flat, where)
    if len(flat) < records or (len(flat) > records and not longer):
        raise UserError(f"{where}: {len(flat)} labels for {records} records; expected one whole number per record")
    return flat[:records]


PREFIXES = {
    "indices": "member",
    "losses": "loss",
    "variances": "variance",
    "norms_l1": "l1",
    "norms_l2": "l2",
    "norms_linf": "linf",
}
"""The content of the folders of the per-model layout, by the beginning of their names."""


@dataclass(frozen=True)
class PublishedMatrices:
    """Membership and signals, all [N records, K models]."""

    member: Bool[np.ndarray, "N K"]
    signals: dict[str, Float[np.ndarray, "N K"]]


def read_per_model_csv(root: Path, where: Mapping[str, str], labels: Path | None = None) -> PublishedMatrices:
    """Read the layout of Huang et al. 2024: {kind}_{dataset}/{key=value_…}/{model}.csv, one column of records per model.

    `where` keeps only folders with the given values (`dataset` is one of the keys). A membership that fits none of the
    signals is left out. The remaining folders must belong to one setting, with one membership and one folder per signal;
    otherwise a UserError lists the settings.
    """
    folders_of = _folders(root, where)
    if "member" not in folders_of:
        raise UserError(
            f"{root}: no indices_{{dataset}}/{{key=value}}/ folder{_said(where)}; expected the per-model-csv layout"
        )
    signals_of = [parameters for name, found in folders_of.items() if name != "member" for parameters, _ in found]
    fitting = [one for one in folders_of["member"] if any(_agree(one[0], parameters) for parameters in signals_of)]
    folders_of["member"] = fitting or folders_of["member"]
    for name, matching in folders_of.items():
        if len(matching) > 1:
            listed = "; ".join(folder.relative_to(root).as_posix() for _, folder in matching)
            raise UserError(f"{root}: several settings for {name} ({listed}); choose one with --where KEY=VALUE")
    folders = {name: matching[0][1] for name, matching in folders_of.items()}
    models = _models(folders["member"])
    indices = _matrix(folders.pop("member"), models)
    if not np.isin(indices, (0, 1)).all():
        raise UserError(f"{root}: the indices_* files hold values other than 0 and 1; expected membership, 0 or 1")
    member = indices == 1
    check_membership(member, str(root))
    signals = {name: _signal(name, folder, models, len(member)) for name, folder in folders.items()}
    if not signals:
        raise UserError(
            f"{root}: no signals{_said(where)}; expected {', '.join(f'{kind}_*' for kind in PREFIXES)} folders"
        )
    if "loss" in signals:
        signals = {"loss": signals.pop("loss")} | signals
        signals = {"loss": signals["loss"], "confidence": confidence_from_loss(signals["loss"])} | signals
    return PublishedMatrices(member, signals)


def write_signals(path: Path, published: PublishedMatrices, where: str) -> None:
    """Write signals.parquet: shadow, record, member and a float32 column per signal, one row group per model.

    Raises UserError, which names the source `where`, for values that are not finite in single precision.
    """
    for name, values in published.signals.items():
        check_finite(values, f"{where}: {name}")
        _refuse(np.abs(values) > np.finfo(np.float32).max, values, f"{where}: {name}")
    records, models = published.member.shape
    order = pa.array(np.arange(records, dtype=np.int32))

    def tables() -> Iterable[pa.Table]:
        for model in range(models):
            columns = {
                name: pa.array(values[:, model].astype(np.float32)) for name, values in published.signals.items()
            }
            yield pa.table(
                {
                    "shadow": pa.array(np.full(records, model, dtype=np.int32)),
                    "record": order,
                    "member": pa.array(published.member[:, model]),
                    **columns,
                }
            )

    write_table(path, iter(tables()), "signals", records * models)


def parse_where(texts: Iterable[str]) -> dict[str, str]:
    """Read the values of `--where KEY=VALUE`."""
    where = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"--where {text}: expected KEY=VALUE")
        where[key] = value
    return where


def _folders(root: Path, where: Mapping[str, str]) -> dict[str, list[tuple[dict[str, str], Path]]]:
    """Return the folders of the membership and of every signal, each with its parameters; UserError for a key that no folder has."""
    folders_of: dict[str, list[tuple[dict[str, str], Path]]] = {}
    keys: set[str] = set()
    for folder in sorted(path for path in root.glob("*/*") if path.is_dir()):
        kind = next((kind for kind in PREFIXES if folder.parent.name.startswith(f"{kind}_")), None)
        if kind is None:
            continue
        parameters = {"dataset": folder.parent.name.removeprefix(f"{kind}_")} | _parameters(folder.name)
        keys |= parameters.keys()
        if all(parameters.get(key, value) == value for key, value in where.items()):
            name = PREFIXES[kind]
            name = name if kind in ("indices", "losses") else f"{parameters.get('type', 'attribution')}_{name}"
            folders_of.setdefault(name, []).append((parameters, folder))
    for key in where:
        if keys and key not in keys:
            raise UserError(
                f"--where {key}={where[key]}: no folder of {root} has this key; {suggest(key, sorted(keys))}"
            )
    return folders_of


def _agree(one: dict[str, str], other: dict[str, str]) -> bool:
    """Return whether two folders belong to one setting: the keys that both have are equal."""
    return all(other.get(key, value) == value for key, value in one.items())


def _parameters(name: str) -> dict[str, str]:
    """Split key=value_key=value, where values may contain underscores."""
    parameters: dict[str, str] = {}
    key = ""
    for word in name.split("_"):
        head, equals, tail = word.partition("=")
        if equals:
            key, parameters[head] = head, tail
        elif key:
            parameters[key] += f"_{word}"
    return parameters


def _said(where: Mapping[str, str]) -> str:
    return " with " + ", ".join(f"{key}={value}" for key, value in where.items()) if where else ""


def _models(folder: Path) -> list[int]:
    models = sorted(int(path.stem) for path in folder.glob("*.csv") if path.stem.isdigit())
    if len(models) < 4:
        raise UserError(f"{folder}: {len(models)} models; expected at least 4 files {{model}}.csv")
    return models


def _signal(name: str, folder: Path, models: list[int], records: int) -> Float[np.ndarray, "N K"]:
    """Read a signal; UserError for values beyond single precision, in which signals are stored."""
    values = _matrix(folder, models, records)
    check_values(values, read_signal(name), str(folder))
    room, sizes = np.finfo(np.float32), np.abs(values)
    _refuse((sizes > room.max) | ((sizes < room.tiny) & (sizes > 0)), values, str(folder))
    return values


def _refuse(outside: Bool[np.ndarray, "N K"], values: Float[np.ndarray, "N K"], where: str) -> None:
    """Raise UserError, which names the first cell, if any is outside single precision."""
    if outside.any():
        record, model = np.argwhere(outside)[0]
        room = np.finfo(np.float32)
        raise UserError(
            f"{where}: {values[record, model]:g} at model {model}, record {record}; signals are stored in single precision, "
            f"whose absolute values range from {room.tiny:.0e} to {room.max:.0e}: give the signal in another unit"
        )


def _matrix(folder: Path, models: list[int], records: int | None = None) -> Float[np.ndarray, "N K"]:
    """Read one file per model, each with a header line and one number per record."""
    columns = []
    for model in models:
        path = folder / f"{model}.csv"
        if not path.is_file():
            raise UserError(f"{path}: no such file, but the indices_* files list model {model}")
        try:
            with warnings.catch_warnings(action="ignore"):  # about an empty file, which is an error below
                columns.append(np.loadtxt(path, skiprows=1, ndmin=1, encoding="utf-8"))
        except (ValueError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: not a column of numbers: {' '.join(str(error).split())}") from None
        expected = records if records is not None else len(columns[0])
        if columns[-1].ndim > 1:
            raise UserError(f"{path}: {columns[-1].shape[1]} columns; expected one number per record")
        if columns[-1].shape != (expected,) or not expected:
            raise UserError(f"{path}: {columns[-1].shape[0]} records, but {expected} were expected")
    matrix = np.stack(columns).T
    check_finite(matrix, str(folder))
    return matrix


def carlini(root: Path, where: Mapping[str, str], labels: Path | None) -> PublishedMatrices:
    """Read the layout of Carlini et al. 2022: `experiment-*/keep.npy` with the last of `scores/*.npy`, or of `logits/*.npy` and y_train.npy.

    Scores are the confidence, [N, queries]. Logits are [N, C], [N, queries, C] or [N, shifts, queries, C];
    probabilities are averaged over shifts, as in their score.py.
    """
    folders = sorted((path.parent for path in root.glob("exp*/keep.npy")), key=lambda path: _natural(path.name))
    _enough(folders, root, "experiment-*/keep.npy")
    parts = [_last(folder / "scores") or _last(folder / "logits") for folder in folders]
    if None in parts:
        raise UserError(f"{folders[parts.index(None)]}: no .npy files in scores/ or logits/; expected one per epoch")
    files = [part for part in parts if part is not None]
    if labels and not any(file.parent.name == "logits" for file in files):
        raise UserError(f"--labels: {root} has scores, which need no labels; leave --labels out")
    values = [_carlini_confidence(file, root, labels) for file in files]
    confidence = _stacked(values, files)
    memberships = [folder / "keep.npy" for folder in folders]
    keep = [as_membership(_array(file).ravel(), str(file))[: len(confidence)] for file in memberships]
    if short := [folder for folder, kept in zip(folders, keep, strict=True) if len(kept) < len(confidence)]:
        raise UserError(f"{short[0] / 'keep.npy'}: fewer records than the {len(confidence)} that have scores")
    return _published(np.stack(keep, axis=1), confidence=confidence, where=root)


def privacy_meter(root: Path, where: Mapping[str, str], labels: Path | None) -> PublishedMatrices:
    """Read Privacy Meter's layout: `models/memberships.npy` (models × records) and `signals/{algorithm}_signals.npy`.

    Signals for RMIA are probabilities of the label; signals for LOSS are losses. `*_pop.npy`, the same signals of
    records that no model was trained on, is not read.
    """
    places = [root / "memberships.npy", root / "models" / "memberships.npy"]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise UserError(f"{root}: no memberships.npy, here or in models/; expected the log_dir of Privacy Meter")
    files = sorted(path for path in (root / "signals").glob("*.npy") if not path.stem.endswith("_pop"))
    signals: dict[str, np.ndarray] = {}
    for path in files:
        if (kind := next((name for word, name in METER.items() if path.stem.startswith(word)), None)) is not None:
            signals[kind] = _array(path)
    if not signals:
        raise UserError(f"{root / 'signals'}: no {' or '.join(f'{word}…signals.npy' for word in METER)}")
    kind, values = next((name, signals[name]) for name in ("probability", "loss") if name in signals)
    if values.ndim != 2:
        raise UserError(f"{root / 'signals'}: {values.ndim} axes; expected records × models")
    member = as_membership(oriented(_array(file), values.shape, str(file)), str(file))
    return _derived(member, kind, values.astype(np.float64), root)


METER = {"rmia": "probability", "softmax": "probability", "loss": "loss"}
"""The kind of signal in Privacy Meter's files, by the beginning of their names."""


def privacyguard(root: Path, where: Mapping[str, str], labels: Path | None) -> PublishedMatrices:
    """Read PrivacyGuard's frames for RMIA, as CSV or Parquet: `df_train_merge` and `df_test_merge`.

    Their columns are the target's `score_orig`, and `score_ref_{i}` and `member_ref_{i}` of the reference models; scores are
    probabilities.
    """
    frames = [_frame(root, name) for name in ("df_train_merge", "df_test_merge")]
    numbers = sorted(int(match[1]) for name in frames[0].columns if (match := re.fullmatch(r"score_ref_(\d+)", name)))
    _enough([0, *numbers], root, "score_orig and score_ref_{i}")
    scores, members = ["score_orig", *(f"score_ref_{i}" for i in numbers)], [f"member_ref_{i}" for i in numbers]
    for frame in frames:
        if missing := [name for name in (*scores, *members) if name not in frame.columns]:
            raise UserError(f"{root}: no column '{missing[0]}' in a frame; expected one for every score_ref_{{i}}")
    target = np.repeat([True, False], [len(frame) for frame in frames])
    member = np.column_stack([target, *(_reference(frames, root, name) for name in members)])
    values = np.concatenate([frame.select(scores).to_numpy() for frame in frames]).astype(np.float64)
    return _derived(member, "probability", values, root)


def _reference(frames: Sequence[pl.DataFrame], root: Path, name: str) -> Bool[np.ndarray, " N"]:
    values = np.concatenate([frame[name].to_numpy() for frame in frames])
    return as_membership(values, f"{root}: column '{name}', df_train_merge and df_test_merge together")


LAYOUTS: dict[str, Layout] = {
    "per-model-csv": read_per_model_csv,
    "carlini": carlini,
    "privacy-meter": privacy_meter,
    "privacyguard": privacyguard,
}
"""Readers of layouts, by the name on the command line; they take the folder, the values of --where and a file of labels."""


def from_logits(logits: Path, labels: Path, membership: Path) -> PublishedMatrices:
    """Return loss and confidence of logits, records × models (× queries) × classes or models × records × …, in float64."""
    (member, ids), values = _indexed(membership), _array(logits)
    if values.ndim not in (3, 4) or member.ndim != 2:
        raise UserError(
            f"{logits}: {values.ndim} axes; expected records × models (× queries) × classes, and a membership with two axes"
        )
    if values.shape[:2] == member.shape[::-1] != member.shape:
        values = np.swapaxes(values, 0, 1)
    if values.shape[:2] != member.shape:
        raise UserError(
            f"{logits}: {values.shape[:2]} where {membership} has {member.shape}; expected the same records × models"
        )
    truth = _array(labels)
    if truth.size != len(member) and truth.size == member.shape[1]:
        member, values = member.T, np.swapaxes(values, 0, 1)
    elif ids is not None:
        check_order(str(membership), ids, f"{logits} has no ids")
    queries = values[:, :, None] if values.ndim == 3 else values
    whole = check_labels(truth, len(member), str(labels))

    models = (queries[:, model] for model in range(member.shape[1]))
    confidence = np.stack([_confidence(one, whole, str(logits)) for one in models], axis=1)
    return _published(as_membership(member, str(membership)), confidence=confidence, where=logits)


def oriented(member: np.ndarray, shape: tuple[int, ...], where: str) -> Bool[np.ndarray, "N K"]:
    """Return a membership as records × models of this `shape`, transposed if only the transpose fits. Raises UserError if neither fits."""
    if member.shape == shape:
        return member
    if member.T.shape == shape:
        return np.asarray(member.T)
    raise UserError(
        f"{where}: {member.shape} where the signals have {shape}; expected one row per model, or per record"
    )


def _published(member: np.ndarray, confidence: Float[np.ndarray, "N K Q"], where: Path) -> PublishedMatrices:
    """Return confidence and loss, a column for each query."""
    check_membership(member, str(where))
    if not np.isfinite(confidence).all():
        record, model, _ = np.argwhere(~np.isfinite(confidence))[0]
        raise UserError(
            f"{where}: the confidence at model {model}, record {record} is not finite; expected finite logits or scores"
        )
    return PublishedMatrices(
        member, _by_query("loss", np.logaddexp(0, -confidence)) | _by_query("confidence", confidence)
    )


def _by_query(name: str, values: Float[np.ndarray, "N K Q"]) -> dict[str, np.ndarray]:
    """Return a matrix for every query, by its column's name."""
    return {f"{name}{QUERY}{query + 1}" if query else name: values[:, :, query] for query in range(values.shape[2])}


def _derived(member: np.ndarray, kind: str, values: Float[np.ndarray, "N K"], where: Path) -> PublishedMatrices:
    """Return loss and confidence, computed from the loss or from probabilities."""
    check_membership(member, str(where))
    if not np.isfinite(values).all() or (kind == "probability" and not ((values >= 0) & (values <= 1)).all()):
        raise UserError(
            f"{where}: the signals are not {'probabilities' if kind == 'probability' else 'finite numbers'}"
        )
    if kind == "probability":
        return PublishedMatrices(
            member, {"loss": loss_from_probability(values), "confidence": confidence_from_probability(values)}
        )
    return PublishedMatrices(member, {"loss": values, "confidence": confidence_from_loss(values)})


def _carlini_confidence(file: Path, root: Path, labels: Path | None) -> np.ndarray:
    """Return the confidence, [N, queries], of a file in scores/ or logits/; y_train.npy may go on beyond the records, as in score.py."""
    values = _array(file)
    if file.parent.name == "scores":
        return values.reshape(len(values), -1).astype(np.float64)
    given = labels or root / "y_train.npy"
    classes = check_labels(_array(given), len(values), str(given), longer=labels is None)
    return over_shifts(values, classes, str(file)) if values.ndim == 4 else _confidence(values, classes, str(file))


def _confidence(logits: np.ndarray, labels: np.ndarray, where: str) -> np.ndarray:
    """Return the confidence, [N, queries], of logits [N, C] or [N, queries, C]."""
    if logits.ndim not in (2, 3) or len(logits) != len(labels):
        raise UserError(
            f"{where}: shape {logits.shape} for {len(labels)} records; expected records (× queries) × classes"
        )
    check_logits(logits, where)
    return confidence_of(logits[:, None] if logits.ndim == 2 else logits, labels, where)


def _stacked(values: list[np.ndarray], files: list[Path]) -> np.ndarray:
    """Stack the matrices of all models, [N, K, queries]; UserError for shapes that differ."""
    for one, file in zip(values, files, strict=True):
        if one.shape != values[0].shape:
            raise UserError(f"{file}: {one.shape} records × queries where {files[0]} has {values[0].shape}")
    return np.stack(values, axis=1)


def _array(path: Path) -> np.ndarray:
    """Read an array as `_indexed` does. UserError unless a file that names records has them in the order of the .npy files, which do not."""
    values, ids = _indexed(path)
    if ids is not None:
        check_order(str(path), ids, "the logits have no ids")
    return values


def _indexed(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read a .npy file, or a matrix in another supported format with the record of each row if it has them; nothing is unpickled."""
    if path.suffix != ".npy":
        values, ids = read_matrix(str(path))
        return np.asarray(values), ids
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        array: np.ndarray = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except NOT_NUMPY as error:
        raise UserError(f"{path}: damaged, or not an array of numbers ({' '.join(str(error).split())[:80]})") from None
    if array.dtype.kind not in "buif":
        raise UserError(f"{path}: holds {array.dtype}, not numbers")
    return array, None


def _frame(root: Path, name: str) -> pl.DataFrame:
    """Read a frame of PrivacyGuard; UserError for scores and memberships that are no numbers."""
    import polars as pl

    for suffix, read in (
        (".parquet", read_foreign),
        (".csv", partial(pl.read_csv, infer_schema_length=None, glob=False)),
    ):
        if (path := root / f"{name}{suffix}").is_file():
            try:
                frame = read(path)
            except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
                raise UserError(f"{path}: damaged ({' '.join(str(error).split())[:100]})") from None
            for column in frame:
                needed = re.fullmatch(r"score_orig|(score|member)_ref_\d+", column.name)
                numbers = column.dtype.is_numeric() or column.dtype == pl.Boolean
                if needed and (not numbers or column.null_count()):
                    held = f"{column.null_count()} empty cells" if column.null_count() else str(column.dtype).lower()
                    raise UserError(f"{path}: column '{column.name}' holds {held}; expected numbers")
            return frame
    raise UserError(
        f"{root}: no {name}.parquet or .csv; expected PrivacyGuard's frames df_train_merge and df_test_merge"
    )


def _last(folder: Path) -> Path | None:
    files = sorted(folder.glob("*.npy"), key=lambda path: _natural(path.name))
    return files[-1] if files else None


def _natural(name: str) -> list[str | int]:
    """Return a sort key that orders names by the numbers in them: text and numbers alternate."""
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)]


def _enough(models: list[object] | list[Path] | list[str] | list[int], root: Path, what: str) -> None:
    if len(models) < LEAST_MODELS:
        raise UserError(f"{root}: {len(models)} models with {what}; attacks need at least {LEAST_MODELS}")
