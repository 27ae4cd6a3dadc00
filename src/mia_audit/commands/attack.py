"""`mia-audit attack`: turn the signals of a setting into membership scores."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.design import recognise
from mia_audit.attacks.io.parquet import (
    GIVEN,
    OPTIONS,
    TARGET,
    SignalsFile,
    TooFewModels,
    readings_metadata,
    write_scores,
)
from mia_audit.attacks.io.population import population_files, with_population
from mia_audit.attacks.run import Run, Scores, permuted_membership, plan, scores_of
from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import AttackSpec
from mia_audit.errors import UserError
from mia_audit.storage import check_out, given_digest, table_metadata
from mia_audit.storage.diverged import DIVERGED, diverged_of_all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, AttackSpec)
    parser.add_argument("--signals", required=True, type=Path, help="signals.parquet of a setting")
    parser.add_argument("--out", required=True, type=Path, help="scores.parquet")


def run(options: argparse.Namespace) -> None:
    """Write scores.parquet; the table has no rows if too many models diverged for an attack."""
    check_out(options.out, options.spec, options.signals)
    spec = AttackSpec.read(options.spec)
    metadata: dict[str, Any] = {"seed": spec.seed, "dataset": spec.dataset}
    metadata |= diverged_of_all([options.signals], "signals")
    try:
        file = SignalsFile(options.signals)
    except TooFewModels:
        if DIVERGED not in metadata:
            raise
        write_scores(options.out, (), (), (), (), metadata)
        return
    if spec.attacks.model_extra:
        metadata[OPTIONS] = spec.attacks.model_extra
    signals_metadata = table_metadata(options.signals, "signals")
    chosen = with_population(spec.attacks.model_extra, file.models)
    given = (
        signals_metadata.get(GIVEN, {})
        | population_files(spec.attacks.model_extra)
        | (given_digest(options.signals) or {})
    )
    if given:
        metadata[GIVEN] = given
    metadata |= readings_metadata(spec.attacks.methods if spec.stated else (), file.signals, file.derived)
    runs = plan(spec.attacks.methods, file.signals, spec.attacks.likelihoods)
    if not runs:
        names = ", ".join(signal.name for signal in file.signals)
        raise UserError(f"{options.signals}: no attack in attacks.methods reads any of its signals ({names})")
    metadata |= recognise(file.member).metadata
    null = permuted_membership(file.member, spec.seed, spec.dataset, file.persons)
    targets = slice(None)
    if TARGET in signals_metadata:  # a finished model is the target, and the others are only its references
        place = file.target.tolist().index(signals_metadata[TARGET])
        targets, metadata[TARGET] = slice(place, place + 1), signals_metadata[TARGET]

    def of_targets(one: Scores) -> tuple[Run, np.ndarray, np.ndarray]:
        return one.run, one.member[:, targets], one.scores[:, targets]

    with threadpool_limits(1, "blas"):  # the attacks' matrix products are too small to gain from threads
        # map keeps no scores while the next ones are computed; a generator's variable would
        scored = map(of_targets, scores_of(runs, file.read, file.member, null, chosen))
        write_scores(options.out, scored, runs, file.record, file.target[targets], metadata, file.persons)
