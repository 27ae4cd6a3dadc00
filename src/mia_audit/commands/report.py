"""`mia-audit report`: write the self-contained HTML report, and provenance.json beside it."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.report_specs import ReportSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument(
        "--out", type=Path, required=True, help="the page; answer.json and provenance.json are written beside it"
    )


def run(options: argparse.Namespace) -> None:
    """Read all results of the audit, write the page, its answer and its provenance."""
    from mia_audit.report.data.find import find
    from mia_audit.report.data.opened import audited
    from mia_audit.report.data.provenance import provenance, write_page
    from mia_audit.report.data.spec import parse_spec
    from mia_audit.report.page.render import render
    from mia_audit.report.terminal import answer_content

    results = audited(options.results, parse_spec(ReportSpec.read(options.spec).model_dump(mode="json")))
    findings = find(results)
    sources = provenance(results, findings.settings)
    page, answer = render(results, findings, sources), answer_content(results, findings)
    write_page(options.out, page, answer, sources, results.spec.config)
