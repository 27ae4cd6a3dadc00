"""Glosses of WordNet's nouns (Miller 1995) as bags of words, from the file data.noun of its database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.pools.catalogue import TABLE_KEYS, Header, Source, pool, root_of

if TYPE_CHECKING:
    from mia_audit.pools.section import Dataset

FILE = "data.noun"
WORDS = 500
"""Number of words, as for the reviews in Patel et al. (2020), section 6."""
CLASSES = {
    "04": "act",
    "05": "animal",
    "06": "artifact",
    "07": "attribute",
    "08": "body",
    "09": "cognition",
    "10": "communication",
    "11": "event",
    "13": "food",
    "14": "group",
    "15": "location",
    "17": "object",
    "18": "person",
    "20": "plant",
    "21": "possession",
    "23": "quantity",
    "26": "state",
    "27": "substance",
}
"""The 18 lexicographer files of nouns with the most synsets, by their numbers in the database."""


@pool("wordnet", "path", *TABLE_KEYS, header=Header("table", 78_377))
def wordnet(dataset: Dataset, where: str) -> Source:
    """Return float32 [78377, 500] of 0 and 1 (whether the gloss, with its examples, contains a word), and the topic of the noun."""
    from sklearn.feature_extraction.text import CountVectorizer

    root = root_of(dataset, where)
    path = root / FILE if root.is_dir() else root
    if not path.is_file():
        raise UserError(
            f"{where}.path: {path}: no such file; Debian's package wordnet-base puts it in /usr/share/wordnet"
        )
    numbers, glosses = _glosses(path, where)
    words = CountVectorizer(
        token_pattern="[a-z]{2,}", stop_words="english", max_features=WORDS, binary=True, dtype=np.float32
    )
    try:
        records = words.fit_transform(glosses).toarray()
    except ValueError:  # only stop words
        raise UserError(f"{where}.path: {path}: no gloss contains a word; expected WordNet's {FILE}") from None
    order = {number: label for label, number in enumerate(CLASSES)}
    labels = np.array([order[number] for number in numbers])
    features = [str(word) for word in words.get_feature_names_out()]
    return Source("table", records, labels, [*CLASSES.values()], features, frozenset(features))


def _glosses(path: Path, where: str) -> tuple[list[str], list[str]]:
    """Return the number of the lexicographer file and the gloss of every noun of the known classes."""
    numbers, glosses = [], []
    for row, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.startswith("  "):  # skip the licence
            continue
        synset, bar, gloss = line.partition(" | ")
        fields = synset.split()
        if not bar or len(fields) < 3 or fields[2] != "n":
            raise UserError(f"{where}.path: {path}: line {row}: expected a synset of a noun and its gloss after ' | '")
        if fields[1] in CLASSES:
            numbers.append(fields[1])
            glosses.append(gloss)
    return numbers, glosses
