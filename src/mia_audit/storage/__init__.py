"""Files and Parquet tables: written atomically, with a digest that is checked on reading."""

from mia_audit.storage.atomic import atomic_folder, atomic_write, check_out, create_once, write_json, write_text
from mia_audit.storage.digests import sha256
from mia_audit.storage.tables import (
    ROW_GROUPS,
    SCHEMA_VERSION,
    given_digest,
    naming_damage,
    open_table,
    read_frame,
    read_table,
    row_groups_of,
    table_metadata,
    write_table,
)

__all__ = [
    "ROW_GROUPS",
    "SCHEMA_VERSION",
    "atomic_folder",
    "atomic_write",
    "check_out",
    "create_once",
    "given_digest",
    "naming_damage",
    "open_table",
    "read_frame",
    "read_table",
    "row_groups_of",
    "sha256",
    "table_metadata",
    "write_json",
    "write_table",
    "write_text",
]
