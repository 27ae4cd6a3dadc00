"""Pickles are looked at, and never executed."""

import os
import pickle

import numpy as np
import pytest

from mia_audit.attacks.io.object_streams import read_objects
from mia_audit.errors import UserError


class Hostile:
    """Its pickle would make a folder where it is loaded."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def dumped(path, value, protocol=4):
    path.write_bytes(pickle.dumps(value, protocol))
    return read_objects(path)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "kind", [list, np.array, lambda v: np.array(v, dtype=np.int32), lambda v: list(map(np.int64, v))]
)
def test_whole_numbers_are_read_however_they_are_stored(tmp_path, protocol, kind):
    if protocol < 2 and kind is not list:
        pytest.skip("NumPy's bytes are text there")
    found = dumped(tmp_path / "m.pkl", {"train_indices": kind([3, 1, 2]), "name": "x"}, protocol)
    assert found.integers("train_indices").tolist() == [3, 1, 2]


def test_nothing_is_executed(tmp_path):
    folder = tmp_path / "made"
    found = dumped(tmp_path / "m.pkl", {"train_indices": [1], "other": Hostile(str(folder))})
    assert found.integers("train_indices").tolist() == [1] and not folder.exists()
    dumped(tmp_path / "m.pkl", Hostile(str(folder)))
    assert not folder.exists()


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps([1])[:-1], b"\x80\x04."])
def test_what_is_no_pickle_is_named(tmp_path, content):
    (tmp_path / "m.pkl").write_bytes(content)
    with pytest.raises(UserError, match=r"m\.pkl: not an object that can be read without executing it"):
        read_objects(tmp_path / "m.pkl")


def test_what_is_no_list_of_whole_numbers_is_named(tmp_path):
    found = dumped(tmp_path / "m.pkl", {"train_indices": "abc", "rates": [0.5]})
    for name in ("train_indices", "rates"):
        with pytest.raises(UserError, match=f"'{name}' is not a list or array of whole numbers"):
            found.integers(name)
    with pytest.raises(UserError, match="no 'test_indices'; it has rates, train_indices"):
        found.integers("test_indices")
