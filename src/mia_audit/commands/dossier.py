"""`mia-audit dossier`: pack the documents of an audit and a release into one RO-Crate, with a page of questions and answers."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("results", type=Path, help="folder of the finished audit's results")
    parser.add_argument("--release", type=Path, metavar="DIR", help="folder of the released model, with card.json")
    parser.add_argument(
        "--ledger", type=Path, metavar="FILE", help="ledger of the data set; an extract of it is packed"
    )
    parser.add_argument("--verdicts", type=Path, metavar="FILE", help="the JSON file that mia-audit gate --json wrote")
    parser.add_argument(
        "--setting", default="", metavar="NAME", help="the setting that was released (the card's, or all settings)"
    )
    parser.add_argument("--license", default="", metavar="TEXT", help="who may use the dossier: a URL or a sentence")
    parser.add_argument("--controller", default="", metavar="NAME", help="who is responsible for the records")
    parser.add_argument("--out", type=Path, required=True, help="a new folder, or a new file that ends in .zip")


def run(options: argparse.Namespace) -> None:
    """Write the dossier and print how many questions are left for the controller."""
    from mia_audit.report.dossier.contents import gather
    from mia_audit.report.dossier.crate import LICENSE, UNNAMED, write_dossier
    from mia_audit.report.dossier.questions import answers

    contents = gather(options.results, options.release, options.ledger, options.verdicts, options.setting)
    write_dossier(contents, options.out, options.license or LICENSE, options.controller or UNNAMED)
    given = [answer for _, answer in answers(contents)]
    unanswered = sum(bool(answer.controller) for answer in given)
    print(
        f"{options.out}: {len(given)} questions; {unanswered} of them have a part that only the controller can answer"
    )
