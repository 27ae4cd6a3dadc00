"""Find every mistake that an audit's config and data, and the models that they name, allow to know before the first job."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.config.expand import resolved_architecture, resolved_mechanism, trained_per_record
from mia_audit.config.fit import fitting
from mia_audit.config.load import load_policy
from mia_audit.errors import UserError
from mia_audit.learners.naming import BUILT_IN, functions_of, script_and_function
from mia_audit.learners.protocol import Compute, ModelSection, learner_named
from mia_audit.planning.sizes import SOURCES, Size, selected
from mia_audit.planning.trial import REPORTED, OutOfTime, tried
from mia_audit.pools import pools
from mia_audit.pools.build import check_source
from mia_audit.pools.groups import CLASS, RECORDS, grouped_column, grouping
from mia_audit.pools.named_members import check_persons, named_members
from mia_audit.pools.persons import Persons
from mia_audit.pools.section import Header, load_public, load_source
from mia_audit.registry import IN_FILE, code_files, code_of, file_digest
from mia_audit.sanitise import announce
from mia_audit.sections import budget

if TYPE_CHECKING:
    from mia_audit.config.schema import Audit
    from mia_audit.config.sections import Architecture
    from mia_audit.pools.section import Dataset, Source

Value = TypeVar("Value")
Metadata = Mapping[str, Any]

PICKLES = (".pkl", ".pickle", ".joblib")
"""Endings of pickles, which are never opened."""


@dataclass
class Checked:
    """What a check found: mistakes, each in one line, and the sizes and models that `planning.plan` needs."""

    files: int = 0
    """The number of files and folders that the config names."""
    mistakes: list[str] = field(default_factory=list)
    sizes: dict[str, Size] = field(default_factory=dict)
    models: dict[tuple[str, str], Metadata] = field(default_factory=dict)

    def attempt(self, function: Callable[..., Value], *arguments: Any) -> Value | None:
        """Return what a function returns, or note the mistake that it finds."""
        try:
            with redirect_stderr(StringIO()):
                return function(*arguments)
        except UserError as error:
            message = str(error).removesuffix(REPORTED)
            if message not in self.mistakes:
                self.mistakes.append(message)
            return None


def check(audit: Audit, given: Mapping[str, Size] = MappingProxyType({}), with_code: bool = False) -> Checked:
    """Check what an audit names, but not the data of pools whose sizes are `given`, which may be on another machine.

    Unless `with_code`, the sources and architectures in the user's own files are not loaded.
    """
    files = list(_files(audit, given))
    checked = Checked(len(files), [f"{key}: {missing(path)}" for key, path in files if not path.exists()])
    if audit.report.policy and Path(audit.report.policy).exists():
        checked.attempt(load_policy, Path(audit.report.policy))
    if audit.report.figures.font:
        checked.attempt(_check_font, audit.report.figures.font)
    sources = {
        name: checked.attempt(_load, section, f"datasets.{name}")
        for name, section in audit.datasets.items()
        if name not in given and _is_here(section, with_code)
    }
    for name, source in sources.items():
        if source is not None:
            _check_data(checked, audit, name, source)
    for name, section in audit.datasets.items():
        if name in given:
            checked.sizes[name] = given[name]
        elif section.download and section.source in SOURCES:
            checked.sizes[name] = selected(SOURCES[section.source], section)
    for dataset, size in checked.sizes.items():
        _check_models(checked, audit, dataset, size, with_code)
    for name in audit.targets:
        _check_target(checked, audit, name, sources)
    for one in audit.imported.values():
        if Path(one.signals).exists():
            checked.attempt(SignalsFile, Path(one.signals))
    return checked


def _check_models(checked: Checked, audit: Audit, dataset: str, size: Size, with_code: bool) -> None:
    """Build every model once on a data set's shape; those of the user's own files only with code, and only for the built-in loop."""
    kind = "image" if len(size.shape) == 3 else "table"
    pool = {"kind": kind, "shape": list(size.shape), "classes": range(size.classes)}
    for name in audit.architectures_of(dataset):
        section, private = resolved_architecture(audit, name), trained_per_record(audit, name)
        if not code_of(section.model) or (with_code and section.learner == BUILT_IN):
            metadata = checked.attempt(describe_model, name, section, pool, private)
            if metadata is not None:
                checked.models[dataset, name] = metadata
                checked.attempt(_check_last_batch, audit, name, metadata, size)
                for mechanism in audit.budgets(name) if metadata["learner"] == BUILT_IN else ():
                    checked.attempt(_check_training, audit, name, mechanism, metadata)


def _check_training(audit: Audit, architecture: str, mechanism: str, metadata: Metadata) -> None:
    """Raise UserError if a model lacks the part of it that is trained, or if the mechanism, unless it is the user's own, does not fit."""
    from mia_audit.training.shadow import check_mechanism
    from mia_audit.training.trainable import check_part

    training, section = audit.training_of(architecture, mechanism), resolved_mechanism(audit, mechanism)
    if training.trainable != "all":
        check_part(metadata, training)
    if not section.kind.per_record or code_of(section.mechanism):
        return
    largest = max(map(budget, audit.budgets(architecture)[mechanism]))
    try:
        # with the fewest records, for which noise is calibrated fastest
        check_mechanism(metadata, section, training, largest, training.batch)
    except UserError as error:
        raise UserError(f"architectures.{architecture}: {error}") from None


def try_code(checked: Checked, audit: Audit) -> list[str]:
    """Try every model of the user's own code on a few records, and return a line for each one that was not tried to its end."""
    notes = []
    for dataset in audit.datasets:
        for name in audit.architectures_of(dataset):
            if not code_of(resolved_architecture(audit, name).model):
                continue
            announce(f"training {name} on a few records of {dataset}")
            try:
                checked.attempt(tried, audit, dataset, name, checked.sizes.get(dataset))
            except OutOfTime as error:
                notes.append(str(error))
    return notes


def describe_model(name: str, section: Architecture, pool: Metadata, private: bool) -> dict[str, Any]:
    """Return the metadata of a model that fits a pool; UserError if it does not, or cannot be trained by a `private` mechanism."""
    values = section.model_dump(include={"parameters", "pretrained", "votes"})
    code = {file: file_digest(file) for file in code_files(section)}
    asked = ModelSection(name=name, model=section.model or name, code=code, outputs=section.outputs or "", **values)
    metadata = learner_named(section.learner).describe(asked, pool)
    layers = metadata.get("batch_norm_layers")
    if private and layers:
        raise UserError(
            f"architectures.{name}: layer '{layers[0]}' of '{metadata['model']}' ({len(layers)} in all) is a BatchNorm, which mixes"
            " the records of a batch and cannot be trained under dp-sgd: choose a model with LayerNorm or GroupNorm"
        )
    if private and metadata["learner"] == BUILT_IN:
        from mia_audit.models.architecture import check_state, construct

        try:
            check_state(construct(metadata, seed=0), tuple(metadata["input_shape"]), metadata["model"])
        except UserError as error:
            raise UserError(f"architectures.{name}: {error}") from None
    return metadata


def _check_last_batch(audit: Audit, name: str, metadata: Metadata, size: Size) -> None:
    """Raise UserError if the last batch of a training set is a single record, and the model normalises over the records of a batch."""
    if not metadata.get("batch_norm") or audit.membership.design != "half" or size.persons:
        return
    records = size.records // 2
    trained = [audit.training_of(name, mechanism) for mechanism in audit.budgets(name)]
    if not any(one.trainable != "head" and records % one.batch == 1 for one in trained):
        return
    from mia_audit.models.architecture import construct, lone_record_message, trains_on_one_record

    if not trains_on_one_record(construct(metadata, seed=0), tuple(metadata["input_shape"])):
        raise UserError(f"architectures.{name}: {lone_record_message(records)}")


def missing(path: Path) -> str:
    """Say that a file of the config is missing."""
    return f"no such file: {path} in {Path.cwd()}, where relative paths start"


def _files(audit: Audit, elsewhere: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield the files and folders that a config names, by key, without those of data sets on another machine."""
    here = {name: one for name, one in audit.datasets.items() if name not in elsewhere}
    named = [
        *((f"datasets.{name}.path", one.path) for name, one in here.items() if not one.download),
        *((f"datasets.{name}.public.path", one.public_path) for name, one in here.items()),
        *((f"imported.{name}.signals", one.signals) for name, one in audit.imported.items()),
        *(
            (f"architectures.{name}.pretrained", one.pretrained)
            for name, one in audit.architectures.items()
            if one.pretrained not in ("none", "public", "hub")
        ),
        *((f"targets.{name}.model", one.model) for name, one in audit.targets.items()),
        *(
            (f"targets.{name}.members", one.members)
            for name, one in audit.targets.items()
            if not one.members.startswith("column:")
        ),
        ("report.policy", audit.report.policy),
    ]
    yield from ((key, Path(path)) for key, path in named if path)


def _check_font(font: str) -> None:
    from mia_audit.report.figures.catalogue import paper_style

    with paper_style(font):
        pass


def _is_here(section: Dataset, with_code: bool) -> bool:
    """Return whether a data set can be read without downloading it or, unless `with_code`, running the user's code."""
    runs = IN_FILE.fullmatch(section.source) and not with_code
    return not runs and (not section.path or Path(section.path).exists())


def _load(section: Dataset, where: str) -> Source | None:
    if section.download:
        return None
    source = load_source(section, where)
    check_source(source, section, where)
    if section.public_path and Path(section.public_path).exists():
        load_public(source, section, where)
    return source


def _check_data(checked: Checked, audit: Audit, name: str, source: Source) -> None:
    """Check a data set's groups and the sizes of batches."""
    section, where = audit.datasets[name], f"datasets.{name}"
    persons = 0 if source.persons is None else len(set(source.persons.tolist()))
    whole = Size(len(source.records), 0, tuple(source.records.shape[1:]), len(source.classes), persons)
    checked.sizes[name] = selected(whole, section)
    for column, edges in section.edges_of_groups.items():
        if column not in (CLASS, RECORDS):
            values = checked.attempt(grouped_column, source, column, where)
            if values is not None:
                checked.attempt(grouping, column, values, edges, f"{where}.groups: '{column}'")
    size = checked.sizes[name]
    known = Header(source.kind, size.records if size.persons else len(source.records), persons=size.persons)
    if pools[section.source].known(section) != known:
        only = audit.model_copy(update={"datasets": {name: section}})
        checked.mistakes += [one for one in fitting(only, {name: known}) if one not in checked.mistakes]


def _check_target(checked: Checked, audit: Audit, name: str, sources: Mapping[str, Source | None]) -> None:
    """Check a finished model and its members, as the stage `target` does."""
    target, where = audit.targets[name], f"targets.{name}"
    dataset, architecture, *_ = audit.setting_of(name)
    path = Path(target.model)
    if path.exists():
        checked.attempt(_open_target, audit, name, checked.models.get((dataset, architecture)))
    source = sources.get(dataset)
    if source is None or not (target.members.startswith("column:") or Path(target.members).exists()):
        return
    section, count = audit.datasets[dataset], len(source.records)
    member = checked.attempt(named_members, section, target.members, target.id, np.arange(count), count, where)
    if member is not None and section.by_person and source.persons is not None:
        persons = Persons.numbered(source.persons)
        checked.attempt(check_persons, member, persons, f"{where}.members: {target.members}")


def _open_target(audit: Audit, name: str, metadata: Metadata | None) -> None:
    """Read a finished model as the stage `target` does; the model of a script, whose code would run, is not read."""
    from mia_audit.learners.finished import adopt

    section = resolved_architecture(audit, audit.targets[name].architecture)
    where, path = f"targets.{name}.model", Path(audit.targets[name].model)
    loads = section.learner == "script" and "load" in functions_of(script_and_function(section.model)[0])
    if path.suffix in PICKLES and not loads:
        raise UserError(
            f"{where}: {path}: a pickle, which is never opened; expected weights as .safetensors or .pth, or an estimator that"
            " skops wrote; a script may define load(folder) for anything else"
        )
    if metadata is None:
        return
    learner = learner_named(metadata["learner"])(metadata, Compute())
    with tempfile.TemporaryDirectory() as folder:
        adopt(learner, path, Path(folder), where)
