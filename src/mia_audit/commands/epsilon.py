"""`mia-audit epsilon`: compute the ε of a noise multiplier, or the noise multiplier of an ε."""

import argparse

from mia_audit.errors import UserError

BOTH = ("pld", "rdp")
"""Accountants used if none is named: the default of mechanisms first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--noise-multiplier", type=float, help="noise on the sum, in units of its sensitivity")
    given.add_argument("--target-epsilon", type=float, help="ε to reach")
    parser.add_argument("--batch", type=int, required=True, help="expected number of records per step")
    parser.add_argument("--records", type=int, required=True, help="training set of one model (not the whole pool)")
    parser.add_argument("--epochs", type=int, required=True, help="expected passes over the training set")
    parser.add_argument("--delta", type=float, required=True, help="δ of the budget")
    parser.add_argument(
        "--accountant",
        action="append",
        choices=["pld", "prv", "rdp"],
        help="accountant; may be repeated (pld and rdp)",
    )


def run(options: argparse.Namespace) -> None:
    """Print the terms, and ε or the noise multiplier by every accountant."""
    _check(options)
    from mia_audit.privacy.accounting import epsilon_spent, noise_multiplier_for, steps_per_epoch

    rate = options.batch / options.records
    steps = options.epochs * steps_per_epoch(options.records, options.batch)
    print(f"{options.records:,} records, batch {options.batch:,}: Poisson sampling at rate {rate:.6g}, {steps:,} steps")
    print(f"δ = {options.delta:g}, unit: one record, adjacency: added or removed")
    if options.delta >= 1 / options.records:
        print(f"warning: δ is not below 1/records = {1 / options.records:.3g}: one record may be revealed in full")
    print(f"{'accountant':<12}{'noise multiplier':<18}ε")
    for accountant in options.accountant or BOTH:
        multiplier = options.noise_multiplier
        if multiplier is None:
            try:
                multiplier = noise_multiplier_for(options.target_epsilon, rate, steps, options.delta, accountant)
            except UserError:
                if options.accountant or accountant == BOTH[0]:
                    raise
                print(f"{accountant:<12}{'none':<18}cannot certify an ε this small at this δ")
                continue
        epsilon = epsilon_spent(multiplier, rate, steps, options.delta, accountant)
        print(f"{accountant:<12}{multiplier:<18.6g}{epsilon:.4g}")


def _check(options: argparse.Namespace) -> None:
    for name in ("batch", "records", "epochs", "noise_multiplier", "target_epsilon"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{name.replace('_', '-')}: a positive number was expected, not {value:g}")
    if not 0 < options.delta < 1:
        raise UserError(f"--delta: a number between 0 and 1 was expected, not {options.delta:g}")
    if options.batch > options.records:
        raise UserError(f"--batch: {options.batch} records per step, but there are only {options.records}")
