"""What is known of a release's setting: the audit of it, and the policy that this audit was held to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.config.specs import ArchitectureSpec, PoolSpec, PretrainingSpec
from mia_audit.errors import UserError
from mia_audit.foreign_json import read_object
from mia_audit.registry import file_digest
from mia_audit.releasing.recipe import UNPROTECTED
from mia_audit.storage import sha256
from mia_audit.storage.digests import audit_id
from mia_audit.training.task import identity

if TYPE_CHECKING:
    from mia_audit.releasing.recipe import ReleaseRecipe

KEYS = ("audit_id", "training_sha256", "provenance_sha256", "policy_sha256", "verdict")
"""The entries of a gate's verdicts that a release reads."""


def training_sha256(recipe: ReleaseRecipe) -> str:
    """Return the digest of all that the config says about the training of a recipe's model."""
    from mia_audit.report.provenance import TRAINED, trained

    config = recipe.audit.model_dump(mode="json", exclude={"compute"})
    names = {name: getattr(recipe.setting, name) for name in ("dataset", "architecture", "mechanism", "epsilon")}
    return trained(config, names)[TRAINED]


def audited_sha256(recipe: ReleaseRecipe, expected: str) -> str | None:
    """Return the digest of the training that the finished audit measured; None if it is not finished.

    Raises UserError if it is another training than the recipe's, or if the results are of another config or other files.
    """
    from mia_audit.report.opened import PROVENANCE, read_provenance
    from mia_audit.report.provenance import TRAINED

    sources = read_provenance(recipe.results) if (recipe.results / PROVENANCE).exists() else {}
    known = {one["path"]: one for one in sources.get("settings", ())}
    if recipe.setting.path not in known:
        _check_built(recipe)
        return None
    if known[recipe.setting.path].get(TRAINED) != expected:
        raise UserError(
            f"{recipe.results}: the audit of {recipe.setting.path} is of another training than the config describes (data set, architecture,"
            " mechanism, training or code): run the audit again, and release what it measured"
        )
    measured = sources.get("inputs_sha256", {})
    for path in chain(recipe.pool_files, [recipe.architecture_file], [recipe.start] if recipe.start else []):
        name = path.relative_to(recipe.results).as_posix()
        if name in measured and measured[name] != sha256(path):
            raise UserError(f"{path}: changed since the audit of {recipe.setting.path}: run the audit again")
    _check_built(recipe)
    return expected


def _check_built(recipe: ReleaseRecipe) -> None:
    """Raise UserError if pool, architecture or initial weights are not those of the config and its files: what was there may still be in them."""
    if recipe.promise == UNPROTECTED:
        return
    from mia_audit.models.architecture import keyed
    from mia_audit.models.weights import identity_of
    from mia_audit.planning.check import describe_model

    audit, dataset, name = recipe.audit, recipe.setting.dataset, recipe.setting.architecture
    pool, built = recipe.stored.metadata, keyed(recipe.architecture)
    section = ArchitectureSpec.from_audit(audit, name).architecture
    found: dict[Path, tuple[Any, Any]] = {
        recipe.pool: (pool.get("section"), PoolSpec.from_audit(audit, dataset).dataset.digest),
        recipe.architecture_file: (built, json.loads(json.dumps(keyed(describe_model(name, section, pool, False))))),
    }
    if (start := recipe.start) and section.pretrained == "public":
        spec, public = PretrainingSpec.from_audit(audit, dataset, name), sha256(recipe.pool / "public.parquet")
        found[start] = (identity_of(start), identity(spec=spec.contents(), architecture=built, public=public))
    elif start:
        about = read_object(start.with_suffix(".json"), "what the audit wrote about the initial weights")
        file = file_digest(section.pretrained) or None
        found[start] = ((about.get("pretrained"), about.get("file")), (section.pretrained, file))
    if stale := [path for path, (one, other) in found.items() if one != other]:
        raise UserError(
            f"{stale[0]}: not what the config describes, because it was changed later: delete it and run the audit again"
        )


def judged(recipe: ReleaseRecipe, verdicts: Path | None, expected: str) -> dict[str, Any] | None:
    """Return what the card says about a gate's verdicts; None without any. Raises UserError if they are about another training."""
    from mia_audit.report.opened import PROVENANCE

    if verdicts is None:
        return None
    values = read_object(verdicts, "the verdicts that mia-audit gate --json wrote")
    if lacking := [key for key in KEYS if key not in values]:
        raise UserError(f"{verdicts}: no '{lacking[0]}'; expected the verdicts that mia-audit gate --json wrote")
    trained = values["training_sha256"]
    if values["audit_id"] != audit_id(recipe.results):
        raise UserError(f"{verdicts}: about the audit {values['audit_id']}; expected that in {recipe.results}")
    if not isinstance(trained, Mapping) or recipe.setting.path not in trained:
        raise UserError(f"{verdicts}: not about {recipe.setting.path}: name it in the policy's settings")
    if trained[recipe.setting.path] != expected:
        raise UserError(
            f"{verdicts}: about another training of {recipe.setting.path} than the config describes: run audit and gate again"
        )
    if not (now := recipe.results / PROVENANCE).exists() or values["provenance_sha256"] != sha256(now):
        raise UserError(f"{verdicts}: about an earlier state of the audit in {recipe.results}: run the gate again")
    return {
        "policy_sha256": values["policy_sha256"],
        "verdicts_sha256": sha256(verdicts),
        "training_sha256": expected,
        "verdict": values["verdict"],
    }
