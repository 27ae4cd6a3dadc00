"""Glosses of WordNet's nouns as bags of words, from a small file in the database's format."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset, Source

WORDNET = f"{Path(__file__).parents[2]}/config/sources.py:wordnet"
NOUNS = """\
  1 This software and database is being provided to you, the LICENSEE, by
  2 Princeton University under the following license.
00001740 03 n 01 entity 0 001 ~ 00001930 n 0000 | that which is perceived or known
02084071 05 n 02 dog 0 Canis_familiaris 0 001 @ 02083346 n 0000 | a barking Animal with a tail; "the dog barked all night"
02121620 05 n 01 cat 0 001 @ 02120997 n 0000 | an animal with a tail and soft fur
07679356 13 n 02 bread 0 staff_of_life 0 001 @ 07566340 n 0000 | food made of flour, flour and more flour
"""


def load(path: Path) -> Source:
    return pools[WORDNET].load(Dataset(source=WORDNET, path=str(path)), "datasets.glosses")


def test_a_record_says_which_words_a_gloss_contains_and_its_label_is_the_topic(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(NOUNS)
    source = load(tmp_path)
    assert [source.classes[label] for label in source.labels] == ["animal", "animal", "food"], (
        "entity has no topic here"
    )
    assert source.kind == "table" and source.flags == set(source.features) and "the" not in source.features
    records = np.asarray(source.records)
    assert records.dtype == np.float32 and set(records.ravel()) == {0, 1}
    words = [{word for word, there in zip(source.features, row, strict=True) if there} for row in records]
    assert words[0] == {"barking", "animal", "tail", "dog", "barked", "night"}
    assert words[1] == {"animal", "tail", "soft", "fur"} and words[2] == {"food", "flour"}
    assert np.array_equal(load(tmp_path / "data.noun").records, records)
    assert source.collected == {"words": source.features}, "one gloss changes them: a private release is refused"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file; Debian's package wordnet-base"),
        ("not a database\n", "line 1: expected a synset of a noun"),
        (NOUNS.replace(" | an animal", " an animal"), "line 5: expected a synset of a noun and its gloss"),
        ("00002325 29 v 01 respire 0 000 | breathe\n", "line 1: expected a synset of a noun"),
        ("02084071 05 n 01 it 0 000 | it is the one\n", "no gloss contains a word"),
        ("", "no gloss contains a word"),
    ],
)
def test_what_is_no_such_file_is_one_line(text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "data.noun").write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        load(tmp_path)
    assert str(caught.value).startswith("datasets.glosses.path: ") and "\n" not in str(caught.value)
