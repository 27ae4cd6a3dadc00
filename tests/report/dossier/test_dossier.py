"""A dossier of the small audit: an RO-Crate by the rules of its specification, and answers that name their sources."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mia_audit.cli import main
from mia_audit.privacy.dataset_ledger import Terms, charge, entry
from mia_audit.privacy.spending import Gaussian
from mia_audit.report.dossier.contents import gather
from mia_audit.report.dossier.crate import write_dossier
from mia_audit.report.dossier.questions import DPIA, NIST, answers
from mia_audit.storage import write_json

SETTING = "toy/net/dp-sgd-eps8"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The card of a release beside its weights, a ledger with one entry, and verdicts."""
    folder = tmp_path_factory.mktemp("papers")
    release = folder / "release"
    release.mkdir()
    privacy = {"epsilon": 7.9, "delta": 1e-6, "unit": "record", "adjacency": "one record more or less"}
    card = {
        "audit": {"name": "toy", "id": "1f"},
        "setting": {"name": SETTING},
        "privacy": privacy | {"sampling": "poisson", "accountant": "pld", "steps": 60, "clipping": "flat"},
        "assumptions": ["The key stays secret."],
    }
    write_json(release / "card.json", card)
    (release / "card.md").write_text("# A toy")
    (release / "weights.safetensors").write_bytes(b"weights")
    charged = entry("release", "record", Gaussian(2.0), {"id": "1f"})
    charge(folder / "ledger", Terms("toy", "record", 9.0, 1e-5), [charged])
    write_json(folder / "gate.json", {"audit": "toy", "verdict": "pass", "conclusion": "The policy is met."})
    return {"release": release, "ledger": folder / "ledger", "verdicts": folder / "gate.json"}


@pytest.fixture(scope="module")
def dossier(ended: Path, papers: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dossier") / "dossier"
    write_dossier(gather(ended, **papers), out)
    return out


def violations(folder: Path) -> list[str]:
    """List the MUST rules of RO-Crate 1.1 (structure, root data entity, data entities, contextual entities) that a folder breaks."""
    crate = json.loads((folder / "ro-crate-metadata.json").read_text())
    graph = {entity["@id"]: entity for entity in crate["@graph"]}
    descriptor, root = graph.get("ro-crate-metadata.json", {}), graph.get("./", {})
    parts = [part["@id"] for part in root.get("hasPart", [])]
    references = [
        one["@id"]
        for entity in graph.values()
        for value in entity.values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, dict)
    ]
    nested = [
        one for entity in graph.values() for one in entity.values() if isinstance(one, dict) and set(one) != {"@id"}
    ]
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    rules = {
        "context of version 1.1": crate["@context"] == "https://w3id.org/ro/crate/1.1/context",
        "flat and compacted": not nested,
        "identifiers are unique": len(graph) == len(crate["@graph"]),
        "every entity has a type": all("@type" in entity for entity in graph.values()),
        "descriptor is a CreativeWork": descriptor.get("@type") == "CreativeWork",
        "descriptor conforms to 1.1": descriptor.get("conformsTo") == {"@id": "https://w3id.org/ro/crate/1.1"},
        "descriptor is about the root": descriptor.get("about") == {"@id": "./"},
        "root is a Dataset": root.get("@type") == "Dataset",
        "root has its properties": all(root.get(name) for name in ("name", "description", "datePublished", "license")),
        "date is one": len(str(root.get("datePublished"))) >= 10,
        "references are described": all(name in graph for name in references if "://" not in name),
        "data entities are files": all(graph[name]["@type"] == "File" for name in parts),
        "files exist and are described": set(parts) == files - {"ro-crate-metadata.json"},
        "paths are relative": not [name for name in parts if name.startswith(("/", "..")) or "\\" in name],
    }
    return [rule for rule, holds in rules.items() if not holds]


def test_a_dossier_is_an_ro_crate(dossier: Path) -> None:
    assert violations(dossier) == []
    (dossier / "more.txt").write_text("not described")
    assert violations(dossier) == ["files exist and are described"]
    (dossier / "more.txt").unlink()


def test_it_has_the_papers_and_not_the_model(dossier: Path) -> None:
    names = {path.relative_to(dossier).as_posix() for path in dossier.rglob("*") if path.is_file()}
    assert {"dossier.html", "report.html", "provenance.json", "config.yaml", "ledger.json", "gate.json"} <= names
    assert {"release/card.json", "release/card.md"} <= names
    assert not [name for name in names if name.endswith((".safetensors", ".npy", "scores.parquet"))]
    crate = json.loads((dossier / "ro-crate-metadata.json").read_text())
    made = {entity["@id"] for entity in crate["@graph"] if entity["@type"] == "CreateAction"}
    assert made == {"#audit", "#release", "#gate", "#dossier"}


def test_answers_come_in_order_from_files_of_the_dossier(dossier: Path) -> None:
    listed = json.loads((dossier / "dossier.json").read_text())["questions"]
    assert [one["part"] for one in listed] == sorted((one["part"] for one in listed), key=[NIST, DPIA].index)
    titles = [one["question"].partition(":")[0] for one in listed]
    wanted = ["Unit of privacy", "ε", "δ", "Adjacency", "What is protected", "What is not protected", "Verification"]
    assert [title for title in titles if title in wanted] == wanted
    for one in listed:
        assert bool(one["answer"]) == bool(one["sources"]), one
        assert one["answer"] or one["for_the_controller"]
        assert [name for name in one["sources"] if not (dossier / name).exists() and "tables/" not in name] == []
    by_title = dict(zip(titles, listed, strict=True))
    assert by_title["ε"]["answer"][0] == "The released model: ε = 7.90."
    assert by_title["ε"]["sources"] == ["release/card.json", "provenance.json", "ledger.json"]
    assert "1 entry (release)" in by_title["Composition"]["answer"][0]
    assert "at δ = 1e-05, by a filter of Rényi DP" in by_title["Composition"]["answer"][1]
    assert "The key stays secret." in by_title["Mechanism"]["answer"]
    assert "ε ≥" in by_title["Verification"]["answer"][0]
    assert by_title["Necessity and proportionality"]["answer"] == []


def test_no_answer_is_a_judgement(dossier: Path) -> None:
    for name in ("dossier.html", "dossier.json"):
        text = (dossier / name).read_text().lower()
        assert "anonym" not in text
        assert "safe" not in text


def test_a_page_shows_every_question(dossier: Path) -> None:
    page = (dossier / "dossier.html").read_text()
    listed = json.loads((dossier / "dossier.json").read_text())["questions"]
    assert page.count("<dt>") == len(listed)
    assert page.count("Question for the controller:") == sum(bool(one["for_the_controller"]) for one in listed)
    assert '<a href="release/card.json">' in page


def test_an_audit_alone_has_its_answers_too(ended: Path) -> None:
    found = {question.title: answer for question, answer in answers(gather(ended))}
    assert len(found["ε"].sentences) == 3  # all settings
    assert found["Composition"].sentences == ()
    assert "no ledger" in " ".join(found["What is not protected"].sentences)
    unprotected = {question.title: answer for question, answer in answers(gather(ended, setting="toy/net/none-epsinf"))}
    assert "no ε is finite" in unprotected["ε"].sentences[0]
    assert unprotected["What is protected"].sentences == ("Nothing is protected by differential privacy.",)


def test_bounds_from_canaries_are_part_of_the_verification(ended: Path, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "results"
    shutil.copytree(ended, root)
    row = "one-run-f-dp,1.2,0.00001,0.95,400"
    (root / SETTING / "canaries.csv").write_text(f"method,epsilon,delta,confidence,canaries\n{row}\n")
    contents = gather(root, setting=SETTING)
    (verified,) = [answer for question, answer in answers(contents) if question.title == "Verification"]
    assert (
        f"{SETTING}: 400 canaries in one training, trained as a release is, prove ε ≥ 1.20 at δ = 10⁻⁵."
        in verified.sentences
    )
    write_dossier(contents, tmp_path / "out")
    assert (tmp_path / "out" / SETTING / "canaries.csv").exists()
    assert violations(tmp_path / "out") == []


def test_a_zip_file_holds_the_same(ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "dossier.zip"
    words = ["dossier", str(ended), "--setting", SETTING, "--controller", "The Hospital", "--out", str(out)]
    assert main(words) == 0
    assert "only the controller can answer" in capsys.readouterr().out
    with zipfile.ZipFile(out) as archive:
        archive.extractall(tmp_path / "out")
    assert violations(tmp_path / "out") == []
    assert "The Hospital" in (tmp_path / "out" / "ro-crate-metadata.json").read_text()


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "setting": ({"setting": "toy/net/dp-sgd-eps9"}, "has no setting 'toy/net/dp-sgd-eps9'"),
    "release": ({"release": Path("nowhere")}, "no such file; expected the card of a release"),
    "verdicts": ({"verdicts": Path(__file__)}, "damaged"),
    "ledger": ({"ledger": Path(__file__)}, "ledger"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line(ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    options, message = MISTAKES[what]
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    assert main(["dossier", str(ended), *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "out").exists()


def test_papers_of_another_audit_and_what_is_there_are_refused(
    ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "card.json", {"audit": {"name": "other"}, "setting": {"name": SETTING}})
    assert main(["dossier", str(ended), "--release", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "not a release of the audit 'toy'" in capsys.readouterr().err
    write_json(tmp_path / "gate.json", {"audit": "other"})
    assert main(["dossier", str(ended), "--verdicts", str(tmp_path / "gate.json"), "--out", str(tmp_path / "out")]) == 2
    assert "verdicts on the audit 'other', not on 'toy'" in capsys.readouterr().err
    assert main(["dossier", str(ended), "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
