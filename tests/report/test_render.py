import base64
import hashlib
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from mia_audit.report.opened import find
from mia_audit.report.page import _steps, render
from mia_audit.report.provenance import provenance


def test_outlines_are_written_by_differences():
    outline = "M 1 2 L 1.5 2 L 1.5 13.2 L 2 4 L 2 4 L 3 4 L 4.5 4 L 0.5 4 L 1 5 L 2 7 z M 3 3 L 4 5 L 4 15.5 L 4 16"
    assert _steps(outline) == "M 1 2 L 1.5 2v11.2l.5 -9.2h2.5h-4l.5 1l1 2 z M 3 3 L 4 5v11"
    assert _steps("M 0 0 C 1 2 3 4 5 6") == "M 0 0 C 1 2 3 4 5 6"


def page_of(results):
    findings = find(results)
    return render(results, findings, provenance(results, findings.settings))


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text outside scripts and styles."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self.open = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img", "br", "rect", "line", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("rect", "line"):
            return
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def html(small):
    return page_of(small.results())


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_the_page_is_well_formed_and_loads_nothing(html, page):
    assert page.open == []
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value[:80])
    (policy,) = [
        a["content"] for tag, a in page.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy and "http" not in policy and "connect-src" not in policy
    assert "unsafe" not in policy
    (css,) = re.findall(r"<style>(.*?)</style>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert re.search(r"style-src ([^;]*)", policy)[1] == f"'sha256-{digest}'" and "script-src" not in policy
    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on") or name == "style"
    ]
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert not [tag for tag, _ in page.elements if tag in ("iframe", "object", "embed", "form")]


def test_figures_share_their_glyphs_and_every_reference_is_met(html, page):
    assert re.findall(r'<figure class="chart (\w+)">', html) == ["roc", "attack_by_epsilon", "tradeoff"]
    defined = [a["id"] for tag, a in page.elements if tag in ("path", "clippath") and "id" in a]
    glyphs = [name for name in defined if re.fullmatch(r"g\d+", name)]
    assert glyphs == [f"g{number}" for number in range(len(glyphs))]
    used = {a["href"] for tag, a in page.elements if tag == "use"}
    clipped = {a["clip-path"][4:-1] for _, a in page.elements if "clip-path" in a}
    assert used | clipped == {f"#{name}" for name in defined}
    assert "xlink" not in html and "<script" not in html and len(html) < 200_000


def test_the_answer_comes_first_and_is_the_one_that_was_found(page, findings):
    words = page.words()
    found = findings.settings[0]
    outputs, explanations = (found.strongest[channel].auc_estimate for channel in ("outputs", "explanations"))
    assert f"outputs ({100 * (outputs.mean - 0.5):.1f} points of AUC above guessing)" in words
    assert f"by the norm ({100 * (explanations.mean - 0.5):.1f} points)" in words
    assert "dp-sgd at ε = 1, no attack that was" in words
    sections = [a["id"] for tag, a in page.elements if tag == "section"]
    assert sections[:4] == ["answer", "now", "evidence", "curves"]
    assert sections[4:] == ["settings", "records", "null", "attacks", "limits", "unexamined", "words", "provenance"]
    assert words.index("reveal who was in") < words.rindex("Glossary"), "the heading, after the contents"


def test_guarantees_are_complete(page):
    words = page.words()
    assert "at most ε = 7.99 spent at δ = 10⁻⁵ by" in words and "PRV accountant (8.80 by RDP)" in words
    assert "Poisson sampling at rate 0.100" in words


def test_pictures_have_texts_and_headings_are_in_order(page):
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert len(pictures) == 1 and all(one["alt"] and one["width"] for one in pictures)
    assert all(a.get("aria-label") for tag, a in page.elements if tag == "svg")
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    assert [a for tag, a in page.elements if tag == "meta" and a.get("name") == "viewport"]
    assert [a for tag, a in page.elements if tag == "html"] == [{"lang": "en"}]


def test_no_number_has_noise_for_digits(page):
    words = page.words()
    noisy = [number for number in re.findall(r"(?<![\w.])\d+\.\d{4,}", words) if not re.match(r"0\.000", number)]
    assert noisy == [], noisy


def test_names_cannot_break_out_of_the_page(small):
    hostile = "</script><script>alert(1)</script><b>"
    settings = [dict(setting, mechanism=setting["mechanism"]) for setting in small.spec["settings"]]
    html = page_of(small.results(title=hostile, audit=hostile, settings=settings, config={"note": hostile, "seed": 3}))
    assert hostile not in html and "&lt;/script&gt;&lt;script&gt;alert(1)" in html
    assert "<script" not in html


def test_the_same_inputs_give_the_same_page(small, html):
    assert page_of(small.results()) == html


def test_somebody_elses_signals(imported):
    page = Page(page_of(imported.results()))
    words = page.words()
    assert "In these signals, the model's outputs" in words and "membership of 12 models were given" in words
    for absent in ("Test accuracy", "ε and δ", "Guarantees", "design"):
        assert absent not in words, absent
    assert "Record 17" in words and not [tag for tag, _ in page.elements if tag == "img"]


@pytest.mark.usefixtures("without_charts")
def test_a_broken_audit_says_so(small, monkeypatch):
    import polars as pl

    from mia_audit.report.results import Results

    shifted = [
        table.with_columns(pl.when("null_control").then(pl.col("auc") + 0.1).otherwise("auc").alias("auc"))
        for table in small.results().metrics
    ]
    monkeypatch.setattr(Results, "metrics", shifted)
    assert "do not rely on this audit" in Page(page_of(small.results())).words()


def test_two_groups_are_told_apart(small, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "net").symlink_to(small.root / "toy" / "net")
    (tmp_path / "toy" / "other").symlink_to(small.root / "toy" / "net")
    first = small.spec["settings"][0]
    results = small.results(settings=[first, first | {"architecture": "other"}])
    page = Page(page_of(type(results)(tmp_path, results.spec)))
    words = page.words()
    assert "toy, net" in words and "toy, other" in words
    assert [a["class"] for tag, a in page.elements if tag == "figure"].count("chart roc") == 2


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def opened(path):
    """Return the page's elements after its scripts have run in a browser, and what the browser complained of."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    done = subprocess.run(
        [*command, profile, "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_draws_the_figures_under_the_policy_and_runs_nothing(html, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html, encoding="utf-8")
    _, complaints = opened(path)
    assert complaints == []
    attack = "<script>document.body.dataset.ran = 1</script><b onclick='1' style='color:red'>x</b><img src=http://127.0.0.1:9/>"
    path.write_text(html.replace("</main>", f"{attack}</main>"), encoding="utf-8")
    attacked, complaints = opened(path)
    assert "data-ran" not in attacked
    assert sum("Content Security Policy" in line for line in complaints) >= 3


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: chromium)")
def test_the_page_is_printed_on_few_pages(html, tmp_path):
    path, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    path.write_text(html, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    subprocess.run(
        [CHROMIUM, *flags, f"--print-to-pdf={pdf}", path.as_uri()], check=True, capture_output=True, timeout=120
    )
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) <= 10


@pytest.fixture(scope="module")
def asked(small):
    """A page with labels, colours and a policy."""
    labels = {"none": "plain training", "dp-sgd": "DP-SGD"}
    settings = [
        setting
        | {"mechanism_label": labels[setting["mechanism"]], "dataset_label": "Toys"}
        | ({} if setting["private"] else {"label": "plain training"})
        for setting in small.spec["settings"]
    ]
    return page_of(small.results(settings=settings, figures={"colours": {"ixg": "#123456"}}, policy={"models": 8}))


def test_a_policy_s_verdict_comes_before_the_answer(asked):
    page = Page(asked)
    assert [a["id"] for tag, a in page.elements if tag == "section"][:3] == ["policy", "answer", "now"]
    assert "Release: the policy is met" in page.words()


def test_labels_stand_in_the_answer_and_the_charts(asked):
    words = Page(asked).words()
    assert "With plain training, the model's" in words and "With DP-SGD at ε = 8, the outputs" in words
    assert words.count("Toys (300 records)") == 1
    assert 'aria-label="plain training"' in asked.lower() and "no protection" not in asked.lower()


def test_the_page_has_the_colours_that_the_config_asks_for(asked, html):
    assert "#123456" in asked and "#123456" not in html


def test_no_line_ends_within_an_epsilon_and_its_value(html):
    assert not re.search("[εδ] = ", html.partition("<body>")[2])
