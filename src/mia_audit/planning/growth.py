"""The models that a config would add to an existing audit or retrain."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mia_audit.config.expand import Setting, initial_weights, reads_public_records, settings
from mia_audit.config.schema import Audit
from mia_audit.config.specs import TrainingSpec
from mia_audit.pools.membership import draw_training_sets
from mia_audit.training.stored import files_read, known_key, training_keys


@dataclass(frozen=True)
class Growth:
    """A setting, with the numbers of the models to keep, and of the models to train for the first time or again."""

    setting: Setting
    kept: tuple[int, ...]
    trained: tuple[int, ...]
    again: tuple[int, ...]
    """The models among `trained` that exist already but do not match the config."""


def growth(audit: Audit, results: Path) -> Iterator[Growth]:
    """Yield the kept and trained models of every trained setting, according to the pools and weights in the results."""
    for setting in settings(audit):
        if setting.trained:
            yield _growth(audit, setting, results)


def _growth(audit: Audit, setting: Setting, results: Path) -> Growth:
    models = results / setting.path / "models"
    wanted = _keys(audit, setting, results)
    keys = {shadow: known_key(models, shadow) for shadow in wanted}
    kept = tuple(shadow for shadow, key in wanted.items() if key and keys[shadow] == key)
    trained = tuple(shadow for shadow in wanted if shadow not in kept)
    return Growth(setting, kept, trained, tuple(shadow for shadow in trained if keys[shadow]))


def _keys(audit: Audit, setting: Setting, results: Path) -> dict[int, str]:
    """Return the training key of every model in the config; empty if a file that training reads does not exist yet."""
    shadows = range(audit.number_of_models(setting.mechanism))
    names = (setting.dataset, setting.architecture, setting.mechanism)
    pool, group = results / "pools" / setting.dataset, results / setting.group
    start = initial_weights(audit, setting.architecture)
    public = reads_public_records(audit, setting.architecture, setting.mechanism)
    files = files_read(pool, group / "architecture.json", group / start if start else None, public)
    if not all(path.exists() for path in files):
        return dict.fromkeys(shadows, "")
    spec = TrainingSpec.of(audit, *names, setting.epsilon)
    assert spec.draw is not None
    member = draw_training_sets(spec.draw, pool / "records.parquet", setting.dataset, audit.seed, shadows)
    return training_keys(shadows, member, spec.contents(), files)
