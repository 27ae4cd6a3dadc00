"""`mia-audit private-report`: tables and figures of private explanations, and of the attacks on them."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--spec", required=True, help='JSON: {"studies": by data set}')
    parser.add_argument(
        "--audit", default="", help="what the audit's own figures depend on, where something is attacked"
    )
    parser.add_argument("--explainers", action="store_true", help="private explanations of trained models are attacked")


def run(options: argparse.Namespace) -> None:
    """Write everything that `report.outputs` says."""
    from mia_audit.pools.files import read_records
    from mia_audit.report import private_figures as figures
    from mia_audit.report.figures import paper_style, save
    from mia_audit.report.private_results import PrivateResults
    from mia_audit.report.results import Results, parse_spec
    from mia_audit.report.tables import to_csv
    from mia_audit.storage import write_text

    results = PrivateResults.of(options.results, options.spec)
    folder = options.results / "figures"
    with paper_style():
        if results.studied:
            write_text(options.results / "tables" / "private_explanations.csv", to_csv(results.explanations()))
            write_text(options.results / "tables" / "private_published.csv", to_csv(results.published()))
            save(figures.loss_figure(results), folder, "private_loss")
            save(figures.spending_figure(results), folder, "private_spending")
            save(figures.losses_figure(results), folder, "private_losses")
            save(figures.steps_figure(results), folder, "private_steps")
            save(figures.queries_figure(results), folder, "private_queries")
        if any(one.setting for one in results.studied):
            save(figures.training_figure(results), folder, "private_training")
        for dataset, study in results.spec["studies"].items():
            if study["pictures"]:
                pool = read_records(options.results / "pools" / dataset)
                save(figures.pictures_figure(results, dataset, pool.data), folder, f"private_pictures_{dataset}")
        if options.audit:
            audited = Results(options.results, parse_spec(options.audit))
            if any(study["attacked"] for study in results.spec["studies"].values()):
                save(figures.sets_figure(audited), folder, "private_sets")
            if options.explainers:
                save(figures.attacks_figure(audited), folder, "private_attacks")
