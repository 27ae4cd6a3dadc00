import errno
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.explain.private_local.service import ExplanationLedger, PrivateExplainer
from mia_audit.privacy import ledger
from mia_audit.privacy.gaussian import limit_for
from mia_audit.privacy.ledger import read


def service(table, terms, path, protocol="adaptive"):
    return PrivateExplainer(table.explained, terms, protocol, table.black_box, ledger=path, seed=1)


def test_a_restart_takes_up_budget_and_history(table, terms, tmp_path):
    queries = table.records[::40]
    whole = service(table, terms, tmp_path / "whole.arrow")
    expected = whole.answer(queries)
    first = service(table, terms, tmp_path / "ledger")
    before = first.answer(queries[:7])
    first.ledger.close()
    again = service(table, terms, tmp_path / "ledger")
    assert again.ledger.mu_squared == first.ledger.mu_squared
    assert again.epsilon == first.epsilon
    after = again.answer(queries[7:])
    assert before.source + after.source == expected.source
    assert before.spent + after.spent == expected.spent
    np.testing.assert_allclose(
        np.concatenate([before.explanations, after.explanations]), expected.explanations, atol=1e-9
    )
    again.ledger.close()
    whole.ledger.close()
    assert (tmp_path / "whole.arrow").read_bytes()[:8] == (tmp_path / "ledger").read_bytes()[:8]


def charges(path):
    return [entry.terms["mu_squared"] for entry in read(path)[1]]


def test_the_file_has_what_was_charged_and_released(table, terms, tmp_path):
    path = tmp_path / "ledger"
    one = service(table, terms, path, "non-adaptive")
    answers = one.answer(table.records[:5])
    one.ledger.close()
    header, entries, _ = read(path)
    assert (header.unit, header.adjacency) == ("record", "zero-out")
    assert [entry.released["explanation"] for entry in entries] == answers.explanations.tolist()
    assert [entry.released["source"] for entry in entries] == answers.source
    assert charges(path) == answers.spent


def test_answers_that_cost_nothing_take_neither_memory_nor_file(table, terms, tmp_path):
    path = tmp_path / "ledger"
    one = service(table, replace(terms, budget=0.6), path, "adaptive")
    one.answer(table.records[::6])
    size, kept = path.stat().st_size, len(one.ledger.entries)
    sources = [source for _ in range(20) for source in one.answer(table.records[::6]).source]
    assert set(sources) <= {"history", "reused"} and len(sources) == 2000
    assert (path.stat().st_size, len(one.ledger.entries)) == (size, kept)
    one.ledger.close()


def test_a_file_cut_anywhere_never_forgets_what_was_released(table, terms, tmp_path):
    """Every prefix of the file is what a crash may leave: what was charged before the append that it cut is there."""
    path = tmp_path / "ledger"
    one = service(table, terms, path, "non-adaptive")
    sizes, totals = [path.stat().st_size], [0.0]
    for index in (0, 100, 200):
        one.answer(table.records[index : index + 2])
        sizes.append(path.stat().st_size)
        totals.append(one.ledger.mu_squared)
    one.ledger.close()
    content = path.read_bytes()
    cuts = {*range(sizes[0], len(content), 97), *(size + by for size in sizes[1:-1] for by in (-1, 0, 1, 80))}
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        again = service(table, terms, path, "non-adaptive")
        written = max(index for index, size in enumerate(sizes) if size <= cut)
        assert totals[written] <= again.ledger.mu_squared * (1 + 1e-12)
        assert again.ledger.mu_squared <= totals[min(written + 1, 3)]
        assert content.startswith(path.read_bytes())
        if cut % 5 == 0:
            again.answer(table.records[400:401])  # appended where the torn row stood
            after = again.ledger.mu_squared
            again.ledger.close()
            again = service(table, terms, path, "non-adaptive")
            assert again.ledger.mu_squared == pytest.approx(after)
        again.ledger.close()


KILLED = """
import os, signal, sys
import numpy as np
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.privacy import ledger

records = np.random.default_rng(0).standard_normal((200, 3))
explained = ExplanationSet.from_arrays(records, np.tanh(records[:, 0]))
terms = ExplanationTerms(epsilon=0.5, delta=1e-6, budget=9.0, steps=20)
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
    path = tmp_path / "ledger"
    result = subprocess.run([sys.executable, "-c", KILLED, str(path), call, when], capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL, result.stderr
    released = [float(line) for line in result.stdout.split()]
    assert len(released) == 1
    charged = charges(path)
    assert len(charged) == rows
    assert sum(charged) >= sum(released)


def test_a_full_disk_keeps_the_charge_and_releases_nothing(table, terms, tmp_path, monkeypatch):
    one = service(table, terms, tmp_path / "ledger", "non-adaptive")
    one.answer(table.records[:1])
    spent = one.ledger.mu_squared

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger.os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device; the answer was not released and stays charged"):
        one.answer(table.records[300:301])
    monkeypatch.undo()
    assert one.ledger.mu_squared > spent
    with pytest.raises(UserError, match="closed; nothing was released"):
        one.answer(table.records[301:302])
    assert service(table, terms, tmp_path / "ledger").ledger.mu_squared >= spent


def test_two_processes_cannot_share_a_ledger(table, terms, tmp_path):
    one = service(table, terms, tmp_path / "ledger")
    with pytest.raises(UserError, match="another process uses this ledger"):
        service(table, terms, tmp_path / "ledger")
    one.ledger.close()
    service(table, terms, tmp_path / "ledger").ledger.close()


def test_of_two_processes_that_begin_a_ledger_at_once_one_is_refused(table, terms, tmp_path, monkeypatch):
    path, others, honest = tmp_path / "ledger", [], ledger.sync

    def meanwhile(synced: Path) -> None:
        monkeypatch.setattr(ledger, "sync", honest)
        honest(synced)
        others.append(service(table, terms, path))
        others[0].answer(table.records[:1])

    monkeypatch.setattr(ledger, "sync", meanwhile)
    with pytest.raises(UserError, match="another process uses this ledger"):
        service(table, terms, path)
    spent = others[0].ledger.mu_squared
    others[0].ledger.close()
    again = service(table, terms, path)
    assert again.ledger.mu_squared == spent > 0
    again.ledger.close()


def test_a_ledger_of_other_terms_is_refused(table, terms, tmp_path):
    service(table, terms, tmp_path / "ledger").ledger.close()
    with pytest.raises(UserError, match="created with other terms; answers on other terms need a separate ledger"):
        service(table, replace(terms, epsilon=1.0), tmp_path / "ledger")


def test_a_damaged_ledger_is_refused(table, terms, tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(b"no ledger at all")
    with pytest.raises(UserError, match=r"ledger: damaged"):
        service(table, terms, path)
    path.unlink()
    one = service(table, terms, path)
    start = path.stat().st_size
    one.answer(table.records[:1])
    row = path.read_bytes()[start:]
    one.answer(table.records[300:301])
    one.ledger.close()
    path.write_bytes(path.read_bytes()[:start] + path.read_bytes()[start + len(row) :])
    with pytest.raises(UserError, match=r"damaged \(line 2: its digest does not follow from the earlier lines"):
        service(table, terms, path)


def test_a_ledger_without_a_path_is_kept_in_memory():
    kept = ExplanationLedger(None, 2, 1e-6, "zero-out", {})
    kept.append([])
    assert kept.entries == []
    assert kept.epsilon == 0


FORKED = """
import os, sys
from pathlib import Path
import numpy as np
from mia_audit.errors import UserError
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.terms import ExplanationTerms

records = np.random.default_rng(0).standard_normal((200, 3))
explained = ExplanationSet.from_arrays(records, np.tanh(records[:, 0]))
terms = ExplanationTerms(epsilon=0.5, delta=1e-6, budget=0.6, steps=20)
path = Path(sys.argv[1]) if len(sys.argv) > 1 else None
service = PrivateExplainer(explained, terms, "non-adaptive", lambda q: np.tanh(q[:, :1]), ledger=path)
for number in range(4):
    if os.fork() == 0:
        try:
            service.answer(records[number : number + 1])
            print("answered", flush=True)
        except UserError as error:
            print(f"refused: {error}", flush=True)
        try:
            service.ledger.append(service.ledger.entries)
        except UserError as error:
            print(f"refused: {error}", flush=True)
        os._exit(0)
    os.wait()
print(*service.answer(records[:1]).source, flush=True)
"""


@pytest.mark.parametrize("kept", [True, False])
def test_a_fork_does_not_spend_the_budget_again(tmp_path, kept):
    """Four workers of a preloaded service; the noise of their first answers was one vector."""
    path = [str(tmp_path / "ledger")] if kept else []
    result = subprocess.run([sys.executable, "-c", FORKED, *path], capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert len(lines) == 9
    assert all(line.startswith("refused: ") and "fork" in line for line in lines[:8])
    assert lines[8] == "scratch"
    if kept:
        assert len(charges(Path(path[0]))) == 1


SHARED = """
import sys
from pathlib import Path
import numpy as np
from mia_audit.errors import UserError
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.terms import ExplanationTerms

records = np.random.default_rng(0).standard_normal((200, 3))
explained = ExplanationSet.from_arrays(records, np.tanh(records[:, 0]))
terms = ExplanationTerms(epsilon=0.1, delta=1e-6, budget=0.35, steps=20)
spent, refused = 0.0, 0
for number in range(200):
    try:
        service = PrivateExplainer(explained, terms, "non-adaptive", lambda q: np.tanh(q[:, :1]), ledger=Path(sys.argv[1]))
    except UserError:
        refused += 1
        continue
    spent += sum(service.answer(records[number : number + 1]).spent)
    service.ledger.close()
print(spent)
"""


def test_two_processes_together_spend_one_budget(tmp_path):
    path = tmp_path / "ledger"
    command = [sys.executable, "-c", SHARED, str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    spent = sum(float(process.communicate(timeout=120)[0]) for process in processes)
    assert all(process.returncode == 0 for process in processes)
    limit = limit_for(0.35, 1e-6)
    assert 0.7 * limit < spent <= limit * (1 + 1e-9)
    assert sum(charges(path)) == pytest.approx(spent)


def test_a_ledger_that_was_moved_away_takes_no_more(table, terms, tmp_path):
    """Another process may have begun a new one in its place."""
    path = tmp_path / "ledger"
    one = service(table, terms, path, "non-adaptive")
    one.answer(table.records[:1])
    path.rename(tmp_path / "elsewhere.arrow")
    other = service(table, terms, path, "non-adaptive")
    spent = one.ledger.mu_squared
    with pytest.raises(UserError, match="moved or replaced while it was in use; nothing was released"):
        one.answer(table.records[300:301])
    assert one.ledger.mu_squared == spent
    one.ledger.close()
    other.ledger.close()


def test_an_answer_that_a_failing_disk_kept_back_is_not_given_from_the_history(table, terms, tmp_path, monkeypatch):
    """It is in no file, so that a restart would not know what it cost."""
    one = service(table, terms, tmp_path / "ledger", "adaptive")
    one.answer(table.records[:1])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger.os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        one.answer(table.records[300:301])
    monkeypatch.undo()
    with pytest.raises(UserError, match="closed; nothing was released"):
        one.answer(table.records[300:301])


def test_a_ledger_of_another_black_box_is_refused(table, terms, tmp_path):
    path = tmp_path / "ledger"
    for digest, words in (("a", None), ("a", None), ("b", "created with other black_box")):
        with pytest.raises(UserError, match=words) if words else nullcontext():
            about = {"black_box": digest}
            PrivateExplainer(table.explained, terms, ledger=path, black_box=table.black_box, about=about).ledger.close()
