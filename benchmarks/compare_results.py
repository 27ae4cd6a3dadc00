"""Compare two results folders of one audit to the last bit, for example of two commits.

    python benchmarks/compare_results.py results/before results/after --renamed variance=likelihood

Every value of every metrics.parquet and training.parquet is compared, except seconds, which differ between runs, and columns of
only one side, which are listed. `--only none` compares the settings of one mechanism. Exits with 1 if a value differs.
"""

import argparse
import sys
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal

TABLES = ("metrics.parquet", "training.parquet")
CLOCKED = ("seconds", "records_per_second")


def compare(before: Path, after: Path, renamed: dict[str, str]) -> str:
    """Return the differences between two tables; empty if there are none."""
    one, two = (pl.read_parquet(path) for path in (before, after))
    one = one.rename({old: new for old, new in renamed.items() if old in one.columns})
    shared = [name for name in one.columns if name in two.columns and name not in CLOCKED]
    single = sorted(set(one.columns) ^ set(two.columns))
    text = lambda frame: frame.select(pl.col(shared)).with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))  # noqa: E731
    try:
        assert_frame_equal(text(one), text(two), check_exact=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    print(
        f"  {len(one):,} rows of {len(shared)} columns equal"
        + (f"; on one side only: {', '.join(single)}" * bool(single))
    )
    return ""


def main() -> int:
    """Compare every table of two results folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--only", default="", help="compare the settings whose mechanism has this name")
    given = parser.parse_args()
    renamed = dict(pair.split("=") for pair in given.renamed)
    paths = [path for name in TABLES for path in sorted(given.before.glob(f"*/*/{given.only or '*'}-eps*/{name}"))]
    differ = 0
    for path in paths:
        name = path.relative_to(given.before)
        print(name)
        other = given.after / name
        if what := compare(path, other, renamed) if other.exists() else "missing":
            differ += 1
            print(f"  differs: {what}")
    print(f"{len(paths) - differ} of {len(paths)} tables equal")
    return 1 if differ or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
