"""The shape of the DAG: how many jobs of which rule, and what a change of the config reruns."""

from collections.abc import Callable
from typing import Any

import pytest

SETTING = {"gather": 2, "attack": 2, "evaluate": 2, "tables": 1, "figures": 1, "report": 1, "all": 1}
MEASURED = {"interpretability": 1, "tables": 1, "figures": 1, "report": 1}


def test_a_whole_audit(workflow: Any) -> None:
    counts = workflow.planned()
    total = counts.pop("total")
    assert counts == SETTING | {
        "pool": 1,
        "membership": 1,
        "architecture": 1,
        "pretrain": 1,
        "train": 2 * 2,
        "training": 2,
        "cost": 1,
        "signals": 2 * 2,
        "interpretability": 1,
    }
    assert total == sum(counts.values())


def test_without_public_pre_training_there_is_no_job_for_it(workflow: Any, tiny: dict[str, Any]) -> None:
    tiny["architectures"]["vit"]["pretrained"] = "none"
    workflow.configure(tiny)
    assert "pretrain" not in workflow.planned()


def test_an_architecture_is_explained_by_what_applies_to_it(workflow: Any, tiny: dict[str, Any]) -> None:
    tiny["architectures"]["llm"] = {"model": "locally-linear-maps", "sweep": {"maps": [1, 3]}}
    tiny["architectures"]["vit"]["mechanisms"] = {"none": {}}
    workflow.configure(tiny | {"explainers": {"methods": ["ixg", "ig", "llm-local", "llm-global"]}})
    counts = workflow.planned()
    assert counts["architecture"] == 3
    assert counts["gather"] == 1 + 2 * 2  # the maps at two numbers of maps under both mechanisms, the other without
    assert counts["signals"] == 2 + 4 * 3  # gradient and ig of every setting, and what the maps say of themselves


def test_imported_signals_stand_beside_trained_models(workflow: Any, tiny: dict[str, Any]) -> None:
    (workflow.folder / "theirs.parquet").touch()
    workflow.configure(tiny | {"imported": {"theirs": {"signals": "theirs.parquet"}}})
    counts = workflow.planned()
    assert (counts["imported"], counts["gather"], counts["attack"]) == (1, 2, 3)


@pytest.mark.parametrize(
    ("section", "value", "expected"),
    [
        (
            "attacks",
            {"methods": ["threshold"], "variances": ["shrunk"]},
            {"attack": 2, "evaluate": 2, "tables": 1, "figures": 1, "report": 1},
        ),
        ("evaluation", {"fprs": [0.05]}, {"evaluate": 2, "tables": 1, "figures": 1, "report": 1}),
        ("report", {"title": "Another"}, {"tables": 1, "figures": 1, "report": 1}),
        (
            "explainers",
            {"methods": ["ixg", "ig", "gradient_shap"], "ig_nodes": 2},
            {"signals": 2, **SETTING, **MEASURED},
        ),
        ("explainers", {"methods": ["ixg", "saliency", "ig"], "ig_nodes": 2}, MEASURED),
        ("interpretability", {"records": 6, "models": 4, "shown": 2, "measures": ["cosine"]}, MEASURED),
        (
            "mechanisms",
            {"none": {}, "dp-sgd": {"epsilon": [8, 2]}},
            {
                "train": 2,
                "training": 1,
                "cost": 1,
                "signals": 2,
                "gather": 1,
                "attack": 1,
                "evaluate": 1,
                **MEASURED,
            },
        ),
        (
            "architectures",
            {
                "vit": {
                    "model": "vision_transformer",
                    "parameters": {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2},
                    "pretrained": "public",
                    "pretraining": {"epochs": 2, "batch": 20},
                }
            },
            {
                "architecture": 1,
                "pretrain": 1,
                "train": 4,
                "training": 2,
                "cost": 1,
                "signals": 4,
                **SETTING,
                **MEASURED,
            },
        ),
        (
            "mechanisms",
            {"none": {}, "dp-sgd": {"epsilon": [8], "clipping": "flat", "clip_norm": 3}},
            {
                **{"train": 2, "training": 1, "cost": 1, "signals": 2, "gather": 1, "attack": 1, "evaluate": 1},
                **MEASURED,
            },
        ),
        ("compute", {"shadows_per_job": 3, "blocks_explained_per_job": 2, "batch": 32, "keep_going": True}, {}),
    ],
    ids=[
        "attacks",
        "evaluation",
        "report",
        "explainer",
        "free-explainer",
        "measures",
        "epsilon",
        "parameters",
        "clipping",
        "nothing",
    ],
)
def test_a_change_reruns_only_what_depends_on_it(
    copy_of_finished: Callable[[dict[str, Any]], Any],
    tiny: dict[str, Any],
    section: str,
    value: dict[str, Any],
    expected: dict[str, int],
) -> None:
    counts = copy_of_finished(tiny | {section: value}).planned()
    counts.pop("total", None)
    counts.pop("all", None)
    assert counts == {rule: count for rule, count in expected.items() if rule != "all"}
