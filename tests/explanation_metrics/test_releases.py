"""Measures of maps in every form in which they are released, beside the full map of the same model."""

import numpy as np
import polars as pl
import torch
from torch import nn

from mia_audit.explain.release import release_maps
from mia_audit.explanation_metrics.study import MetricsTask
from mia_audit.explanation_metrics.tables import explain_settings, measure_tables
from mia_audit.learners.torch_module import TorchModel
from mia_audit.training.task import Records


def test_a_release_is_measured_like_an_explainer_and_against_the_full_map() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TorchModel(nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3)), batch=8)
    rows = np.random.default_rng(0).standard_normal((7, 20)).astype(np.float32)
    sample = Records(rows, np.zeros(7, np.int32), {}, np.arange(10, 17))
    explaining = {"explain": ["logit"], "explained_class": "predicted", "release": ["full", "top-k:0.25", "noisy"]}
    measuring = {"curve_steps": 4, "perturbations": 3, "radius": 0.1, "removed_share": 0.2}
    asked = ("cosine", "gini", "deletion", "sensitivity", "infidelity")
    task = MetricsTask(["ixg"], explaining, asked, measuring, 5, 8, (20,), 0)
    setting = ("none", "inf")
    explanations = list(explain_settings(lambda *_: model, [setting], [0], sample, task))
    table = pl.concat([pl.from_arrow(part) for part in measure_tables(iter(explanations), setting, sample, task)])
    assert table["explainer"].unique(maintain_order=True).to_list() == ["ixg", "ixg~top-k:0.25", "ixg~noisy"]
    compared = table.filter(pl.col("against").is_not_null())
    assert set(compared["explainer"]) == {"ixg~top-k:0.25", "ixg~noisy"} and set(compared["against"]) == {"full map"}
    by_key = explanations[0][1][setting]
    full = next(one.maps for key, one in by_key.items() if key.explainer == "ixg")
    for words in ("top-k:0.25", "noisy"):
        shipped = release_maps(full, words, (5, "released map", 0, "ixg", "logit"), range(10, 17))
        cosine = (full * shipped).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(shipped, axis=1)
        found = compared.filter(explainer=f"ixg~{words}", measure="cosine")["value"].to_numpy()
        np.testing.assert_allclose(found, cosine, rtol=1e-5)
    areas = {
        name: table.filter(explainer=name, measure="deletion")["value"].to_numpy() for name in ("ixg", "ixg~noisy")
    }
    assert (areas["ixg"] <= areas["ixg~noisy"] + 1e-9).mean() > 0.5 and areas["ixg"].mean() < areas["ixg~noisy"].mean()
    probed = table.filter(pl.col("measure").is_in(["infidelity", "sensitivity"]))
    assert len(probed) == 3 * 2 * 7 and probed["value"].is_finite().all()
    noisy, whole = (
        probed.filter(explainer=name, measure="infidelity")["value"].mean() for name in ("ixg~noisy", "ixg")
    )
    assert noisy > whole, "noise is unfaithful"
    stable = probed.filter(explainer="ixg~noisy", measure="sensitivity")["value"]
    assert stable.max() < 1, "a record has the same noise wherever it is explained nearby"
