"""The report's answer in the terminal."""

from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.report.terminal import answer_text

PAGE = """<h1>Digits</h1><p class="scope">Not of the answer.</p><p class="caution">The models are worse than guessing.</p>
<section id="answer"><h2>The answer</h2>
<p class="conclusion">The outputs leak 16.6 points. With dp-sgd at ε = 8, they leak
nothing measurable.</p>
<table class="forest"><caption>AUC of the strongest attack (95 % interval). The dashed line is guessing.</caption>
<thead><tr><th scope="col">Setting</th><th scope="col">Outputs</th><th scope="col">Explanations</th></tr></thead>
<tbody>
<tr><th scope="row">No protection</th>
<td><svg><line/></svg><span class="value">0.666</span> <span class="quiet">0.659 to 0.674</span></td>
<td><span class="quiet">not attacked</span></td></tr>
<tr><th scope="row">dp-sgd, ε = 8</th>
<td><span class="value">0.503</span> <span class="quiet">0.498 to 0.509<br>not distinguishable from guessing</span></td>
<td><span class="quiet">not attacked</span></td></tr>
</tbody></table>
<dl><div><dt>Outputs</dt><dd>More words.</dd></div></dl>
</section>
<section id="words"><p>Not of the answer.</p><table><tr><td>nor this</td></tr></table></section>
"""


def test_sentences_table_and_path_are_those_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "tables").mkdir()
    assert answer_text(tmp_path).replace("\u00a0", " ").splitlines() == [
        "Digits",
        "",
        "Caution: The models are worse than guessing.",
        "",
        "The outputs leak 16.6 points. With dp-sgd at ε = 8, they leak nothing measurable.",
        "",
        "Setting        Outputs                   Explanations",
        "-------------  ------------------------  ------------",
        "No protection  0.666 (0.659 to 0.674)    not attacked",
        "dp-sgd, ε = 8  0.503 (0.498 to 0.509) *  not attacked",
        "",
        "* not distinguishable from guessing",
        "AUC of the strongest attack (95 % interval). Guessing has an AUC of 0.5.",
        "",
        f"Report: {tmp_path / 'report.html'} (beside it: tables/)",
    ]


def test_several_parts_are_named_and_studies_have_no_table(tmp_path: Path) -> None:
    parts = "".join(f"<h3>{name}</h3><p class='conclusion'>{name} leaks.</p>" for name in ("forest", "labels"))
    (tmp_path / "report.html").write_text(f'<h1>Two</h1><section id="answer">{parts}</section>', encoding="utf-8")
    assert answer_text(tmp_path).splitlines()[2:-1] == ["forest", "forest leaks.", "", "labels", "labels leaks.", ""]


def test_without_a_report_it_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"report.html: no such file; expected the results of a finished audit"):
        answer_text(tmp_path)
