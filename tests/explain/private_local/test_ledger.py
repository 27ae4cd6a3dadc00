import errno
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mia_audit.errors import UserError
from mia_audit.explain.private_local import PrivateExplainer, ledger
from mia_audit.explain.private_local.ledger import Ledger


def service(table, terms, path, protocol="adaptive"):
    return PrivateExplainer(table.explained, terms, protocol, table.black_box, ledger=path, seed=1)


def test_a_restart_takes_up_budget_and_history(table, terms, tmp_path):
    queries = table.records[::40]
    whole = service(table, terms, tmp_path / "whole.arrow")
    expected = whole.answer(queries)
    first = service(table, terms, tmp_path / "ledger.arrow")
    before = first.answer(queries[:7])
    first.ledger.close()
    again = service(table, terms, tmp_path / "ledger.arrow")
    assert again.ledger.rho == first.ledger.rho
    assert again.epsilon == first.epsilon
    after = again.answer(queries[7:])
    assert before.source + after.source == expected.source
    assert before.spent + after.spent == expected.spent
    np.testing.assert_allclose(
        np.concatenate([before.explanations, after.explanations]), expected.explanations, atol=1e-9
    )
    again.ledger.close()
    whole.ledger.close()
    assert (tmp_path / "whole.arrow").read_bytes()[:8] == (tmp_path / "ledger.arrow").read_bytes()[:8]


def test_the_file_is_an_arrow_stream_that_anything_reads(table, terms, tmp_path):
    one = service(table, terms, tmp_path / "ledger.arrow")
    answers = one.answer(table.records[:5])
    one.ledger.close()
    with pa.ipc.open_stream(str(tmp_path / "ledger.arrow")) as stream:
        rows = stream.read_all()
    assert rows.equals(one.ledger.table())
    assert rows["source"].to_pylist() == answers.source
    np.testing.assert_allclose(np.cumsum(answers.spent), rows["rho_spent"].to_numpy())
    assert rows["epsilon"][-1].as_py() == one.epsilon


def test_a_file_cut_anywhere_never_forgets_what_was_released(table, terms, tmp_path):
    """Every prefix of the file is what a crash may leave: the charges of whole appends are there, or none of a torn one."""
    path = tmp_path / "ledger.arrow"
    one = service(table, terms, path)
    sizes, totals = [path.stat().st_size], [0.0]
    for index in (0, 100, 200, 300):
        one.answer(table.records[index : index + 2])
        sizes.append(path.stat().st_size)
        totals.append(one.ledger.rho)
    one.ledger.close()
    content = path.read_bytes()
    cuts = {
        *range(sizes[0], len(content), 97),
        *sizes,
        *(size - 1 for size in sizes[1:]),
        *(size + 1 for size in sizes[:-1]),
    }
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        again = service(table, terms, path)
        written = max(index for index, size in enumerate(sizes) if size <= cut)
        assert again.ledger.rho == pytest.approx(totals[written])
        assert path.stat().st_size == sizes[written]
        if cut != sizes[written]:
            again.answer(table.records[400:401])  # appended where the torn row stood
            after = again.ledger.rho
            again.ledger.close()
            again = service(table, terms, path)
            assert again.ledger.rho == pytest.approx(after)
        again.ledger.close()


KILLED = """
import os, signal, sys
import numpy as np
from mia_audit.explain.private_local import ExplanationSet, PrivateExplainer, Terms, ledger

records = np.random.default_rng(0).standard_normal((200, 3))
explained = ExplanationSet.of(records, np.tanh(records[:, 0]))
terms = Terms(epsilon=0.5, delta=1e-6, budget=9.0, steps=20)
service = PrivateExplainer(explained, terms, "non-adaptive", lambda q: np.tanh(q[:, :1]), ledger=__import__("pathlib").Path(sys.argv[1]))
print(service.answer(records[:1]).spent[0], flush=True)
original = getattr(os, sys.argv[2])

def killed(*arguments):
    if sys.argv[3] == "after":
        original(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(ledger.os, sys.argv[2], killed)
print(service.answer(records[1:2]).spent[0], flush=True)
"""


@pytest.mark.parametrize(
    ("call", "when", "rows"), [("write", "before", 1), ("write", "after", 2), ("fsync", "after", 2)]
)
def test_a_kill_between_charge_and_release_over_counts_at_most(tmp_path: Path, call, when, rows):
    path = tmp_path / "ledger.arrow"
    result = subprocess.run([sys.executable, "-c", KILLED, str(path), call, when], capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL, result.stderr
    released = [float(line) for line in result.stdout.split()]
    assert len(released) == 1
    with pa.ipc.open_stream(str(path)) as stream:
        charged = stream.read_all()["rho"].to_pylist()
    assert len(charged) == rows
    assert sum(charged) >= sum(released)


def test_a_full_disk_keeps_the_charge_and_releases_nothing(table, terms, tmp_path, monkeypatch):
    one = service(table, terms, tmp_path / "ledger.arrow", "non-adaptive")
    one.answer(table.records[:1])
    spent = one.ledger.rho

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger.os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device; the answer was not released and stays charged"):
        one.answer(table.records[300:301])
    monkeypatch.undo()
    assert one.ledger.rho > spent
    with pytest.raises(UserError, match="closed; nothing was released"):
        one.answer(table.records[301:302])
    assert service(table, terms, tmp_path / "ledger.arrow").ledger.rho >= spent


def test_two_processes_cannot_share_a_ledger(table, terms, tmp_path):
    one = service(table, terms, tmp_path / "ledger.arrow")
    with pytest.raises(UserError, match="another process answers from this ledger"):
        service(table, terms, tmp_path / "ledger.arrow")
    one.ledger.close()
    service(table, terms, tmp_path / "ledger.arrow").ledger.close()


def test_of_two_processes_that_begin_a_ledger_at_once_one_is_refused(table, terms, tmp_path, monkeypatch):
    path, others, honest = tmp_path / "ledger.arrow", [], ledger._sync

    def meanwhile(synced: Path) -> None:
        monkeypatch.setattr(ledger, "_sync", honest)
        honest(synced)
        others.append(service(table, terms, path))
        others[0].answer(table.records[:1])

    monkeypatch.setattr(ledger, "_sync", meanwhile)
    with pytest.raises(UserError, match="another process answers from this ledger"):
        service(table, terms, path)
    spent = others[0].ledger.rho
    others[0].ledger.close()
    again = service(table, terms, path)
    assert again.ledger.rho == spent > 0
    again.ledger.close()


def test_a_ledger_of_other_terms_is_refused(table, terms, tmp_path):
    service(table, terms, tmp_path / "ledger.arrow").ledger.close()
    with pytest.raises(UserError, match="begun with other terms; answers on other terms need a ledger of their own"):
        service(table, replace(terms, epsilon=1.0), tmp_path / "ledger.arrow")


def test_a_damaged_ledger_is_refused(table, terms, tmp_path):
    path = tmp_path / "ledger.arrow"
    path.write_bytes(b"no ledger at all")
    with pytest.raises(UserError, match=r"ledger\.arrow: damaged"):
        service(table, terms, path)
    path.unlink()
    one = service(table, terms, path)
    start = path.stat().st_size
    one.answer(table.records[:1])
    row = path.read_bytes()[start:]
    one.answer(table.records[300:301])
    one.ledger.close()
    path.write_bytes(path.read_bytes()[:start] + path.read_bytes()[start + len(row) :])
    with pytest.raises(UserError, match="damaged: entry 0 does not follow"):
        service(table, terms, path)


def test_a_ledger_without_a_path_is_kept_in_memory():
    kept = Ledger(None, 2, 1e-6, {})
    kept.append([])
    assert kept.table().num_rows == 0
    assert kept.epsilon == 0
