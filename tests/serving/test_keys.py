import hashlib
import hmac
import stat
from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.serving import keys
from mia_audit.serving.keys import new_key, read_keys


def test_a_key_is_its_callers_and_only_its_digest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    alice, bob = new_key(path, "alice"), new_key(path, "bob")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len({alice, bob}) == 2 and len(alice) == 43
    assert alice not in path.read_text() and hashlib.sha256(alice.encode()).hexdigest() in path.read_text()
    known = read_keys(path, ["alice", "bob"])
    assert [known.caller_of(key) for key in (alice, bob, alice[:-1], "", "\udcff")] == [
        "alice",
        "bob",
        None,
        None,
        None,
    ]
    assert alice not in repr(known) and hashlib.sha256(alice.encode()).hexdigest() not in repr(known)


def test_a_key_is_added_after_a_last_line_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    alice = new_key(path, "alice")
    path.write_text(path.read_text().rstrip("\n"))
    bob = new_key(path, "bob")
    known = read_keys(path, ["alice", "bob"])
    assert [known.caller_of(key) for key in (alice, bob)] == ["alice", "bob"]


def test_every_digest_is_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, compared = tmp_path / "keys", []
    first, _, _ = (new_key(path, name) for name in ("a", "b", "c"))
    known = read_keys(path, ["a", "b", "c"])
    monkeypatch.setattr(keys.hmac, "compare_digest", lambda a, b: compared.append(len(a)) or a == b)
    assert known.caller_of(first) == "a"
    assert compared == [32, 32, 32]
    assert hmac is keys.hmac


def broken(path: Path, name: str) -> None:
    line = path.read_text()
    match name:
        case "open":
            path.chmod(0o640)
        case "twice":
            path.write_text(line * 2)
        case "secret":
            path.write_text("alice s3cret\n")
        case "foreign":
            path.write_text(line + line.replace("alice", "mallory"))
        case "link":
            path.rename(path.with_name("elsewhere"))
            path.symlink_to(path.with_name("elsewhere"))
        case "none":
            path.write_text("")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("open", "other users can access it; expected a file that only you can read; run chmod 600"),
        ("twice", "two keys of 'alice'"),
        ("secret", "line 1: expected a name and the SHA-256 of a key"),
        ("foreign", "a key of 'mallory', who is not a caller"),
        ("link", "a symbolic link"),
        ("none", "no key of caller 'alice'; create one with --new-key alice"),
    ],
)
def test_a_file_of_keys_that_is_not_as_it_should_be_is_refused(tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / "keys"
    new_key(path, "alice")
    broken(path, name)
    with pytest.raises(UserError, match=words) as caught:
        read_keys(path, ["alice"])
    assert "s3cret" not in str(caught.value)


def test_a_caller_gets_no_second_key(tmp_path: Path) -> None:
    new_key(tmp_path / "keys", "alice")
    with pytest.raises(UserError, match="'alice' has a key already"):
        new_key(tmp_path / "keys", "alice")
