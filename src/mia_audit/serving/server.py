"""The server: one process, one event loop, and a shutdown without losses."""

from __future__ import annotations

import signal
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from mia_audit.serving.desk import Desk

CONNECTIONS = 256
"""Largest number of open connections; further ones receive status 503."""
TO_END = 60
"""Time limit for requests in flight at shutdown, in seconds."""
SWITCH = 0.0005
"""Seconds after which a computing thread lets another one run. The default of 5 ms is the time of several answers from the history."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, on a free port if `port` is 0. Raises UserError on failure."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"{host}, port {port}: {getattr(error, 'strerror', None) or error}; give another --host or --port"
        ) from None


def serve(app: FastAPI, desk: Desk, listener: socket.socket) -> None:
    """Answer queries until SIGTERM or SIGINT. Then finish requests in flight, close the ledger, and return.

    Raises UserError if the ledger has failed, after which no query may be answered.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=TO_END,
    )
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    desk.failed = stop
    # uvicorn raises the signal again after the server has ended; this second signal must be ignored
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        server.run(sockets=[listener])
    finally:
        sys.setswitchinterval(interval)
        desk.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    if desk.failure:
        raise UserError(f"{desk.failure}; the service has ended")
