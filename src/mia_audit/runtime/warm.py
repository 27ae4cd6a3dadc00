"""A warm worker: one process that has imported PyTorch and forks itself for every local job of the workflow.

Why it is worth its lines: a process that computes with models imports for three to five seconds of processor time, and
the jobs of a small audit work for about as long. A fork of a process that has imported already starts at once, and
shares the libraries' memory with all others.

Why a fork and no pool of workers: every job still is a process of its own. It ends with its memory, its threads, its
locks of GPUs and its random generators; a job that is killed or runs out of memory takes no other with it; and nothing
is carried from job to job, so results have the same bytes with the worker or without. For this the worker itself never
computes and never starts a thread or CUDA, which do not survive a fork; it only imports.

The worker listens on an abstract Unix socket to which only its own user can connect. The command of a job sends it the
arguments, the environment, the folder and the open files (standard input, output and error), and then waits for the exit
code of the child that does the work. Signals are forwarded to the child, and the child ends if the command is killed.

A child inherits from the worker and not from the job what was read when the process started: the code, limits, cores,
priority, control group and namespaces, and variables such as the number of threads. These must be equal in both
(`_identity`). Otherwise, on a cluster, and whenever anything fails before the fork, the job runs in its own process: the
worker makes jobs faster, and none depends on it. The worker ends with the process that started it.
"""

import array
import atexit
import json
import os
import resource
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

ADDRESS = "MIA_AUDIT_WARM_WORKER"
"""The environment variable with the worker's name; with `off` no worker is started."""
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "POLARS_", "ARROW_", "TORCH_", "PYTORCH_", "CUDA_", "HF_")
NUMBERS_OF_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that Snakemake sets for a job. When libraries are imported, they read these, and variables with the prefixes above."""
COMPUTING = ("architecture", "pretrain", "train", "signals", "target", "explanation-metrics")
"""The stages that import PyTorch."""
SHARED = ("polars", "pyarrow.parquet", "scipy.special", "pandas")
"""Libraries that most stages import; pandas by pyarrow, where it is installed."""
PROGRAM = "import sys; from mia_audit.cli import serve; serve(int(sys.argv[1]), pytorch=sys.argv[2] == '1')"
Main = Callable[[Sequence[str]], int]
Load = Callable[[str], object]
LENGTH = struct.Struct("!I")
KILLED = 128 + signal.SIGKILL


def start(threads: int, pytorch: bool) -> "subprocess.Popen[bytes] | None":
    """Start a worker for the jobs that this process starts from now on and that have this number of threads.

    `pytorch` states whether jobs that train and query models need PyTorch. No worker is started if there is one
    already, or if workers are turned off.
    """
    if sys.platform != "linux" or os.environ.get(ADDRESS):
        return None
    os.environ[ADDRESS] = name = f"mia-audit-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen(256)
    environment = os.environ | dict.fromkeys(NUMBERS_OF_THREADS, str(threads))
    worker = subprocess.Popen(  # the worker's standard input stays open while this process lives
        [sys.executable, "-P", "-c", PROGRAM, str(listener.fileno()), str(int(pytorch))],
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
        env=environment,
    )
    listener.close()
    atexit.register(_end, worker)
    return worker


def turn_off() -> None:
    """Run the jobs that this process starts from now on in separate processes."""
    os.environ[ADDRESS] = "off"


def _end(worker: "subprocess.Popen[bytes]") -> None:
    """End the worker and wait for it, so that its jobs' processor time counts for this process."""
    assert worker.stdin is not None
    worker.stdin.close()
    worker.wait()


def run_warm(arguments: Sequence[str]) -> int | None:
    """Run a stage in a child of the worker and return its exit code; None if no worker can run it."""
    name = os.environ.get(ADDRESS)
    if sys.platform != "linux" or not name or name == "off":
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"\0{name}")
            if _peer(connection) != os.getuid():
                return None
            umask = os.umask(0)
            os.umask(umask)
            request = {
                "arguments": list(arguments),
                "environment": dict(os.environ),
                "folder": os.getcwd(),  # noqa: PTH109 - as it is, not resolved
                "umask": umask,
                "identity": _identity(),
            }
            body = json.dumps(request).encode()
            descriptors = array.array("i", [0, 1, 2])
            header = LENGTH.pack(len(body))
            connection.sendmsg([header], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            connection.sendall(body)
            child = _receive(connection)
        except OSError:
            return None
        if not child:  # the worker has ended or has another environment, so no child was started
            return None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: _forward(child, number))
        code = _receive(connection)
    return KILLED if code is None else code - 1


def serve(listener_descriptor: int, main: Main, load: Load, pytorch: bool) -> None:
    """Fork a child that runs `main` for every requesting job, until standard input closes because the starting process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the jobs, not for the worker
    identity = _identity()  # note the state before any import, because PyTorch sets environment variables
    missing = list(SHARED)
    with socket.socket(fileno=listener_descriptor) as listener:
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                break
            connection, _ = listener.accept()
            with connection:
                stage = _answer(connection, listener, main, load=load, pytorch=pytorch, identity=identity)
            while missing:  # imported while the first job runs
                with suppress(Exception):  # the job that needs the library reports the error
                    import_module(missing.pop())
            if stage == "pool":  # models follow: PyTorch is imported while the pool is built
                with suppress(Exception):  # the job that needs PyTorch reports the error
                    _preload(COMPUTING[0], load, pytorch)
            _reap(os.WNOHANG)
    _reap(0)


def _reap(options: int) -> None:
    """Collect the children that have ended. Without options, wait for all children."""
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        return


def _answer(
    connection: socket.socket, listener: socket.socket, main: Main, load: Load, pytorch: bool, identity: dict[str, Any]
) -> str | None:
    """Fork a child for the requested stage and return the stage; None if the job has to run in its own process."""
    descriptors: list[int] = []
    try:
        if _peer(connection) != os.getuid():
            return None
        header, received, _, _ = connection.recvmsg(LENGTH.size, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        for level, kind, data in received:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors += array.array("i", data)
        request = json.loads(_exactly(connection, *LENGTH.unpack(header)))
        if request["identity"] != identity or len(descriptors) != 3:
            return None
        stage: str = request["arguments"][0]
        _preload(stage, load, pytorch)
        if os.fork() == 0:
            listener.close()
            _become(request, connection, descriptors, main)
        return stage
    except Exception:  # the job then runs in its own process, which reports the error
        return None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _become(request: dict[str, Any], connection: socket.socket, descriptors: list[int], main: Main) -> None:
    """Do the work of a job in the forked child, and end the child in any case."""
    code = 1
    try:
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.environ.pop(ADDRESS, None)
        tempfile.tempdir = None  # the folder is determined again, from the job's TMPDIR
        os.umask(request["umask"])
        os.chdir(request["folder"])
        connection.sendall(LENGTH.pack(os.getpid()))
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        try:
            code = main(request["arguments"])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
        except BaseException:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(LENGTH.pack(code + 1))
    finally:
        os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """End this process when the command that requested it has ended, for example by a kill."""
    connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _forward(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        return


def _receive(connection: socket.socket) -> int | None:
    """Return the next number that the other side sends; None if it has closed the connection."""
    try:
        (number,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    except (OSError, struct.error):
        return None
    return int(number)


def _exactly(connection: socket.socket, count: int) -> bytes:
    body = b""
    while len(body) < count and (part := connection.recv(count - len(body))):
        body += part
    return body


def _peer(connection: socket.socket) -> int:
    """Return the user of the process at the other end of the connection."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", credentials)[1]
    return user


def _identity() -> dict[str, Any]:
    """Return the state that a child inherits from the worker and not from the job; it must be equal in both."""
    return {
        "code": [sys.prefix, __file__],
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(READ_AT_START) or name in NUMBERS_OF_THREADS
        },
        "limits": {
            name: list(resource.getrlimit(getattr(resource, name)))
            for name in dir(resource)
            if name.startswith("RLIMIT_")
        },
        "cores": sorted(os.sched_getaffinity(0)),
        "priority": os.nice(0),
        "control group": Path("/proc/self/cgroup").read_text(),
        "namespaces": {name: Path(f"/proc/self/ns/{name}").stat().st_ino for name in ("mnt", "pid", "user")},
    }


def _preload(stage: str, load: Load, pytorch: bool) -> None:
    """Import the packages for a stage's children."""
    load(stage)
    if pytorch and stage in COMPUTING:
        from mia_audit.runtime.torchvision_guard import guard

        guard()
        for module in ("torch._dynamo", "timm"):  # optimizers import torch._dynamo when they are created
            import_module(module)
