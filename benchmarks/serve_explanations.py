"""Measure how many explanations per second a service on one core answers from the history, also while it reads records.

    python benchmarks/serve_explanations.py                  32 callers, 4,000 requests, 2,000 records of 30 features
    python benchmarks/serve_explanations.py --requests 800   a quicker look

The service (`mia-audit serve-explanations`) is a process on a core of its own, on 127.0.0.1. All callers are one
process on the other cores; each has a connection, and sends the next query when the last one is answered. There are
three loads in one run: queries that were charged before (`known`); queries that the protocol answers from the history,
because the callers' own budgets are too small for the records (`history`); and both again while another caller is
constantly answered from the records. Rates are per second of wall-clock time; the CPU time of the service per answer,
which does not depend on other load of the machine, is printed beside them. Each load ends after --seconds.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import yaml

from mia_audit.pools.build import build_pool
from mia_audit.pools.catalogue import Source
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import write_pool
from mia_audit.serving.keys import new_key

BLACK_BOX = """
import numpy as np


def values(records):
    return np.tanh(records @ np.linspace(-1, 1, records.shape[1]))[:, None]
"""
KNOWN = 40
"""Number of queries that are charged before anything is timed."""


def written(folder: Path, options: argparse.Namespace) -> tuple[list[str], np.ndarray]:
    """Write a service's files; return its keys and records."""
    random = np.random.default_rng(0)
    records = random.standard_normal((options.records, options.features)).astype(np.float32)
    source = Source("table", records, (records[:, 0] > 0).astype(np.int64), ["no", "yes"], None)
    write_pool(build_pool(source, Dataset(source="digits"), "table", 0), folder / "pool")
    (folder / "box.py").write_text(BLACK_BOX)
    callers = {f"caller{number}": 0.01 for number in range(options.callers)} | {"rich": 100.0}
    service = {
        "pool": str(folder / "pool"),
        "black_box": f"{folder}/box.py:values",
        "ledger": str(folder / "ledger"),
        "keys": str(folder / "keys"),
        "callers": callers,
        "protocol": "non-adaptive",
        "epsilon": 0.1,
        "delta": 1e-6,
        "steps": 100,
        "budget": 100.0,
    }
    (folder / "service.yaml").write_text(yaml.safe_dump(service))
    return [new_key(folder / "keys", name) for name in callers], records


class Caller:
    """A caller with one persistent connection."""

    def __init__(self, port: int, key: str) -> None:
        self.port, self.key = port, key

    async def __aenter__(self) -> "Caller":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, record: np.ndarray) -> dict[str, object]:
        """Send one query and return its answer."""
        body = json.dumps({"query": record.tolist()}).encode()
        head = f"POST /explain HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answer.split("content-length:")[1].split("\r\n")[0])
        content = json.loads(await self.reader.readexactly(length))
        assert " 200 " in answer.splitlines()[0], content
        return content


async def timed(
    port: int, keys: list[str], records: np.ndarray, process: psutil.Process, options: argparse.Namespace
) -> str:
    """Let all callers send queries concurrently, and return rate, CPU time of the service and waiting times."""
    left, waited, until = iter(range(options.requests)), [], time.monotonic() + options.seconds

    async def one(key: str) -> None:
        async with Caller(port, key) as caller:
            for number in left:
                if time.monotonic() > until:
                    return
                asked = time.perf_counter()
                answer = await caller.ask(records[number % len(records)])
                waited.append(time.perf_counter() - asked)
                assert answer["mu_squared"] == 0

    before, started = sum(process.cpu_times()[:2]), time.perf_counter()
    await asyncio.gather(*(one(key) for key in keys))
    seconds, busy = time.perf_counter() - started, sum(process.cpu_times()[:2]) - before
    middle, late = np.quantile(waited, [0.5, 0.99]) * 1000
    return (
        f"{len(waited) / seconds:7.0f} a second ({len(waited)} in {seconds:.1f} s), CPU {1000 * busy / len(waited):5.2f} ms each"
        f" ({len(waited) / busy:.0f} a second of a whole core),"
        f" waiting {middle:.0f} ms (median), {late:.0f} ms (99 %)"
    )


async def loads(
    port: int, keys: list[str], records: np.ndarray, process: psutil.Process, options: argparse.Namespace
) -> None:
    """Print a line per load."""
    *poor, rich = keys
    known, fresh, costly = np.split(records, [KNOWN, len(records) // 2])
    async with Caller(port, rich) as caller:
        for record in known:
            await caller.ask(record)
    print(f"{'known':27}", await timed(port, poor, known, process, options), flush=True)
    print(f"{'history':27}", await timed(port, poor, fresh, process, options), flush=True)
    answered, done = 0, False

    async def reading() -> None:
        nonlocal answered
        async with Caller(port, rich) as caller:
            for record in costly:
                if done:
                    return
                answered += (await caller.ask(record))["source"] == "scratch"

    other = asyncio.create_task(reading())
    print(f"{'known, records read':27}", await timed(port, poor, known, process, options), flush=True)
    print(f"{'history, records read':27}", await timed(port, poor, fresh, process, options), flush=True)
    done = True
    await other
    print(f"{answered} answers from the records meanwhile")


def main() -> None:
    """Start the service, load it, and end it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--requests", type=int, default=4000, help="of each load (4000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load at most (60)")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--features", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys, records = written(folder, options)
        command = [
            sys.executable,
            "-m",
            "mia_audit.cli",
            "serve-explanations",
            str(folder / "service.yaml"),
            "--port",
            "0",
        ]
        cores = sorted(os.sched_getaffinity(0))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            try:
                port = int(service.stdout.readline().split(",")[0].rpartition(":")[2])
                process = psutil.Process(service.pid)
                process.cpu_affinity(cores[:1])
                for thread in process.threads():
                    os.sched_setaffinity(thread.id, cores[:1])
                os.sched_setaffinity(0, cores[1:] or cores)
                asyncio.run(loads(port, keys, records, process, options))
            finally:
                service.terminate()
        print(f"the service ended with exit code {service.returncode}")


if __name__ == "__main__":
    main()
