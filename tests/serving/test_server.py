"""The command in a process of its own, over loopback: how it ends, and what a kill under load leaves."""

import http.client
import json
import math
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from mia_audit.privacy import ledger
from mia_audit.privacy.gaussian import epsilon_of_gdp

pytestmark = pytest.mark.slow


@contextmanager
def running(path, *options):
    """Start the service on a free port; yield the process and the port."""
    command = [sys.executable, "-m", "mia_audit.cli", "serve-explanations", str(path), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert match, line + process.stderr.read()
            yield process, int(match[1])
        finally:
            process.kill()


def ask(connection, key, record):
    """Ask over a connection that is kept; return status and JSON."""
    headers = {"Authorization": f"Bearer {key}"}
    connection.request("POST", "/explain", json.dumps({"query": record.tolist()}), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def load(port, key, records, answers, counted=None):
    """Ask for one record after the other until the service is gone; keep what was answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        for record in records:
            status, answer = ask(connection, key, record)
            answers.append((key, record, status, answer))
            if counted is not None:
                counted.release()
    except (OSError, http.client.HTTPException, ValueError):
        return  # killed: what it was about to say is not an answer
    finally:
        connection.close()


def charges(path):
    return [(entry.released["account"], entry.terms["mu_squared"], entry.released) for entry in ledger.read(path)[1]]


def test_a_kill_under_load_and_a_restart_overspend_nothing(files, table, tmp_path):
    """Thrice; before each kill callers race for answers that are charged."""
    path, keys = files(protocol="non-adaptive", epsilon=0.1, budget=1.0, callers={"alice": 0.5, "bob": 0.9})
    names = {key: name for name, key in keys.items()}
    seen = []
    for round_ in range(3):
        with running(path) as (process, port):
            answers, counted = [], threading.Semaphore(0)
            threads = [
                threading.Thread(
                    target=load,
                    args=(port, keys[("alice", "bob")[k % 2]], table.records[200 * round_ + k :: 8], answers, counted),
                )
                for k in range(8)
            ]
            for thread in threads:
                thread.start()
            for _ in range(15):
                assert counted.acquire(timeout=60)
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=60)
            for thread in threads:
                thread.join(timeout=60)
        seen += [one for one in answers if one[2] == 200]
        kept = charges(tmp_path / "ledger")
        explanations = [released["explanation"] for _, _, released in kept]
        for key, _, _, answer in seen:
            if answer["mu_squared"] > 0:
                assert answer["explanation"] in explanations
                name, cost, _ = kept[explanations.index(answer["explanation"])]
                assert (name, cost) == (names[key], answer["mu_squared"])
        for name, budget in (("alice", 0.5), ("bob", 0.9), (None, 1.0)):
            spent = sum(cost for whom, cost, _ in kept if name in (whom, None))
            assert epsilon_of_gdp(math.sqrt(spent), 1e-6) <= budget * (1 + 1e-9)
    assert sum(answer["mu_squared"] > 0 for *_, answer in seen) > 30
    with running(path) as (_, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for key, record, _, answer in [one for one in seen if one[3]["mu_squared"] > 0][::5]:
            status, again = ask(connection, key, record)
            assert (status, again["source"], again["explanation"]) == (200, "reused", answer["explanation"])
    assert charges(tmp_path / "ledger") == kept


def test_sigterm_finishes_what_is_in_flight_and_exits_with_0(files, table, tmp_path):
    (tmp_path / "waiting").touch()
    path, keys = files()
    box = (tmp_path / "box.py").read_text()
    waits = (
        f"    if len(records) == 1:\n        open({str(tmp_path / 'asked')!r}, 'w').close()\n        time.sleep(1)\n"
    )
    (tmp_path / "box.py").write_text(
        box.replace("import numpy", "import time\n\nimport numpy").replace("    return", waits + "    return")
    )
    with running(path) as (process, port):
        answers = []
        thread = threading.Thread(target=load, args=(port, keys["alice"], table.records[:1], answers))
        thread.start()
        until = time.monotonic() + 60
        while not (tmp_path / "asked").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        thread.join(timeout=60)
        assert process.wait(timeout=60) == 0
        assert "ε = 2 at δ = 1e-06 per record" in process.stderr.read()
    (answered,) = answers
    assert (answered[2], answered[3]["source"]) == (200, "scratch")
    ((name, cost, released),) = charges(tmp_path / "ledger")
    assert (name, cost, released["explanation"]) == ("alice", answered[3]["mu_squared"], answered[3]["explanation"])


def test_a_ledger_that_is_moved_away_ends_the_service(files, table, tmp_path):
    path, keys = files()
    with running(path) as (process, port):
        answers = []
        (tmp_path / "ledger").rename(tmp_path / "elsewhere")
        load(port, keys["alice"], table.records[:1], answers)
        assert process.wait(timeout=60) == 2
        message = process.stderr.read().splitlines()[-1]
    assert [one[2] for one in answers] == [503]
    assert "moved or replaced while it was in use" in message and "the service has ended" in message
