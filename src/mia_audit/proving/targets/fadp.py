"""`fadp`: one record decides which channels look important, but the noise may depend only on public records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mia_audit.proving.catalogue import Options, targets
from mia_audit.proving.mechanism import Mechanism, Pair

DEPTH = 2
"""Input channels of the convolution."""


@targets.register("fadp")
def fadp(options: Options) -> Sequence[Mechanism]:
    """Return training runs with importance from public records (computed once, or renewed) or past noisy gradients, and with groups."""
    from mia_audit.proving.canaries import channel_scene
    from mia_audit.proving.training import Scene

    claim = options.claim("add-remove").gaussian()
    scene = channel_scene(DEPTH)
    records = len(scene.labels)
    data = {"inputs": scene.inputs, "labels": scene.labels}
    with_it = {name: value.roll(-1, 0) for name, value in data.items()}  # the canary is the last record
    pair = Pair("a record of another channel", with_it, {name: value[:-1] for name, value in with_it.items()})
    public = {"mechanism": "fadp", "delta": claim.delta, "importance": "public"}
    past, renewed = public | {"importance": "past"}, public | {"importance": "renewed"}
    groups = public | {"clipping": "flat", "group_clips": [0.5, 0.5, 0.5, 1.0]}
    listed: dict[str, Any] = {
        "importance from public records": Scene(scene.model, public, claim.epsilon, records, public=scene.public),
        "importance renewed by the weights": Scene(
            scene.model, renewed, claim.epsilon, records, epochs=2, public=scene.public
        ),
        "groups clipped apart": Scene(scene.model, groups, claim.epsilon, records, public=scene.public),
        "importance from past gradients": Scene(scene.model, past, claim.epsilon, records, epochs=2),
    }
    return [Mechanism(name, one.train, claim, [pair], secret_seed=True) for name, one in listed.items()]
