"""`compute.weights: temporary`: weights go once signals are made, and nothing is trained again for that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .test_faults import contents

NONE = Path("digits", "vit", "none-epsinf")


def weights(results: Path) -> list[int]:
    """Return the numbers of the models without privacy that have weights."""
    return sorted(
        int(path.parent.name[7:]) for path in (results / NONE / "models").glob("shadow-*/weights.safetensors")
    )


@pytest.mark.slow
def test_weights_go_and_reruns_and_growth_need_none(
    finished: Any, copy_of_finished: Callable[[dict[str, Any]], Any], tiny: dict[str, Any]
) -> None:
    """Explanations of four models are compared: these keep their weights."""
    temporary = tiny | {"compute": tiny["compute"] | {"weights": "temporary"}}
    copy = copy_of_finished(temporary)
    assert copy.planned() == {"discard": 2, "manifest": 1}
    assert (result := copy.run()).returncode == 0, result.stdout
    assert weights(finished.results) == [0, 1, 2, 3, 4] and weights(copy.results) == [0, 1, 2, 3]
    assert copy.planned() == {}
    kept = {
        name: data for name, data in contents(finished.results).items() if name.endswith((".parquet", ".csv", ".html"))
    }
    assert {name: data for name, data in contents(copy.results).items() if name in kept} == kept

    copy.configure(temporary | {"membership": {"models": 6}})
    signals = f"results/tiny/{NONE}/signals.parquet"
    assert (result := copy.run(signals)).returncode == 0, result.stdout
    log = (copy.results / "logs" / "train" / "digits-vit-none-epsinf-003-005.log").read_text()
    assert "shadow 4 of 3-5: already trained" in log and "shadow 5 of 3-5: already" not in log
    assert weights(copy.results) == [0, 1, 2, 3, 5]

    copy.configure(temporary | {"explainers": {"methods": ["ixg", "ig", "gradient_shap"], "ig_nodes": 2}})
    result = copy.run(signals)
    assert result.returncode == 1 and "shadow-4: the weights were deleted" in result.stdout
