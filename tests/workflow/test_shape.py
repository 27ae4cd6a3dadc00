"""How many jobs of which rule an audit has, and which of them a change of the config reruns."""

from collections.abc import Callable
from typing import Any

import pytest

SETTING = {"merge": 2, "attack": 2, "evaluate": 2, "report": 1, "manifest": 1}
MEASURED = {"explanation_metrics": 1, "report": 1, "manifest": 1}


def test_a_whole_audit(workflow: Any) -> None:
    assert workflow.planned() == SETTING | {
        "pool": 1,
        "membership": 1,
        "architecture": 1,
        "pretrain": 1,
        "train": 2 * 2,
        "signals": 2,
        "explanation_metrics": 1,
    }


def test_without_public_pre_training_there_is_no_job_for_it(workflow: Any, tiny: dict[str, Any]) -> None:
    tiny["architectures"]["vit"]["pretrained"] = "none"
    workflow.configure(tiny)
    assert "pretrain" not in workflow.planned()


def test_canaries_are_drawn_once_and_trained_on_once_a_setting(workflow: Any, tiny: dict[str, Any]) -> None:
    before = workflow.planned()
    settings = ["digits/vit/none-epsinf", "digits/vit/dp-sgd-eps8"]
    workflow.configure(tiny | {"canaries": {"settings": settings, "count": 20}})
    assert workflow.planned() == before | {"canary_draw": 1, "canary_bounds": 2}


def test_a_paper_that_is_named_is_one_more_job(workflow: Any, tiny: dict[str, Any]) -> None:
    before = workflow.planned()
    workflow.configure(tiny | {"report": {"paper": "huang2024"}})
    assert workflow.planned() == before | {"paper": 1}


def test_an_architecture_is_explained_by_what_applies_to_it(workflow: Any, tiny: dict[str, Any]) -> None:
    tiny["architectures"]["llm"] = {"model": "locally-linear-maps", "sweep": {"maps": [1, 3]}}
    tiny["architectures"]["vit"]["mechanisms"] = {"none": {}}
    workflow.configure(tiny | {"explainers": {"methods": ["ixg", "ig", "llm-local", "llm-global"]}})
    counts = workflow.planned()
    assert counts["architecture"] == 3
    assert counts["merge"] == 1 + 2 * 2  # two numbers of maps under both mechanisms, and the ViT without privacy
    assert counts["signals"] == 1 + 2 * 2


def test_imported_signals_stand_beside_trained_models(workflow: Any, tiny: dict[str, Any]) -> None:
    (workflow.folder / "theirs.parquet").touch()
    workflow.configure(tiny | {"imported": {"theirs": {"signals": "theirs.parquet"}}})
    counts = workflow.planned()
    assert (counts["imported"], counts["merge"], counts["attack"]) == (1, 2, 3)


@pytest.mark.parametrize(
    ("section", "value", "expected"),
    [
        (
            "attacks",
            {"methods": ["threshold"], "likelihoods": ["shrunk"]},
            {"attack": 2, "evaluate": 2, "report": 1, "manifest": 1},
        ),
        ("evaluation", {"fprs": [0.05]}, {"evaluate": 2, "report": 1, "manifest": 1}),
        (
            "datasets",
            {"digits": {"records": 60, "public": 40, "groups": ["class"]}},
            {"groups": 1, "evaluate_groups": 2, "report": 1, "manifest": 1},
        ),
        ("report", {"title": "Another"}, {"report": 1, "manifest": 1}),
        (
            "explainers",
            {"methods": ["ixg", "ig", "gradient_shap"], "ig_nodes": 2},
            {"signals": 2, **SETTING, **MEASURED},
        ),
        ("explainers", {"methods": ["ixg", "saliency", "ig"], "ig_nodes": 2}, MEASURED),
        ("explanation_metrics", {"records": 6, "models": 4, "shown": 2, "measures": ["cosine"]}, MEASURED),
        (
            "mechanisms",
            {"none": {}, "dp-sgd": {"epsilon": [8, 2], "accountant": "rdp"}},
            {
                "train": 2,
                "signals": 1,
                "merge": 1,
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
                "signals": 2,
                **SETTING,
                **MEASURED,
            },
        ),
        (
            "mechanisms",
            {"none": {}, "dp-sgd": {"epsilon": [8], "accountant": "rdp", "clipping": "flat", "clip_norm": 3}},
            {
                **{"train": 2, "signals": 1, "merge": 1, "attack": 1, "evaluate": 1},
                **MEASURED,
            },
        ),
        ("compute", {"shadows_per_job": 3, "blocks_explained_per_job": 2, "micro_batch": 32, "keep_going": True}, {}),
    ],
    ids=[
        "attacks",
        "evaluation",
        "groups",
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
    assert copy_of_finished(tiny | {section: value}).planned() == expected
