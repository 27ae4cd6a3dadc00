"""Write a first config from an inspection of the data and of a script. The config is commented YAML that runs without changes.

Inspect data and a training script for a first config: columns, classes, identifiers, functions.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError, few, suggest
from mia_audit.learners.naming import functions_of, script_and_function
from mia_audit.pools.scaling import FEW
from mia_audit.pools.section import Dataset
from mia_audit.sections import folder_name

if TYPE_CHECKING:
    import polars as pl

LABELS = ("label", "class", "target", "y", "outcome", "income", "diagnosis")
"""Usual names of the class column, in order of preference."""

CLASSES = 100
"""Largest number of classes of a class column."""


@dataclass(frozen=True)
class Looked:
    """The result of an inspection: the data set's section, its number of records, their shape, and the classes."""

    section: dict[str, object]
    records: int
    shape: tuple[int, ...]
    classes: int
    units: int = 0
    """Number of persons, if the table names them."""

    @property
    def size(self) -> str:
        """The number of records, and of persons if they are the unit."""
        return f"{self.records} records" + (f" of {self.units} persons" if self.units else "")


def columns_of(path: Path) -> pl.DataFrame:
    """Read a table of records; UserError for a file that is not a table."""
    from mia_audit.pools.tables import read_frame

    return read_frame(Dataset(source="table", path=str(path)), "init")[1]


def label_of(frame: pl.DataFrame, given: str) -> str:
    """Return the class column: the given one, or one with a usual name; UserError if there is none."""
    if given:
        if given not in frame.columns:
            raise UserError(f"--label: no column '{given}': {suggest(given, frame.columns)}")
        return given
    usual = [name for wanted in LABELS for name in frame.columns if name.lower() == wanted]
    if not usual:
        candidates = [
            name for name in frame.columns if 2 <= frame[name].n_unique() <= FEW and not frame[name].dtype.is_float()
        ]
        hint = f"; these have few values: {few(candidates)}" if candidates else ""
        raise UserError(f"--label: no column is called {', '.join(LABELS)}; name the column of the class{hint}")
    return usual[0]


def look_at_table(
    path: Path, frame: pl.DataFrame, label: str, columns: Mapping[str, str], more: Mapping[str, object]
) -> Looked:
    """Describe a table of records. `more` has further keys of its section. Raises UserError if no pool can be built from the table."""
    classes = frame[label].n_unique()
    if classes > CLASSES:
        raise UserError(f"--label: column '{label}' has {classes} different values; name the column of the class")
    section: dict[str, object] = {"source": "table", "path": str(path), "label": label}
    if columns:
        section["columns"] = dict(columns)
    section |= more
    from mia_audit.pools import pools

    source = pools["table"].load(Dataset(**section), "init")  # type: ignore[arg-type]
    units = 0 if source.persons is None else len(set(source.persons.tolist()))
    return Looked(section, len(frame), tuple(source.records.shape[1:]), classes, units)


def look_at_folder(path: Path) -> Looked:
    """Describe a folder of images with a subfolder per class, or one with records.npy and labels.npy. Raises UserError for anything else."""
    import numpy as np

    if (path / "records.npy").is_file():
        shape = np.load(path / "records.npy", mmap_mode="r").shape
        if not (path / "labels.npy").is_file():
            raise UserError(f"{path}: has records.npy, but no labels.npy beside it")
        labels = np.load(path / "labels.npy", allow_pickle=False)
        return Looked({"source": "arrays", "path": str(path)}, shape[0], tuple(shape[1:]), len(np.unique(labels)))
    from mia_audit.pools import pools

    if any(path.glob("*-idx3-ubyte*")):
        source = pools["idx"].load(Dataset(source="idx", path=str(path)), "init")
        shape = tuple(source.records.shape[1:])
        return Looked({"source": "idx", "path": str(path)}, len(source.records), shape, len(source.classes))
    dataset = Dataset(source="images", path=str(path))
    section: dict[str, object] = {"source": "images", "path": str(path)}
    try:
        source = pools["images"].load(dataset, "init")
    except UserError as error:
        if "size" not in str(error):
            raise
        section["size"] = SIDE  # the sizes of images vary
        source = pools["images"].load(dataset.model_copy(update={"size": SIDE}), "init")
    return Looked(section, len(source.records), tuple(source.records.shape[1:]), len(source.classes))


SIDE = 32
"""The default side in pixels for images of different sizes."""

MODELS = 16
"""Number of shadow models of a first audit."""

BATCH = 32
"""Records per step, if there are enough."""

PUBLIC = 0.15
"""Share of a table's records that are set aside to standardise columns for built-in models."""


def architecture_of(looked: Looked, model: str, outputs: str) -> dict[str, Any]:
    """Return the section of an architecture: a script, an estimator, or a small built-in model.

    Raises UserError for a script that lacks a required function.
    """
    path, function = script_and_function(model)
    if path.suffix == ".py":
        functions = functions_of(path)
        if function not in functions:
            raise UserError(f"--model: {path} has no function '{function}(task)'; it has {few(functions) or 'none'}")
        if "predict" in functions and not outputs:
            raise UserError(
                f"--outputs: missing; state what predict of {path} returns: logits, probabilities or labels (--outputs logits)"
            )
        return {"model": model} | ({"outputs": outputs} if outputs else {})
    if model:
        return {"model": model}
    if len(looked.shape) == 1:
        return {"model": "mlp"}
    side, patch = looked.shape[1], max(1, looked.shape[1] // 8)
    small = {"img_size": side - side % patch, "patch_size": patch, "embed_dim": 64, "depth": 2, "num_heads": 4}
    return {"model": "vision_transformer", "parameters": small}


def first_config(
    name: str, looked: Looked, architecture: Mapping[str, Any], estimate: str = "", public: str = ""
) -> str:
    """Return the text of a config, with comments on the keys that should be changed first.

    Columns of a table are scaled for built-in models by the records of the file `public`, or by records drawn from the table.
    """
    built_in = architecture["model"] in ("mlp", "vision_transformer")
    dataset = dict(looked.section)
    scaled = built_in and len(looked.shape) == 1
    units = looked.units or looked.records
    drawn = min(max(10, round(PUBLIC * units)), units // 2) if scaled and not public else 0
    if scaled or public:
        dataset |= {"public": drawn or {"path": public}, "standardise": "public"}
    batch = max(1, min(BATCH, (units - drawn) // 4))  # a batch has at most half of a training set
    unit = "persons" if looked.units else "records"
    lines = [
        f"# An audit of {architecture['model']} on {looked.section['path']}: {looked.size}, {_shape(looked)},"
        f" {looked.classes} classes.",
        "#",
        f"#   mia-audit run {name}.yaml       (-n only prints what would run)",
        "#",
        f"# {estimate or f'The cost of the audit: mia-audit plan {name}.yaml'}",
        "# All keys: config/README.md.",
        f"audit: {name}",
        "seed: 0",
        "",
        "datasets:",
        f"  {name}:",
        *(f"    {key}: {_yaml(value)}{_remark(key, value, unit)}" for key, value in dataset.items()),
        "",
        "membership:",
        f"  models: {MODELS}   # each on a random half of the {unit}; more make intervals narrower",
        "",
        "architectures:",
        "  mine:",
        *(f"    {key}: {_yaml(value)}" for key, value in architecture.items()),
        "",
        *(
            [
                f"training: {{epochs: 30, batch: {batch}, learning_rate: 1.0e-3}}   # use the values of your own model",
                "",
            ]
            if built_in
            else []
        ),
        "mechanisms:",
        "  none: {}",
        "  # the effect of differential privacy:",
        f"  # {'dp-sgd' if built_in else 'own'}: {{epsilon: [8], delta: 1.0e-5}}"
        + ("" if built_in else "   # ε is passed to your code, as task.epsilon or {epsilon}"),
        *(
            []
            if built_in
            else ["", "explainers:", "  methods: []   # only outputs; docs/methods/explainers.md lists explainers"]
        ),
        "",
        "compute:",
        f"  shadows_per_job: {MODELS // 2}",
    ]
    return "\n".join(lines) + "\n"


def _shape(looked: Looked) -> str:
    if len(looked.shape) == 1:
        return f"{looked.shape[0]} columns"
    return "×".join(map(str, looked.shape))


def _yaml(value: Any) -> str:
    """Write a value as YAML in one line. JSON is used, which is valid YAML."""
    return json.dumps(value, ensure_ascii=False)


def _remark(key: str, value: Any, unit: str) -> str:
    if isinstance(value, Mapping) and key == "public":
        return ""
    remarks = {
        "columns": "   # drop: no model gets the column; docs/how-to/pools.md",
        "public": f"   # {unit} drawn from the file to scale columns, for audits only; a release needs a file (init --public)",
        "size": "   # side in pixels to which all images are resized",
    }
    return remarks.get(key, "")


def name_of(data: Path) -> str:
    """Return a name for an audit of the data: that of the file or folder, in letters, digits, '.', '_' and '-'."""
    plain = unicodedata.normalize("NFKD", data.resolve().stem).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("._-")
    if not name:
        raise UserError(f"{data}: an audit's name has letters, digits, '.', '_' and '-': give one by --name")
    return name


def config_path(name: str, folder: Path) -> Path:
    """Return the path for a config; UserError if it exists, or if the name is not that of a folder."""
    try:
        folder_name(name)
    except ValueError as error:
        raise UserError(f"--name: {error}") from None
    path = folder / f"{name}.yaml"
    if path.exists():
        raise UserError(f"{path}: the file exists already; give another --name")
    return path
