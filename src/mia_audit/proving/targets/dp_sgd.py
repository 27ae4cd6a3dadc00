"""`dp-sgd`: real private training of tiny models. The tester observes every noisy gradient and the final weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mia_audit.proving.catalogue import Options, targets
from mia_audit.proving.mechanism import Mechanism, Pair

RECORDS = 8


@targets.register("dp-sgd")
def dp_sgd(options: Options) -> Sequence[Mechanism]:
    """Return training runs of one and several steps, with and without sampling, in float32 and bf16, killed and resumed. n is public."""
    from mia_audit.proving.training import (
        LONG,
        Scene,
        canary_pairs,
        linear,
        locally_linear_maps,
        perceptron,
        rows,
        sensitivity,
    )

    claim = options.claim("add-remove").gaussian()
    section = {"mechanism": "dp-sgd", "delta": claim.delta}
    pairs = canary_pairs(RECORDS)
    alone = Pair("a record alone", np.array([[LONG, 0.0, 0.0]]), rows(0))
    other = np.vstack([rows(RECORDS - 1), [-LONG, 0.5, 1.0]])
    terms = ({"delta": claim.delta / 10}, {"epsilon": claim.epsilon / 2}, {"clipping": "flat", "clip_norm": 0.5})
    scenes = {
        "four steps": (Scene(linear, section, claim.epsilon, RECORDS, epochs=4), pairs[:2]),
        "batches of one in two": (Scene(linear, section, claim.epsilon, RECORDS, epochs=1, batch=4), pairs[:2]),
        "one record": (Scene(linear, section, claim.epsilon, 1, epochs=1), [alone]),
        "killed and resumed": (Scene(linear, section, claim.epsilon, RECORDS, epochs=2, killed=True), pairs[:1]),
        "perceptron in bf16": (
            Scene(perceptron, section, claim.epsilon, RECORDS, precision="bf16"),
            [pairs[0], pairs[6]],
        ),
        "locally linear maps in bf16": (
            Scene(locally_linear_maps, section, claim.epsilon, RECORDS, precision="bf16"),
            [*pairs[:1], *pairs[2:4]],
        ),
    }
    step = Scene(linear, section, claim.epsilon, RECORDS)
    listed = [Mechanism("one step", step.train, claim, pairs, terms, other, secret_seed=True)]
    exact = replace(scenes["locally linear maps in bf16"][0], precision="float32")
    probed = {
        "perceptron in bf16": [sensitivity(scenes["perceptron in bf16"][0])],
        "locally linear maps in bf16": [sensitivity(scenes["locally linear maps in bf16"][0]), sensitivity(exact)],
    }
    return listed + [
        # with sampling the mechanism is not Gaussian
        Mechanism(
            name,
            scene.train,
            claim if scene.batch is None else replace(claim, mu=None),
            tried,
            probes=probed.get(name, ()),
        )
        for name, (scene, tried) in scenes.items()
    ]
