"""Write a first config from an inspection of the data and of a script. The config is commented YAML that runs without changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError
from mia_audit.learners.naming import functions_of, script_and_function
from mia_audit.sections import folder_name

if TYPE_CHECKING:
    from mia_audit.planning.look import Looked

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
            raise UserError(
                f"--model: {path} has no function '{function}(task)'; it has {', '.join(functions) or 'none'}"
            )
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


def first_config(name: str, looked: Looked, architecture: Mapping[str, Any], estimate: str = "") -> str:
    """Return the text of a config, with comments on the keys that should be changed first."""
    built_in = architecture["model"] in ("mlp", "vision_transformer")
    dataset = dict(looked.section)
    public = max(10, round(PUBLIC * (looked.units or looked.records))) if built_in and len(looked.shape) == 1 else 0
    if public:
        dataset |= {"public": public, "standardise": "public"}
    batch = max(1, min(BATCH, (looked.records - public) // 4))  # a batch has at most half of a training set
    lines = [
        f"# An audit of {architecture['model']} on {looked.section['path']}: {looked.records} records of {_shape(looked)},"
        f" {looked.classes} classes.",
        "#",
        f"#   mia-audit run {name}.yaml       (-n only prints what would run)",
        "#",
        f"# {estimate or f'The cost of the audit: mia-audit plan {name}.yaml'}",
        "# All keys: config/README.md.",
        f"audit: {folder_name(name)}",
        "seed: 0",
        "",
        "datasets:",
        f"  {folder_name(name)}:",
        *(f"    {key}: {_yaml(value)}{_remark(key)}" for key, value in dataset.items()),
        "",
        "membership:",
        f"  models: {MODELS}   # each on a random half of the records; more make intervals narrower",
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
            else ["", "explainers:", "  methods: []   # only outputs; docs/explainers.md lists explainers"]
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


def _remark(key: str) -> str:
    remarks = {
        "columns": "   # drop: no model gets the column; docs/pools.md",
        "public": "   # set aside, for scaling the columns",
        "size": "   # side in pixels to which all images are resized",
    }
    return remarks.get(key, "")


def config_path(name: str, folder: Path) -> Path:
    """Return the path for a config; UserError if it exists."""
    path = folder / f"{name}.yaml"
    if path.exists():
        raise UserError(f"{path}: the file exists already; give another --name")
    return path
