"""A ledger that is damaged, forged or not its user's answers nothing."""

import json
import math
import os
from dataclasses import asdict, replace

import pytest

from mia_audit.errors import UserError
from mia_audit.privacy import ledger
from mia_audit.privacy.ledger import Entry, Ledger, LedgerHeader, read

HEADER = LedgerHeader("record", "zero-out", {"delta": 1e-6})
ENTRY = Entry("explanation", "record", "zero-out", {"mu_squared": 0.25}, {"explanation": [0.1, -0.2]})


def begun(path, entries=2):
    with Ledger(path, HEADER) as kept:
        for _ in range(entries):
            kept.append([ENTRY])
    return path.read_bytes()


def opened(path):
    with Ledger(path, HEADER) as kept:
        return len(kept.entries)


def test_no_flipped_byte_anywhere_opens(tmp_path):
    path = tmp_path / "ledger"
    content = begun(path)
    for offset in range(len(content)):
        for bit in (offset % 8, (offset + 3) % 8):
            flipped = bytearray(content)
            flipped[offset] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(UserError, match=r"damaged") as caught:
                opened(path)
            assert "\n" not in str(caught.value)
            assert path.read_bytes() == flipped


def test_only_a_short_last_line_is_dropped(tmp_path):
    path = tmp_path / "ledger"
    content = begun(path)
    ends = [index + 1 for index, byte in enumerate(content) if byte == 10]
    for cut in sorted({*range(0, len(content), 7), *(end + by for end in ends for by in (-2, -1, 0))}):
        path.write_bytes(content[:cut])
        whole = sum(end - 1 <= cut for end in ends)  # the end of a line may be gone, as editors remove it
        if whole:
            assert opened(path) == whole - 1
            assert path.read_bytes() == content[: ends[whole - 1]]
        else:
            with pytest.raises(UserError, match="damaged"):
                opened(path)
    path.write_bytes(content[: ends[0]] + content[ends[1] :])
    with pytest.raises(UserError, match="line 2: its digest does not follow"):
        opened(path)


def test_lines_of_another_ledger_do_not_fit(tmp_path):
    one, other = begun(tmp_path / "one"), begun(tmp_path / "other")
    lines, others = one.splitlines(keepends=True), other.splitlines(keepends=True)
    (tmp_path / "one").write_bytes(lines[0] + others[1])
    with pytest.raises(UserError, match="line 2: its digest does not follow"):
        opened(tmp_path / "one")


def forged(path, **changes):
    """Write a ledger whose chain is whole and whose last entry says something else."""
    first, head = ledger._line({"kind": ledger.KIND, "format": 1} | asdict(HEADER) | {"id": "0"}, "")
    value = {"number": 0} | asdict(ENTRY) | changes
    content = json.dumps(value).encode()
    path.write_bytes(
        first + b"%s %s %s\n" % (ledger._length(len(content)), ledger._digest(head, content).encode(), content)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"terms": {"mu_squared": -1.0}},
        {"terms": {"mu_squared": math.nan}},
        {"terms": {"mu_squared": math.inf}},
        {"terms": {"mu_squared": 10**400}},
        {"terms": {"steps": [{"noise": -1}]}},
        {"terms": 3},
        {"unit": "person"},
        {"adjacency": "replacement"},
        {"released": {"explanation": [math.nan]}},
        {"number": 1},
        {"number": True},
        {"more": 1},
    ],
)
def test_entries_that_would_refund_or_are_foreign_are_refused(tmp_path, changes):
    path = tmp_path / "ledger"
    forged(path, **changes)
    with pytest.raises(UserError, match=r"damaged \(line 2") as caught:
        opened(path)
    assert "\n" not in str(caught.value)
    forged(path)
    assert opened(path) == 1


@pytest.mark.parametrize(
    "entry",
    [
        replace(ENTRY, terms={"mu_squared": -0.1}),
        replace(ENTRY, terms={"mu_squared": math.nan}),
        replace(ENTRY, unit="person"),
        replace(ENTRY, released={"explanation": [math.inf]}),
    ],
)
def test_what_does_not_belong_is_not_charged(tmp_path, entry):
    with Ledger(tmp_path / "ledger", HEADER) as kept:
        with pytest.raises(UserError, match="nothing was charged or released"):
            kept.append([ENTRY, entry])
        assert kept.entries == []
    assert opened(tmp_path / "ledger") == 0


def test_an_interrupted_charge_stays_and_closes_the_ledger(tmp_path, monkeypatch):
    """Ctrl-C while a line is synced: whoever goes on may not write a line that does not follow from it."""
    path = tmp_path / "ledger"
    kept = Ledger(path, HEADER)

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.append([ENTRY])
    with pytest.raises(UserError, match="closed; nothing was released"):
        kept.append([ENTRY])
    with Ledger(path, HEADER) as again:
        assert len(again.entries) == 1
        again.append([ENTRY])
    assert opened(path) == 2


def test_an_unlinked_ledger_takes_no_more(tmp_path):
    path = tmp_path / "ledger"
    with Ledger(path, HEADER) as one:
        path.unlink()
        with Ledger(path, HEADER) as other, pytest.raises(UserError, match="moved or replaced"):
            other.append([ENTRY])
            one.append([ENTRY])
        assert one.entries == []
    assert opened(path) == 1


def test_a_copy_that_is_put_back_in_place_is_noticed(tmp_path):
    path = tmp_path / "ledger"
    with Ledger(path, HEADER) as kept:
        older = path.read_bytes()
        kept.append([ENTRY])
        later = path.read_bytes()
        path.write_bytes(older)  # as cp does, which keeps the inode
        with pytest.raises(UserError, match="moved or replaced"):
            kept.append([ENTRY])
        path.write_bytes(later)
        kept.append([ENTRY])
    assert opened(path) == 2


def test_links_and_fifos_are_refused_and_nothing_is_waited_for(tmp_path):
    begun(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("link", "symbolic link"), ("dangling", "symbolic link"), ("fifo", "not a regular file")):
        with pytest.raises(UserError, match=words):
            opened(tmp_path / name)
    with pytest.raises(UserError, match=r"is a directory; expected a ledger|not a regular file"):
        opened(tmp_path)
    assert not (tmp_path / "nowhere").exists()


def test_a_ledger_is_its_owners_alone(tmp_path):
    begun(tmp_path / "ledger")
    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o600


def test_the_head_names_the_state(tmp_path):
    path = tmp_path / "ledger"
    begun(path, entries=0)
    with Ledger(path, HEADER) as kept:
        before = kept.head
        kept.append([ENTRY])
        assert kept.head != before
        assert read(path)[2] == kept.head
