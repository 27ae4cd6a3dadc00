"""`mia-audit release`: train one model on the whole pool for release, and write its card."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.commands._arguments import add_batch, add_device, add_minutes, compute_of

if TYPE_CHECKING:
    from mia_audit.releasing.recipe import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_release(parser)


def add_release(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments for the recipe, the output and the signature."""
    parser.add_argument("config", type=Path, help="YAML file of an audit that has been run")
    parser.add_argument(
        "--setting", required=True, metavar="NAME", help="the audited setting: DATASET/ARCHITECTURE/MECHANISM-epsE"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="new folder of the release")
    parser.add_argument("--results", type=Path, help="folder of the audit's results (results/AUDIT)")
    parser.add_argument("--to", default="anybody", metavar="WHOM", help="the recipient, for the ledger (anybody)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="sign the release with this secret key of minisign")
    parser.add_argument("--no-password", action="store_true", help="for a key that is not encrypted")
    add_device(parser)
    add_batch(parser)
    add_minutes(parser)


def run(options: argparse.Namespace) -> None:
    """Charge the data set's ledger, train without a seed, and write weights, card and SHA256SUMS. If a key is given, sign them."""
    recipe, digest, password = prepared(options)
    from mia_audit.releasing.release import release

    finished(options, release(recipe, digest, options.out, compute_of(options), options.to), password)


def prepared(options: argparse.Namespace) -> tuple[Recipe, str, str]:
    """Return the recipe of the release, the config's SHA-256, and the password of the key (empty if there is none)."""
    from mia_audit.commands.sign import password_of
    from mia_audit.config.load import load_audit
    from mia_audit.runtime.gpus import acquire_gpu
    from mia_audit.storage.digests import sha256
    from mia_audit.storage.signatures import read_secret_key

    audit = load_audit(options.config)
    password = ""
    if options.key:
        password = password_of(options)
        read_secret_key(options.key, password)  # a charge is permanent, so the key must be known to be usable before it
    acquire_gpu(options.device)
    from mia_audit.releasing.recipe import Recipe

    recipe = Recipe.of(audit, options.setting, options.results or Path("results", audit.audit))
    return recipe, sha256(options.config), password


def finished(options: argparse.Namespace, card: dict[str, Any], password: str) -> None:
    """Print the release, and sign it."""
    from mia_audit.releasing.release import summary
    from mia_audit.storage.signatures import sign

    print(summary(card))
    if options.key:
        print(f"{options.out}: signed: {sign(options.out, options.key, password)}")
