"""The data sets of config/persons.yaml, config/trees.yaml and config/patel2020: a survey, glosses of nouns, and a clustered table."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError, suggest
from mia_audit.pools.section import Header, Source, TABLE_KEYS, pool, root_of
from mia_audit.seeds import generator

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.pools.section import Dataset

SURVEYED = (
    *(
        "plan",
        "site",
        "coins",
        "tookphys",
        "year",
        "black",
        "income",
        "xage",
        "female",
        "educdec",
        "time",
        "num",
        "mhi",
    ),
    *("disea", "physlm", "child", "fchild", "lpi", "idp", "fmde", "hlthg", "hlthf", "hlthp", "xghindx"),
)
"""Features that are known before the year's visits: the plan, the household, and health as reported at the start."""

VISITS = ["no visit", "1 or 2 visits", "3 or more visits"]
PERSON = "zper"


@pool("randhie", "person", *TABLE_KEYS, header=Header("table", 20_190))
def randhie(dataset: Dataset, where: str) -> Source:
    """Return float32 [20190, 24], with the number of visits to a physician in that year as label. Unknown schooling (four rows) is 0."""
    import polars as pl

    spec = find_spec("statsmodels")
    if spec is None or not spec.origin:
        raise UserError(
            f"{where}.source: randhie reads a file of the package statsmodels, which is missing: pip install 'mia-audit[persons]'"
        )
    path = Path(spec.origin).parent / "datasets" / "randhie" / "src" / "randhie.csv"
    if not path.is_file():
        raise UserError(
            f"{where}.source: {path}: no such file, but it is part of the package statsmodels: reinstall that package"
        )
    if dataset.person not in ("", PERSON):
        raise UserError(f"{where}.person: '{dataset.person}': the persons of randhie are in the column '{PERSON}'")
    frame = pl.read_csv(path, infer_schema_length=None)
    rows = frame.select(pl.col(name).cast(pl.Float32).fill_null(0) for name in SURVEYED).to_numpy()
    labels = np.digitize(frame["mdvis"].to_numpy(), [1, 3])
    persons = frame[PERSON].cast(pl.Int64).to_numpy() if dataset.person else None

    def column(name: str) -> pl.Series:
        if name not in frame.columns:
            raise UserError(f"{where}.groups: randhie has no column '{name}': {suggest(name, frame.columns)}")
        return frame[name]

    return Source("table", rows, labels, VISITS, list(SURVEYED), persons=persons, columns=column, published=True)


FILE = "data.noun"
WORDS = 500
"""Number of words, as for the reviews in Patel et al. (2020), section 6."""
TOPICS = {
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
    order = {number: label for label, number in enumerate(TOPICS)}
    labels = np.array([order[number] for number in numbers])
    features = [str(word) for word in words.get_feature_names_out()]
    return Source(
        "table",
        records,
        labels,
        [*TOPICS.values()],
        features,
        frozenset(features),
        published=True,
        collected={"words": features},
    )


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
        if fields[1] in TOPICS:
            numbers.append(fields[1])
            glosses.append(gloss)
    return numbers, glosses


CLUSTERED, CLUSTERS = 20, 15
DEFAULT = 20_000
"""Total number of records, including public ones, if the data set does not set the number of audited ones."""


@pool("clusters", header=Header("table"))
def clusters(dataset: Dataset, where: str) -> Source:
    """Return float32 [n, 20] with the requested number of records: Gaussian clusters of unequal size and spread, with curved class borders."""
    count = dataset.records + dataset.public if dataset.records else DEFAULT
    random = generator("pool source", "clusters")
    centres = 2.0 * random.standard_normal((CLUSTERS, CLUSTERED))
    sizes = 1.0 / np.arange(1, CLUSTERS + 1)
    spreads = random.uniform(0.2, 0.8, CLUSTERS)
    slope, bend = random.standard_normal((2, CLUSTERED))
    cluster = random.choice(CLUSTERS, size=count, p=sizes / sizes.sum())
    records = centres[cluster] + spreads[cluster, None] * random.standard_normal((count, CLUSTERED))
    score = records @ slope + 2 * np.sin(records @ bend)
    labels = (score + random.logistic(size=count) > np.median(score)).astype(np.int64)
    return Source(
        "table",
        records.astype(np.float32),
        labels,
        ["low", "high"],
        [f"x{i}" for i in range(CLUSTERED)],
        published=True,
    )
