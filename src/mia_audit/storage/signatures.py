"""Detached signatures of an audit's list of files, in minisign's format (prehashed Ed25519, `ED`), so minisign can read them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.errors import UserError, first_line
from mia_audit.regular_files import OWNER_ONLY, open_regular
from mia_audit.storage.atomic import atomic_write
from mia_audit.storage.manifest import MANIFEST, SIGNATURE, root_hash

if TYPE_CHECKING:
    from minisign import PublicKey, SecretKey


def new_key(path: Path, password: str) -> Path:
    """Write a new secret key, encrypted if there is a password, and its public key next to it (`.pub`); return the public key."""
    from minisign import KeyPair

    public = path.with_name(f"{path.name}.pub")
    pair = KeyPair.generate()
    if password:
        pair.secret_key.encrypt(password)
    for place, content, mode in ((path, bytes(pair.secret_key), OWNER_ONLY), (public, bytes(pair.public_key), 0o644)):
        try:
            descriptor = open_regular(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            raise UserError(
                f"{place}: {(error.strerror or str(error)).lower()}; choose another place for a new key"
            ) from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.rstrip(b"\n") + b"\n")
    return public


def read_secret_key(key: Path, password: str) -> SecretKey:
    """Return a decrypted secret key of minisign. Raises UserError if it cannot be read or needs another password."""
    from minisign import Error, SecretKey

    try:
        with os.fdopen(open_regular(key, os.O_RDONLY), "rb") as file:
            secret = SecretKey.from_bytes(file.read(1 << 16))
        if secret.is_encrypted():
            secret.decrypt(password)
    except OSError as error:
        raise UserError(f"{key}: {(error.strerror or str(error)).lower()}; expected a secret key of minisign") from None
    except (Error, ValueError, MemoryError) as error:
        raise UserError(f"{key}: {first_line(error)}; expected a secret key of minisign and its password") from None
    return secret


def sign(root: Path, key: Path, password: str) -> str:
    """Sign the SHA256SUMS of results, write the signature beside it, and return the signature's trusted comment.

    Raises UserError for a key that cannot be read or needs another password.
    """
    secret = read_secret_key(key, password)
    comment = f"timestamp:{int(time.time())}\tfile:{MANIFEST}\tsha256:{root_hash(root)}\thashed"
    signature = secret.sign((root / MANIFEST).read_bytes(), prehash=True, trusted_comment=comment)
    with atomic_write(root / SIGNATURE) as partial:
        partial.write_bytes(bytes(signature).rstrip(b"\n") + b"\n")
    return comment


def check_signature(root: Path, key: str) -> str:
    """Return the trusted comment of results' signature. Raises UserError unless the signature is valid for this key and the current SHA256SUMS.

    The key is a public key of minisign: a file, or the base64 line in the file.
    """
    from minisign import Error, Signature

    path, public = root / SIGNATURE, _public_key(key)
    try:
        signature = Signature.from_bytes(path.read_bytes())
        public.verify((root / MANIFEST).read_bytes(), signature)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: no such file; these results are not signed") from None
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (Error, ValueError) as error:
        raise UserError(f"{path}: {first_line(error)}; not a signature of these results by that key") from None
    if not signature.is_prehashed():
        raise UserError(f"{path}: an old signature, without prehashing; expected a prehashed one (ED)")
    return str(signature.trusted_comment)


def _public_key(key: str) -> PublicKey:
    from minisign import Error, PublicKey

    try:
        return PublicKey.from_bytes(Path(key).read_bytes()) if Path(key).is_file() else PublicKey.from_base64(key)
    except (Error, ValueError, OSError) as error:
        raise UserError(
            f"{key}: {first_line(error)}; expected a public key of minisign: the file, or the line in the file"
        ) from None
