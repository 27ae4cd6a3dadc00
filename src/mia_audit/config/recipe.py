"""One digest of everything that a setting's results depend on, except the number of models."""

import hashlib
from pathlib import Path

from mia_audit.config import specs
from mia_audit.config.expand import Setting, families_of
from mia_audit.config.schema import Audit


def recipe(audit: Audit, setting: Setting) -> str:
    """Return the digest of the specifications of a trained setting's pool, models, signals, attacks and metrics."""
    architecture, section = (setting.dataset, setting.architecture), audit.architectures[setting.architecture]
    stages: list[specs.Spec] = [
        specs.PoolSpec.of(audit, setting.dataset),
        specs.ArchitectureSpec.of(audit, setting.architecture),
        specs.TrainingSpec.of(audit, *architecture, setting.mechanism, setting.epsilon),
        *(specs.SignalsSpec.of(audit, *architecture, family) for family in families_of(audit)[setting.architecture]),
        specs.AttackSpec.of(audit, setting.dataset),
        specs.EvaluationSpec.of(audit),
    ]
    if section.pretrained == "public":
        stages.append(specs.PretrainingSpec.of(audit, *architecture))
    elif section.pretrained != "none":
        stages.append(specs.WeightsSpec.of(audit, setting.architecture))
    names = "\n".join(stage.path(Path()).name for stage in stages)
    return hashlib.sha256(names.encode()).hexdigest()[: specs.DIGEST_LENGTH]
