import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.proving.neighbours import pairs


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
@pytest.mark.parametrize("classes", [0, 2])
def test_pairs_differ_by_one_record(adjacency, classes):
    found = list(pairs(6, 3, adjacency, classes=classes))
    assert len({pair.name for pair in found}) == len(found)
    for pair in found:
        assert len(pair.first) - len(pair.second) == (adjacency == "add-remove")
        kept = len(pair.first) - 1
        np.testing.assert_array_equal(pair.first[:kept], pair.second[:kept])
        assert not np.array_equal(pair.first, pair.second)
        if classes:
            assert set(pair.first[:, -1]) <= {0, 1}


def test_the_domain_bounds_the_records():
    def largest(domain):
        return max(np.abs(pair.first).max() for pair in pairs(6, 3, "replace", domain))

    assert largest("bounded") <= 1
    assert 1e100 < largest("finite") < np.inf
    assert any(np.isnan(pair.first).any() for pair in pairs(6, 3, "replace", "any"))
    names = {pair.name for pair in pairs(6, 3, "add-remove")}
    assert {"aligned record among no others", "NaN record among equal others"} <= names
    assert not [pair for pair in pairs(6, 3, "add-remove", empty=False) if len(pair.second) < 5]


def test_an_unknown_adjacency_is_named():
    with pytest.raises(UserError, match="adjacency 'swap': expected add-remove, replace, zero-out"):
        list(pairs(6, 3, "swap"))


@pytest.mark.parametrize(("adjacency", "fewest"), [("add-remove", 3), ("replace", 2)])
def test_without_empty_both_inputs_have_at_least_two_records(adjacency, fewest):
    assert min(len(pair.second) for pair in pairs(fewest, 2, adjacency, empty=False)) == 2
    with pytest.raises(UserError, match=f"--records {fewest - 1}: .* expected at least {fewest}"):
        list(pairs(fewest - 1, 2, adjacency, empty=False))
