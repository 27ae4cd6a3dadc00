"""A setting that is named by an ε and guarantees nothing is never told as a guarantee: in no table, figure or sentence."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from mia_audit.errors import UserError
from mia_audit.privacy.masks import Masks, save_masks
from mia_audit.report.answer import answer
from mia_audit.report.figures.catalogue import draw
from mia_audit.report.figures.roc import accuracy_by_epsilon
from mia_audit.report.findings import reference
from mia_audit.report.formatting import protected
from mia_audit.report.opened import find
from mia_audit.report.page import render
from mia_audit.report.provenance import provenance
from mia_audit.report.statements import no_guarantee_sentence
from mia_audit.report.tables.attacks import settings_layout
from mia_audit.report.tables.catalogue import Cell, to_csv, write

from .built import build

REASON = "the mask is computed from the private batch"


def test_tables_print_none_and_why(nominal: Any, tmp_path: Path) -> None:
    results = nominal.results()
    tables = build(results, find(results))
    row = tables["settings"].row(2, named=True)
    assert (row["epsilon"], row["epsilon_spent"], row["delta"]) == ("none (nominal 8)", None, None)
    assert row["no_guarantee"] == REASON
    del tables["models"]  # the tables of metrics know nothing of fewer models
    for frame in tables.values():
        literal = frame.filter(frame["mechanism"] == "fadp-literal")
        assert len(literal) and set(literal["epsilon"]) == {"none (nominal 8)"}
    assert "none (nominal 8)" in to_csv(tables["summary"]) and REASON in to_csv(tables["settings"])
    write(results, find(results), tmp_path)
    latex = (tmp_path / "settings.tex").read_text(encoding="utf-8")
    assert rf"no $\varepsilon$ is guaranteed, since {REASON}" in latex and "none (nominal 8)" in latex


def test_without_such_a_setting_the_table_has_no_such_column(small: Any, findings: Any) -> None:
    assert "no_guarantee" not in build(small.results(), findings)["settings"].columns


def test_sentences_say_none_and_why(nominal: Any) -> None:
    findings = find(nominal.results())
    (group,) = findings.groups().values()
    base = reference(group)
    assert base is not None and base.setting.mechanism == "none"
    told = answer(group, findings)
    assert "fadp-literal, which guarantees nothing" in told["conclusion"] and "ε = 8 is nominal" in told["conclusion"]
    item = next(item for item in told["sentences"] if "fadp-literal" in item["term"])
    assert item["term"] == "fadp-literal, ε none (nominal 8)"
    assert f"no ε is guaranteed, since {REASON}" in item["text"]
    table = settings_layout(nominal.results(), findings, page=True)
    assert table.rows[2][1] == Cell("none", ("no guarantee",))
    assert any("fadp-literal at a nominal ε = 8: no ε" in note for note in table.notes)
    assert any(note.startswith("These models are for audit only") for note in table.notes)


def test_the_page_and_provenance_never_take_it_for_a_guarantee(nominal: Any) -> None:
    results = nominal.results()
    findings = find(results)
    sources = provenance(results, findings.settings)
    told = sources["settings"][2]
    assert (told["epsilon"], told["nominal_epsilon"], told["no_guarantee"]) == ("none", "8", REASON)
    assert "epsilon_spent" not in told and not told["private"]
    page = re.sub(r"<script.*?</script>", "", render(results, findings, sources), flags=re.S)
    text = re.sub(r"<[^>]+>", " ", page.split("SHA-256 of every file")[0])
    assert REASON in text
    for found in re.finditer(r"fadp-literal", text):
        around = text[found.start() : found.end() + 80]
        assert re.search(r"guarantee|nominal|ε none", around), around
    guarantees = next(iter(re.findall(r"Guarantees</dt><dd>(.*?)</dd>", page, flags=re.S)))
    assert "fadp-literal" not in guarantees


def test_figures_say_none_and_why(nominal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = nominal.results()
    findings = find(results)
    drawn: dict[str, str] = {}

    def keep(figure: Any, folder: Path, name: str, caption: str, look: Any) -> None:
        drawn[name] = json.dumps([text.get_text() for text in figure.findobj(lambda one: hasattr(one, "get_text"))])

    monkeypatch.setattr("mia_audit.report.figures.catalogue.save", keep)
    draw(results, findings, tmp_path)
    for name in ("roc_toy_net_fadp-literal-eps8", "attack_by_epsilon", "tradeoff"):
        text = json.loads(drawn[name])
        assert any("fadp-literal: ε none, " in one.replace("\n", " ") for one in text), name
    assert "fadp-literal" not in drawn["roc_toy_net_dp-sgd-eps8"]
    assert any("\nε none" in one for one in json.loads(drawn["attack_by_epsilon"]))


def test_differences_at_the_same_epsilon_name_it_as_what_it_is(nominal: Any) -> None:
    results = nominal.results()
    rows = build(results, find(results))["differences"].filter(pl.col("metric") == "test_accuracy")
    literal = rows.filter(pl.col("mechanism") == "fadp-literal")
    assert "fadp-literal-eps8 (no guarantee)" in literal["minuend"].to_list()
    assert "dp-sgd-eps8" in literal["subtrahend"].to_list()


def test_a_nominal_epsilon_on_an_axis_says_so(nominal: Any) -> None:
    settings = nominal.spec["settings"]
    findings = find(nominal.results(settings=[*settings[:2], settings[2]]))
    for one, epsilon in zip(findings.settings, ("inf", "8", "2"), strict=True):
        object.__setattr__(one.setting, "epsilon", epsilon)
    legend = [text.get_text() for text in accuracy_by_epsilon(None, findings).legends[0].get_texts()]
    assert [one.partition(" (ε nominal: none")[0] for one in legend if "(" in one] == ["net, fadp-literal"]
    assert "net, dp-sgd" in legend


def test_a_stated_noise_multiplier_is_no_nominal_epsilon(nominal: Any) -> None:
    results = nominal.results()
    stated = replace(results.spec.settings[2], epsilon="z1.3")
    assert stated.reported_epsilon == "none (noise multiplier 1.3)"
    assert protected(stated).endswith("nothing (noise multiplier 1.3)")
    finding = replace(find(results).settings[2], setting=stated)
    assert "at a noise multiplier 1.3: no ε is" in no_guarantee_sentence(finding)


def test_the_share_of_parameters_that_a_mask_covers_is_a_number_of_the_report(nominal: Any) -> None:
    results = nominal.results()
    setting = results.spec.settings[2]
    masks = Masks("the private batch itself", ("conv",), torch.ones(1, 2), torch.ones(1), 0.125)
    save_masks(masks, nominal.root / setting.path / "models" / "shadow-0" / "masks.safetensors")
    found = find(results).settings
    assert (found[2].mask_coverage, found[1].mask_coverage) == (0.125, None)
    assert no_guarantee_sentence(found[2]).endswith("on 12.5\u00a0% of the trained parameters")
    (nominal.root / setting.path / "models" / "shadow-0" / "masks.safetensors").write_bytes(b"12345678")
    with pytest.raises(UserError, match=r"masks.safetensors: damaged"):
        find(results)
