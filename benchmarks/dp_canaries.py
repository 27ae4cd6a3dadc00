"""Compare the lower bound on ε of a white-box audit with the accountant's ε.

    python benchmarks/dp_canaries.py                          one step and five, both clippings, three budgets (about five minutes)
    python benchmarks/dp_canaries.py --trials 1000            a rougher look

Every trial takes real training steps with or without the canary; the bound holds at 99 % confidence. Without subsampling the
mechanism is Gaussian, and the bound should be close to ε. With Poisson sampling only the bound for any mechanism applies,
which detects errors but is far from tight.
"""

import argparse

import torch

from mia_audit.privacy.catalogue import Mechanism, mechanisms
from mia_audit.proving.canaries import CANARIES, Game, audit

SECTIONS = {
    "automatic": Mechanism(mechanism="dp-sgd"),
    "flat 0.5": Mechanism(mechanism="dp-sgd", clipping="flat", clip_norm=0.5),
}


def main() -> None:
    """Print one line per game."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[2.0, 4.0, 8.0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'clipping':<12}{'sampling rate':<15}{'steps':<7}{'promised ε':<12}{'proved ε':<10}share")
    for clipping, section in SECTIONS.items():
        factory = mechanisms[section.mechanism]
        for steps in options.steps:
            for epsilon in options.epsilon:
                for share in (1.0, 0.5):
                    game = Game(epsilon, share, steps, options.trials, pilot=options.trials // 2)
                    proof = audit(lambda job, s=section, f=factory: f(s, job), game, CANARIES["weight"])
                    bound = proof.gaussian if share == 1 else proof.any_mechanism
                    start = f"{clipping:<12}{share:<15g}{steps:<7}{epsilon:<12g}"
                    print(f"{start}{bound:<10.2f}{bound / epsilon:.0%}", flush=True)


if __name__ == "__main__":
    main()
