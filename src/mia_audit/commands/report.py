"""`mia-audit report`: the self-contained page, and provenance.json beside it."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--spec", required=True, help="what the report depends on besides files, as JSON")
    parser.add_argument(
        "--private", default="", help="the studies of private explanations, as JSON; nothing where there are none"
    )
    parser.add_argument("--out", type=Path, required=True, help="the page; provenance.json is written beside it")


def run(options: argparse.Namespace) -> None:
    """Read everything that the audit left on disk, write the page and where its numbers come from."""
    from mia_audit.report.findings import find
    from mia_audit.report.gaps import audited
    from mia_audit.report.page import render
    from mia_audit.report.provenance import provenance
    from mia_audit.report.results import parse_spec
    from mia_audit.storage import write_json, write_text

    results = audited(options.results, parse_spec(options.spec, options.private))
    findings = find(results)
    sources = provenance(results, findings.settings)
    page = render(results, findings, sources)
    write_json(options.out.parent / "provenance.json", sources)
    write_text(options.out, page)
