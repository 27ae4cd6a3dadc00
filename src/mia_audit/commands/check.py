"""`mia-audit check`: check a config without running any code that it names."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from mia_audit.config.schema import Audit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="the audit's YAML file")
    parser.add_argument(
        "--with-code",
        action="store_true",
        help="also load the config's Python files, and check what they define",
    )


def run(options: argparse.Namespace) -> None:
    """Check that a config is plain YAML, follows the schema and names files that exist; UserError for the first mistake."""
    from mia_audit.config.plain import code_named, read_plain
    from mia_audit.registry import file_digest

    values = read_plain(options.config)
    code = code_named(values)
    for name in code:
        digest = file_digest(name)
        print(f"{options.config}: runs {name}" + (f" (SHA-256 {digest})" if digest else ""))
    if code and not options.with_code:
        print(
            f"{options.config}: plain YAML; it names {len(code)} piece{'s' * (len(code) > 1)} of code, which will run with your"
            " permissions. Read the code, then check the rest with --with-code, which loads the code"
        )
        return
    from mia_audit.config.load import check_audit

    audit = check_audit(values, str(options.config))
    files = list(_files(audit))
    for key, path in files:
        if not path.exists():
            raise UserError(
                f"{options.config}: {key}: no such file: {path}; paths are relative to the folder in which the audit is started"
            )
    if audit.report.policy:
        from mia_audit.config.policy import load_policy

        load_policy(Path(audit.report.policy))
    exist = "its file or folder exists" if len(files) == 1 else f"its {len(files)} files and folders exist"
    print(f"{options.config}: plain YAML, follows the schema, and {exist if files else 'names no file'}")


def _files(audit: "Audit") -> list[tuple[str, Path]]:
    named = [
        *((f"datasets.{name}.path", one.path) for name, one in audit.datasets.items() if not one.download),
        *((f"imported.{name}.signals", one.signals) for name, one in audit.imported.items()),
        *(
            (f"architectures.{name}.pretrained", one.pretrained)
            for name, one in audit.architectures.items()
            if one.pretrained not in ("none", "public", "hub")
        ),
        ("report.policy", audit.report.policy),
    ]
    return [(key, Path(path)) for key, path in named if path]
