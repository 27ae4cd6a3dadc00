"""Check, before anything runs, that the config's sections fit each other and the headers of the files that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mia_audit.config import expand
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError, suggest
from mia_audit.explain.catalogue import EXPLANATION_SETS, kind_of
from mia_audit.learners.naming import BUILT_IN
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset, Header, check_enough, check_keys, check_kind

KINDS = {"image": "images", "table": "rows of a table"}
"""Descriptions of the kinds of pools."""


def check_fit(audit: Audit, where: str) -> None:
    """Raise UserError for sections that do not fit; it names the file `where` and the keys."""
    headers, mistakes = {}, []
    for name, section in audit.datasets.items():
        try:
            headers[name] = _header(name, section)
        except UserError as error:
            mistakes.append(str(error))
    if mistakes := [*mistakes, *_names(audit), *fitting(audit, headers), *_labels(audit)]:
        raise UserError(f"{where}: {'; '.join(mistakes)}")


def fitting(audit: Audit, headers: Mapping[str, Header]) -> list[str]:
    """Return errors for models and batches that do not fit the data sets with these headers."""
    return [*_models(audit, headers), *_batches(audit, headers)]


ESTIMATORS = {
    "adaboost": "sklearn.ensemble:AdaBoostClassifier",
    "decisiontree": "sklearn.tree:DecisionTreeClassifier",
    "extratrees": "sklearn.ensemble:ExtraTreesClassifier",
    "gaussiannb": "sklearn.naive_bayes:GaussianNB",
    "gradientboosting": "sklearn.ensemble:GradientBoostingClassifier",
    "histgradientboosting": "sklearn.ensemble:HistGradientBoostingClassifier",
    "kneighbors": "sklearn.neighbors:KNeighborsClassifier",
    "lgbm": "lightgbm:LGBMClassifier",
    "lightgbm": "lightgbm:LGBMClassifier",
    "logisticregression": "sklearn.linear_model:LogisticRegression",
    "naivebayes": "sklearn.naive_bayes:GaussianNB",
    "randomforest": "sklearn.ensemble:RandomForestClassifier",
    "svc": "sklearn.svm:SVC",
    "svm": "sklearn.svm:SVC",
    "xgb": "xgboost:XGBClassifier",
    "xgboost": "xgboost:XGBClassifier",
}
"""The classes that short names of estimators usually mean; the names are without underscores and `classifier`."""
DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.[a-z_]\w*)*)\.([A-Z]\w*)")
"""A class that is written with a dot where a colon is expected."""


def meant(model: str) -> str:
    """Return the estimator, as `package.module:Class`, that an unknown model's name probably means; empty if none."""
    if match := DOTTED.fullmatch(model):
        return f"{match[1]}:{match[2]}"
    return ESTIMATORS.get(re.sub(r"[^a-z0-9]|classifier$", "", model.lower()), "")


def _names(audit: Audit) -> Iterator[str]:
    """Return errors for names of estimators that are not `package.module:Class`."""
    for name, section in audit.architectures.items():
        model = section.model or name
        if section.learner == BUILT_IN and (instead := meant(model)):
            yield f"architectures.{name}: unknown model '{model}': an estimator is named package.module:Class, such as {instead}"


def _header(name: str, section: Dataset) -> Header:
    """Return a data set's header; UserError for keys that do not fit it."""
    where = f"datasets.{name}"
    check_keys(section, where)
    header = pools[section.source].known(section)
    check_kind(section, header.kind, where)
    _check_columns(section, header, where)
    if header.records is not None:
        check_enough(section, header.records, "records", where)
    return header


def _check_columns(section: Dataset, header: Header, where: str) -> None:
    """Raise UserError for columns that the header of a table does not have."""
    if len(header.columns) < 2:  # without a header, or with another separator, the source has a better message
        return
    named = {
        "label": [section.label],
        "columns": section.columns,
        "impute": section.impute,
        "categories": section.categories,
    }
    if section.person:
        named["person"] = [section.person]
    for key, names in named.items():
        for name in names:
            if name not in header.columns:
                raise UserError(
                    f"{where}.{key}: {section.path} has no column '{name}': {suggest(name, header.columns)}"
                )


def _models(audit: Audit, headers: Mapping[str, Header]) -> Iterator[str]:
    """Return errors for built-in models that do not take a data set's kind of records."""
    for name, section in audit.architectures.items():
        if section.learner == BUILT_IN and meant(section.model or name):
            continue
        takes = kind_of(section.model or name).takes
        for dataset, header in headers.items():
            if section.learner == BUILT_IN and header.kind and header.kind not in takes:
                instead = "mlp" if header.kind == "table" else "vision_transformer"
                yield (
                    f"architectures.{name}: '{section.model or name}' takes {KINDS[takes[0]]}, but datasets.{dataset} holds"
                    f" {KINDS[header.kind]}: choose a model such as '{instead}'"
                )


def _batches(audit: Audit, headers: Mapping[str, Header]) -> Iterator[str]:
    """Return errors for batches that are larger than the training set of some model."""
    for dataset, header in headers.items():
        for name, section in audit.architectures.items():
            for mechanism in audit.budgets(name) if section.learner == BUILT_IN else ():
                by_person = expand.resolved_mechanism(audit, mechanism, dataset).by_person
                most = _training_set(audit, audit.datasets[dataset], header, by_person)
                batch, units = audit.training_of(name, mechanism).batch, "persons" if by_person else "records"
                if most is not None and batch > most:
                    yield (
                        f"training.batch: {batch} {units} per step for {name} under {mechanism}, but a training set of"
                        f" datasets.{dataset} has only {most}"
                    )


def _training_set(audit: Audit, section: Dataset, header: Header, by_person: bool) -> int | None:
    """Return the mean number of records, or of persons, in a training set; None if it is unknown before the pool is read."""
    if section.by_person:
        units = (header.persons if by_person else header.records) if header.persons else None
    else:
        units = section.records or (None if header.records is None else header.records - section.drawn)
    if units is None:
        return None
    design = audit.membership
    if design.design == "half":
        return units // 2
    return units if design.share is None else max(1, round(design.share * units))


def _labels(audit: Audit) -> Iterator[str]:
    """List labels that are given twice, and labels and colours for a name that the audit does not have."""
    figures = audit.report.figures
    given = {f"labels.{kind}": labels for kind, labels in audit.report.labels.model_dump().items()}
    given |= {"figures.names": figures.names, "figures.colours": figures.colours}
    if not any(given.values()):
        return
    settings = expand.settings(audit)
    explainers = set(audit.explainers.methods)
    known = {
        "labels.datasets": {one.dataset.removesuffix(EXPLANATION_SETS) for one in settings},
        "labels.architectures": {one.architecture for one in settings},
        "labels.settings": {name for one in settings for name in (one.mechanism, f"{one.mechanism}-eps{one.epsilon}")},
    }
    known |= {"figures.names": explainers, "figures.colours": explainers | known["labels.settings"]}
    for kind, labels in given.items():
        where = f"report.{kind}"
        yield from (
            f"{where}.{name}: unknown: {suggest(name, known[kind])}" for name in labels if name not in known[kind]
        )
        if kind == "figures.colours":
            continue
        twice = {label for label in labels.values() if list(labels.values()).count(label) > 1}
        yield from (
            f"{where}: '{label}' is given twice, so readers could not distinguish the two" for label in sorted(twice)
        )
