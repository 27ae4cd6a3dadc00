"""Time limits of the tests that run the workflow, and their order where several workers run them."""

import os
from pathlib import Path

import pytest

SECONDS = 1800


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the workflow's tests first, since they take longest.

    One worker begins with a test of the finished audit, and so runs that audit; the other begins with those that do not
    need it.
    """
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.timeout(SECONDS))
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    needing = [item for item in own if "finished" in item.fixturenames]
    independent = [item for item in own if "finished" not in item.fixturenames]
    others = [item for item in items if item not in set(own)]
    items[:] = [*needing[:1], *independent, *needing[1:], *others]
