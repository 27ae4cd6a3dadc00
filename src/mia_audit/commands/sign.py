"""`mia-audit sign`: sign finished results, or create a key for signing."""

import argparse
import os
from getpass import getpass
from pathlib import Path

from mia_audit.errors import UserError

PASSWORD = "MIA_AUDIT_KEY_PASSWORD"
"""The environment variable from which a password is read without a prompt."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--results", type=Path, help="folder of the audit's results, which are verified first")
    what.add_argument("--new-key", type=Path, metavar="FILE", help="write a new secret key, and FILE.pub beside it")
    parser.add_argument("--key", type=Path, metavar="FILE", help="secret key of minisign or of --new-key")
    parser.add_argument("--no-password", action="store_true", help="for a key that is not encrypted")


def run(options: argparse.Namespace) -> None:
    """Write SHA256SUMS.minisig, or a pair of keys. Raises UserError for results that were changed."""
    from mia_audit.commands.verify import verified
    from mia_audit.storage.signatures import new_key, sign

    if options.new_key:
        public = new_key(options.new_key, password_of(options, again=True))
        print(f"secret key: {options.new_key}; public key, to give to others: {public}")
        return
    if options.key is None:
        raise UserError("--key: missing; give the secret key with which to sign (--new-key creates one)")
    verified(options.results)
    print(f"{options.results}: signed: {sign(options.results, options.key, password_of(options))}")


def password_of(options: argparse.Namespace, again: bool = False) -> str:
    """Return the password of a key, from the environment or from a prompt."""
    if options.no_password:
        return ""
    if PASSWORD in os.environ:
        return os.environ[PASSWORD]
    try:
        password = getpass("Password of the key: ")
        if again and getpass("Once more: ") != password:
            raise UserError("the two passwords differ; nothing was written")
    except (EOFError, OSError):
        raise UserError(f"no password: set {PASSWORD}, or give --no-password for a key that is not encrypted") from None
    return password
