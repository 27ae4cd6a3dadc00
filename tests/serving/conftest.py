"""A service of the clustered table: as an explainer in memory, and as files on disk."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import yaml

from mia_audit.explain.private_local import PrivateExplainer, Terms
from mia_audit.pools.build import build_pool
from mia_audit.pools.catalogue import Source
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import write_pool
from mia_audit.privacy import moments
from mia_audit.serving.desk import Desk
from mia_audit.serving.keys import new_key
from mia_audit.serving.subject import Subject

CALLERS = {"alice": 0.9, "bob": 2.0}
BLACK_BOX = '''
"""A black box of four features."""

import numpy as np


def values(records):
    return np.tanh(records @ np.linspace(-1, 1, records.shape[1]) + 0.5 * np.sin(2 * records[:, 0]))[:, None]
'''


@pytest.fixture(scope="session")
def table(clustered: Callable[..., Any]) -> Any:
    return clustered(600, 4)


@pytest.fixture
def terms() -> Terms:
    """Terms that leave room for several queries from scratch."""
    return Terms(epsilon=0.5, delta=1e-6, budget=2.0, steps=40)


@pytest.fixture
def made(table: Any, terms: Terms) -> Callable[..., Desk]:
    """Make a desk of the table: protocol, terms, callers, and options of the explainer."""

    def make(
        protocol: str = "adaptive", terms: Terms = terms, callers: dict[str, float] = CALLERS, **options: Any
    ) -> Desk:
        explained = options.pop("explained", table.explained)
        explainer = PrivateExplainer(explained, terms, protocol, **options)
        pool = {"classes": ["no", "yes"], "features": ["a", "b", "c", "d"]}
        return Desk(Subject(explainer, table.black_box, pool, np.dtype(np.float32)), callers)

    return make


@pytest.fixture
def files(table: Any, tmp_path: Path) -> Callable[..., tuple[Path, dict[str, str]]]:
    """Write pool, black box, service and keys; return the service's file and the callers' keys."""

    def write(pool: Mapping[str, Any] = MappingProxyType({}), **changes: Any) -> tuple[Path, dict[str, str]]:
        labels = (table.black_box(table.records)[:, 0] > 0).astype(np.int64)
        source = Source("table", table.records, labels, ["no", "yes"], ["a", "b", "c", "d"])
        section = Dataset(source="digits", **pool)
        write_pool(build_pool(source, section, "table", 0, release=moments.release), tmp_path / "pool")
        (tmp_path / "box.py").write_text(BLACK_BOX)
        service = {
            "pool": str(tmp_path / "pool"),
            "black_box": f"{tmp_path}/box.py:values",
            "ledger": str(tmp_path / "ledger"),
            "keys": str(tmp_path / "keys"),
            "callers": CALLERS,
            "budget": 2.0,
            "epsilon": 0.5,
            "delta": 1e-6,
            "steps": 40,
        } | changes
        (tmp_path / "service.yaml").write_text(yaml.safe_dump(service))
        keys = {name: new_key(tmp_path / "keys", name) for name in service["callers"]}
        return tmp_path / "service.yaml", keys

    return write
