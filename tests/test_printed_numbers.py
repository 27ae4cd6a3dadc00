"""Printed numbers follow from committed files, and these from today's configs, defaults and attacks."""

import csv
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "docs" / "numbers").glob("*/provenance.json"))
TRAINED = [path.parent for folder in FOLDERS for path in folder.glob("settings.csv") if "test_loss" in path.read_text()]
"""Those with models; the others explain forests that are fitted to the pool."""
UNTRACED = ["results/agreement", "results/papers"]
"""Pages of docs/ with numbers of other tools, by a script of their own, and with numbers that papers print."""
MEMORISING = re.compile(r".*/memorising|vectors/mlp-60|releases/mlp")
"""Audits' architectures that are trained until they have memorised wrong labels."""
MEASURED = re.compile(r"(?<![\w.])[01]?\.\d{2,}\b|\b(?!0\.1 )\d+\.\d+ %")
UNMEASURED = re.compile(r"<!-- (numbers|keys).*?<!-- end of \1 -->|```.*?```|`[^`\n]+`|\]\([^)]*\)", re.DOTALL)


@pytest.fixture(scope="module")
def numbers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("printed_numbers", ROOT / "benchmarks" / "printed_numbers.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def behaviour(numbers: ModuleType) -> dict[str, list[float]]:
    found: dict[str, list[float]] = numbers.behaviour()
    return found


def test_every_table_is_that_of_its_file(numbers: ModuleType) -> None:
    """`make numbers` makes them again."""
    tables = 0
    for page in numbers.pages():
        text = page.read_text(encoding="utf-8")
        assert numbers.rendered(page, text) == text, f"{page}: run make numbers"
        assert text.count("<!-- numbers:") == len(numbers.BLOCK.findall(text)), f"{page}: a marker that is no table"
        tables += len(numbers.BLOCK.findall(text))
    assert tables


def test_a_digit_that_does_not_follow_from_the_file_is_noticed(numbers: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "one.csv"
    source.write_text("name,auc_mean,auc_low,auc_high,cost\na,.7,.65,.75,-.001\nb,.5,.45,.55,\n", encoding="utf-8")
    head, row = "| | AUC | cost |", "| {name} | {auc:.3f} | {cost:.1%} |"
    page = f"<!-- numbers: {source}, name=a|c\n{head}\n{row}\n-->\n<!-- end of numbers -->\n"
    text = numbers.rendered(tmp_path / "page.md", page)
    assert text.splitlines()[4:7] == [head, "|---|---|---|", "| a | 0.700 (0.650 to 0.750) | −0.1 % |"]
    assert numbers.rendered(tmp_path / "page.md", text.replace("0.650", "0.651")) == text
    with pytest.raises(ValueError, match="no row"):
        numbers.rendered(tmp_path / "page.md", page.replace("name=a|c", "name=c"))


def test_the_interval_of_one_run_holds_for_another_run(numbers: ModuleType) -> None:
    """In 95 % of draws of three seeds and one more."""
    inside, draws = 0, np.random.default_rng(0).normal(size=(4_000, 4))
    for *seeds, more in draws:
        row = {"seeds": "3", "auc_mean": str(np.mean(seeds)), "auc_sd": str(np.std(seeds, ddof=1))}
        low, high = numbers.Template().get_field("one_run_auc", (), row)[0]
        inside += low < more < high
    assert inside / len(draws) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.name))
def test_numbers_are_of_the_present_defaults_and_attacks(
    numbers: ModuleType, behaviour: dict[str, list[float]], folder: Path
) -> None:
    """Where this fails, a change moved committed numbers: run the audit again and take its tables."""
    assert numbers.stale(folder, behaviour) == []


@pytest.mark.parametrize("folder", TRAINED, ids=lambda folder: str(folder.name))
def test_audited_models_are_better_than_guessing(folder: Path) -> None:
    """All but those whose config says that they memorise."""
    guessing = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["guessing_loss"]
    with (folder / "settings.csv").open(encoding="utf-8", newline="") as file:
        worse = {
            f"{folder.name}/{row['architecture']}"
            for row in csv.DictReader(file)
            if float(row["test_loss_mean"]) > guessing[row["dataset"]]
        }
    assert not [name for name in worse if not MEMORISING.fullmatch(name)]


def test_a_default_or_an_attack_that_changes_is_noticed(numbers: ModuleType) -> None:
    recorded = json.loads((FOLDERS[0] / "provenance.json").read_text(encoding="utf-8"))
    config = recorded["config"] | {"training": recorded["config"]["training"] | {"weight_decay": 0.5}}
    assert [one.split(":")[0] for one in numbers.changed(recorded["config"], config)] == ["training.weight_decay"]
    name, values = next(iter(recorded["behaviour"].items()))
    assert list(numbers.changed({name: values}, {name: [values[0] * (1 + 1e-7), *values[1:]]})) == []
    assert len(list(numbers.changed({name: values}, {name: [values[0] * 1.001, *values[1:]]}))) == 1


def test_prose_has_no_measured_number(numbers: ModuleType) -> None:
    """Measured numbers are in tables made from files."""
    allowed = {ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / f"{name}.md" for name in UNTRACED)}
    pages = {
        page: UNMEASURED.sub("", page.read_text(encoding="utf-8")) for page in numbers.pages() if page not in allowed
    }
    assert {page.name: found for page, prose in pages.items() if (found := MEASURED.findall(prose))} == {}


def test_the_digits_with_seeds_are_the_digits() -> None:
    one, several = (
        yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text()) for name in ("digits", "digits-seeds")
    )
    assert one.pop("seed") in several.pop("seeds") and one.pop("audit") != several.pop("audit")
    assert one == several
