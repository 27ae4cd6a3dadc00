"""`mia-audit release`: train one model on the whole pool for release, and write its card."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_batch, add_device, add_minutes, compute_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="YAML file of an audit that has been run")
    parser.add_argument(
        "--setting", required=True, metavar="NAME", help="the audited setting: DATASET/ARCHITECTURE/MECHANISM-epsE"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="new folder of the release")
    parser.add_argument("--results", type=Path, help="folder of the audit's results (results/AUDIT)")
    parser.add_argument("--to", default="anybody", metavar="WHOM", help="the recipient, for the ledger (anybody)")
    add_device(parser)
    add_batch(parser)
    add_minutes(parser)


def run(options: argparse.Namespace) -> None:
    """Charge the data set's ledger, train without a seed, and write weights, card and SHA256SUMS."""
    from mia_audit.config.load import load_audit
    from mia_audit.runtime.gpus import acquire_gpu
    from mia_audit.storage.digests import sha256

    audit = load_audit(options.config)
    acquire_gpu(options.device)
    from mia_audit.releasing.recipe import Recipe
    from mia_audit.releasing.release import release, summary

    recipe = Recipe.of(audit, options.setting, options.results or Path("results", audit.audit))
    print(summary(release(recipe, sha256(options.config), options.out, compute_of(options), options.to)))
