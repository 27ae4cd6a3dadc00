"""Measure screens of one model with one, two or four other models as references, on published scores.

    python benchmarks/references.py SCORES

SCORES is the folder that `mia-audit reproduce` reads. Every model is the target once, and the following models are its
references. A row per attack and number of references: mean AUC and TPR at 1 % FPR over targets, for the records that
the attack scores, and the share of these records. The row without references is one threshold on the loss. One minute
of one core.
"""

import sys
from pathlib import Path

import numpy as np

from mia_audit.attacks.io.published import read_per_model_csv
from mia_audit.evaluation.metrics import auc, tpr_at_fpr
from mia_audit.evaluation.screen import against_references


def main(folder: Path) -> None:
    """Print the table."""
    published = read_per_model_csv(folder, {})
    signals, models = published.signals, published.member.shape[1]
    found: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    for target in range(models):
        inside = published.member[:, target]
        alone = -signals["loss"][:, target]
        found.setdefault((0, "threshold"), []).append((auc(alone, inside), tpr_at_fpr(alone, inside, 0.01), 1.0))
        for references in (1, 2, 4):
            chosen = (target + np.arange(references + 1)) % models
            read = {name: signals[name][:, chosen] for name in ("loss", "confidence")}
            for (attack, *_), scores in against_references(read, published.member[:, chosen]):
                known = ~np.isnan(scores)
                measured = (auc(scores[known], inside[known]), tpr_at_fpr(scores[known], inside[known], 0.01))
                found.setdefault((references, attack), []).append((*measured, float(known.mean())))
    print("| references | attack | AUC | TPR at 1 % | records scored |", "|---" * 5 + "|", sep="\n")
    for (references, attack), values in sorted(found.items(), key=lambda item: item[0][0]):
        area, rate, share = np.mean(values, axis=0)
        print(f"| {references} | `{attack}` | {area:.3f} | {100 * rate:.1f} % | {100 * share:.0f} % |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
