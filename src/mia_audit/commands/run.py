"""`mia-audit run`: check a config, then run the workflow on it."""

import argparse
import subprocess
import sys
from pathlib import Path

from mia_audit.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="the audit's YAML file")
    parser.add_argument("--cores", default="all", help="processor cores (all)")
    parser.add_argument(
        "--checkout",
        type=Path,
        default=Path(),
        help="folder of the workflow (.); results are written below the current folder",
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="only print what would run")
    parser.add_argument("options", nargs="*", metavar="-- …", help="further options for snakemake, after --")


def run(options: argparse.Namespace) -> int:
    """Run snakemake on a valid config."""
    plan = ["--dry-run"] if options.dry_run else []
    return start(options.config, options.cores, [*plan, *options.options], options.checkout)


def start(config: Path, cores: str | int, options: list[str], checkout: Path) -> int:
    """Run the workflow on a config and return its exit code; UserError if the config has a mistake, or there is no workflow."""
    from mia_audit.config.load import load_audit

    load_audit(config)
    snakefile = checkout / "Snakefile"
    if not snakefile.is_file():
        raise UserError(f"{snakefile}: no such file; run in the checkout of mia-audit, or give its folder (checkout)")
    # the logger comes first, because its option takes all arguments up to the next option, including targets
    words = ["--logger", "mia-audit", "--snakefile", snakefile, "--configfile", config, "--cores", cores, *options]
    return subprocess.run([sys.executable, "-m", "snakemake", *map(str, words)], check=False).returncode
