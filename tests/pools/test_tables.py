"""Tables are read as they are: whatever program wrote them, the same records come out."""

import sys
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.errors import UserError
from mia_audit.pools.section import Dataset, load_source
from mia_audit.pools.sources.files import table_header

ROWS = [(60 + k, 20.25 + k / 4, "mf"[k % 2], k % 3) for k in range(12)]
NAMES = ("age", "bmi", "sex", "label")


def written(separator: str, comma: str = ".", missing: str = "") -> str:
    rows = [
        separator.join([str(age), f"{bmi:.2f}".replace(".", comma) if k or not missing else missing, sex, str(label)])
        for k, (age, bmi, sex, label) in enumerate(ROWS)
    ]
    return "\n".join([separator.join(NAMES), *rows]) + "\n"


def load(path: Path, **keys: Any) -> Any:
    return load_source(Dataset(source="table", path=str(path), **keys), "datasets.mine")


@pytest.mark.parametrize(
    "content",
    [
        written(","),
        "\ufeff" + written(","),
        written(",").replace("\n", "\r\n"),
        written(";"),
        written(";", ","),
        "\ufeff" + written(";", ","),
        written("\t", ","),
        written("|"),
        written(",").replace("60,", "60 ,").replace(",20.25", ", 20.25"),
    ],
    ids=["plain", "mark", "windows", "semicolons", "commas", "excel", "tabs", "bars", "blanks"],
)
def test_every_way_of_writing_gives_the_same_records(content: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode())
    assert table_header(Dataset(source="table", path=str(path))).columns == NAMES
    found = load(path)
    assert found.features == ["age", "bmi", "sex=f", "sex=m"] and found.classes == ["0", "1", "2"]
    assert found.records[:, 0].tolist() == [age for age, *_ in ROWS]
    assert found.records[:, 1].tolist() == [bmi for _, bmi, *_ in ROWS]


@pytest.mark.parametrize("word", ["?", "NA", "N/A", "NaN", "nan", "NULL", ""])
def test_words_for_missing_numbers_are_missing(word: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(written(";", ",", word or " "))
    assert load(path, impute={"bmi": -1.0}).records[:, 1].tolist() == [-1.0, *(bmi for _, bmi, *_ in ROWS[1:])]


def test_a_word_for_a_missing_value_is_a_value_where_the_config_lists_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pl.DataFrame({"region": ["NA", "EU", "AS", "EU"], "label": [0, 1, 0, 1]}).write_csv(path)
    assert load(path, categories={"region": ["AS", "EU", "NA"]}).features == ["region=AS", "region=EU", "region=NA"]
    assert load(path, impute={"region": "NA"}).features == ["region=AS", "region=EU", "region=NA"]


def test_what_a_config_says_is_meant_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    frame = {
        "ward": ["01", "02", "10", "01"],
        "day": ["2001-02-03", "2001-02-04"] * 2,
        "sex": ["f", "F"] * 2,
        "label": ["a", "A"] * 2,
    }
    pl.DataFrame(frame).write_csv(path)
    columns = {"ward": "category", "day": "category"}
    found = load(path, columns=columns, categories={"sex": ["F", "f"]}, classes=["a", "A"])
    assert found.classes == ["a", "A"] and found.features[:3] == ["ward=01", "ward=02", "ward=10"]
    found = load(path, columns={"ward": "feature", "day": "drop"}, categories={"sex": ["F", "f"]}, classes=["a", "A"])
    assert found.records[:, 0].tolist() == [1, 2, 10, 1]
    with pytest.raises(UserError, match="column 'sex' holds 'f' in row 1; a feature holds numbers"):
        load(path, columns={"ward": "category", "day": "drop", "sex": "feature"}, classes=["a", "A"])


def test_persons_with_leading_zeros_are_different_persons(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('who,age,label\n"007",1,0\n7,2,1\n"07",3,0\n')
    assert load(path, person="who").persons.tolist() == ["007", "7", "07"]


@pytest.mark.parametrize("names", ["1,2,3,label", "2019,2020,2024,label", "a1,b2,c3,label"])
def test_names_of_columns_that_are_counted_or_years_are_names(names: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(names + "\n1.5,2,3,a\n2.5,3,4,b\n")
    assert len(load(path).features) == 3


def workbook(path: Path, **sheets: list[Any]) -> Path:
    """Write the smallest file that is a workbook, with rows of numbers and text."""
    head = '<?xml version="1.0"?>'
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"

    def cell(value: Any) -> str:
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
        kind = {bool: "b", datetime: "d"}.get(type(value), "n")
        return f'<c t="{kind}"><v>{value.isoformat() if isinstance(value, datetime) else int(value) if kind == "b" else value}</v></c>'

    def links(*targets: tuple[str, str]) -> str:
        every = (
            f'<Relationship Id="r{n}" Type="{office}/{kind}" Target="{target}"/>'
            for n, (kind, target) in enumerate(targets)
        )
        return f'{head}<Relationships xmlns="{package}/relationships">{"".join(every)}</Relationships>'

    named = "".join(f'<sheet name="{name}" sheetId="{n + 1}" r:id="r{n}"/>' for n, name in enumerate(sheets))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_rels/.rels", links(("officeDocument", "xl/workbook.xml")))
        archive.writestr(
            "xl/workbook.xml",
            f'{head}<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{named}</sheets></workbook>',
        )
        archive.writestr("xl/_rels/workbook.xml.rels", links(*(("worksheet", f"{name}.xml") for name in sheets)))
        for name, rows in sheets.items():
            cells = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            archive.writestr(
                f"xl/{name}.xml", f'{head}<worksheet xmlns="{main}"><sheetData>{cells}</sheetData></worksheet>'
            )
    return path


def test_a_workbook_gives_the_records_of_the_text(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    (tmp_path / "t.csv").write_text(written(","))
    sheet = load(workbook(tmp_path / "t.xlsx", data=[NAMES, *ROWS], empty=[]))
    text = load(tmp_path / "t.csv")
    assert (sheet.records == text.records).all() and (sheet.labels == text.labels).all()
    assert sheet.features == text.features


@pytest.mark.parametrize("more", [True, 5, 1.5, "x", datetime(2021, 1, 2, 3, 4)])
@pytest.mark.parametrize(
    ("cells", "listed"),
    [((datetime(2021, 1, 1), datetime(2021, 1, 2)), ("2021-01-01", "2021-01-02")), ((True, False), ("true", "false"))],
)
def test_no_cell_changes_the_listed_values_of_others(cells: Any, listed: Any, more: Any, tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    section = {"categories": {"kind": listed}, "other": "rest", "label": "class", "classes": ("a", "b")}
    rows = [["kind", "class"], *([cell, name] for cell, name in zip(cells, "ab", strict=True))]
    for added in ([], [[more, "a"]]):
        sheet = workbook(tmp_path / "t.xlsx", data=[*rows, *added])
        dataset = Dataset(source="table", path=str(sheet), **section)
        assert np.asarray(load_source(dataset, "datasets.t").records)[:2].tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("odd", [b"\xff", ["u"]])
@pytest.mark.parametrize("keys", [{"categories": {"sort": ("u",)}}, {"impute": {"sort": "u"}}, {"label": "sort"}])
def test_bytes_and_lists_are_refused_in_every_role(odd: Any, keys: dict[str, Any], tmp_path: Path) -> None:
    pl.DataFrame({"sort": [odd, odd], "x": [0.5, 1.5], "label": ["a", "b"]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"column 'sort' of .* holds (Binary|List\(String\)): expected numbers"):
        load(tmp_path / "t.parquet", classes=("a", "b"), **keys)


def test_listed_dates_are_found_in_timestamps_of_every_unit(tmp_path: Path) -> None:
    for unit in ("ms", "us", "ns"):
        days = pl.Series([datetime(2021, 1, 1), datetime(2021, 1, 2)]).cast(pl.Datetime(unit))
        pl.DataFrame({"day": days, "label": ["a", "b"]}).write_parquet(tmp_path / "t.parquet")
        found = load(tmp_path / "t.parquet", categories={"day": ("2021-01-01", "2021-01-02")})
        assert np.asarray(found.records).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("more", ["1", "true", " 1", 1.0, True])
def test_no_cell_changes_the_listed_classes_of_others(more: Any, tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    rows = [["x", "label"], [0.5, True], [1.5, 1], [2.5, 0], [3.5, "+2"]]
    for added in ([], [[4.5, more]]):
        sheet = load(workbook(tmp_path / "t.xlsx", data=[*rows, *added]), classes=("0", "1", "2", "true"))
        (tmp_path / "t.csv").write_text("\n".join(",".join(map(str, row)) for row in [*rows, *added]) + "\n")
        text = load(tmp_path / "t.csv", classes=("0", "1", "2", "true"))
        assert sheet.labels[:4].tolist() == text.labels[:4].tolist() == [3, 1, 0, 2]


def test_a_number_written_as_text_rounds_no_others(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    sheet = workbook(tmp_path / "t.xlsx", data=[["dose", "label"], [1.25e-12, "a"], [2.5e-12, "b"], ["5", "a"]])
    records = load(sheet, columns={"dose": "feature"}).records
    assert records[:, 0].tolist() == np.float32([1.25e-12, 2.5e-12, 5]).tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": [NAMES, *ROWS], "b": [NAMES, *ROWS]}, r"2 sheets \(a, b\); expected one sheet"),
        ({"a": []}, "no cells"),
        ({"a": [NAMES]}, "no rows"),
        (b"no workbook", "not readable as a table: File is not a zip file"),
    ],
)
def test_a_workbook_that_is_no_table_is_one_line(content: Any, message: str, tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    if isinstance(content, bytes):
        (tmp_path / "t.xlsx").write_bytes(content)
    else:
        workbook(tmp_path / "t.xlsx", **content)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "t.xlsx")


def test_a_workbook_without_its_reader_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(UserError, match=r"pip install 'mia-audit\[xlsx\]', or save the sheet as CSV"):
        load(workbook(tmp_path / "t.xlsx", data=[NAMES, *ROWS]))


@pytest.mark.parametrize("mark", ["{} %", "${}", "{} €", "−{}", "{},000", "{}'000", "1 {}00", "0x{}"])
def test_a_number_with_a_mark_is_no_category(mark: str, tmp_path: Path) -> None:
    """Otherwise each number would silently become a column of 0 and 1."""
    lines = [f'{row[0]},"{mark.format(1 + row[0] % 5)}",{row[3]}' for row in ROWS]
    (tmp_path / "t.csv").write_text("\n".join(["age,pay,label", *lines]) + "\n")
    with pytest.raises(UserError, match="column 'pay' holds numbers with other marks, such as"):
        load(tmp_path / "t.csv")


def test_large_numbers_of_a_spreadsheet_are_numbers(tmp_path: Path) -> None:
    lines = [f"{row[0]};1,{row[0] % 9}E+05;{row[3]}" for row in ROWS]
    (tmp_path / "t.csv").write_text("\n".join(["age;pay;label", *lines]) + "\n")
    assert load(tmp_path / "t.csv").records[0].tolist() == [60.0, 160000.0]
