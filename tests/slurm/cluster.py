"""A temporary SLURM on this machine: controller, three nodes, two fake GPUs, accounting. Needs root and Debian's packages.

    python tests/slurm/cluster.py check              print whether one can be started here
    python tests/slurm/cluster.py up FOLDER          start it; prints what to export
    python tests/slurm/cluster.py stop FOLDER        stop the controller alone
    python tests/slurm/cluster.py start FOLDER       start the controller again
    python tests/slurm/cluster.py down FOLDER        stop all of it, by pid files

All its files are below FOLDER, but for a link at /etc/slurm/slurm.conf, the only place where the `srun` inside a job of
Snakemake's plugin looks.
Packages: slurm-wlm slurmdbd mariadb-server munge.
"""

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "sbatch", "sacct")
SYSTEM_CONFIG = Path("/etc/slurm/slurm.conf")
MARK = "# a temporary cluster of mia-audit's tests"
NODES, CPUS, MEMORY, GPUS = 3, 8, 3000, 2
PATIENCE = 600.0
"""Seconds that anything here may take on a busy machine."""
LINGER = 30.0
"""Seconds that a daemon may take to end before it is killed."""
PORTS = range(20000, 32000)
"""Below the range from which the system assigns ports, so that a daemon finds its port free when it starts again."""


def obstacle() -> str | None:
    """Return the reason why no cluster can be started here, or None."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=_path())]
    if missing:
        return f"{missing[0]} is not installed (Debian: slurm-wlm slurmdbd mariadb-server munge)"
    if os.geteuid() != 0:
        return "a SLURM controller needs root"
    if not _can_create_devices():
        return "its fake GPUs are device files, which this container may not create"
    if SYSTEM_CONFIG.exists() and MARK not in SYSTEM_CONFIG.read_text():
        return f"{SYSTEM_CONFIG} belongs to a SLURM of this machine, which must not be changed"
    return None


def _can_create_devices() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            _clone_of_null(Path(folder, "gpu"))
        except OSError:
            return False
    return True


def _clone_of_null(device: Path) -> None:
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))


def up(folder: Path) -> None:
    """Start the whole cluster and wait until all nodes are idle."""
    if reason := obstacle():
        print(f"no cluster: {reason}", file=sys.stderr)
        sys.exit(3)
    if SYSTEM_CONFIG.exists():  # left by a killed test run
        down(SYSTEM_CONFIG.resolve().parent)
    for name in ("run", "log", "state", "gpus"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # munge's clients must reach its socket
    _configure(folder)
    _munge(folder)
    _database(folder)
    _run("slurmdbd")
    _until("slurmdbd answers", lambda: _succeeds("sacctmgr", "-n", "show", "cluster"))
    for what in (("cluster", "lab"), ("account", "lab", "Cluster=lab"), ("user", "root", "Account=lab")):
        _run("sacctmgr", "-i", "add", *what)
    start(folder)
    for node in range(1, NODES + 1):
        (folder / f"node{node}").mkdir(exist_ok=True)
        _run("slurmd", "-f", str(folder / "slurm.conf"), "-N", f"node{node}")
    _until("all nodes are idle", lambda: _output("sinfo", "-h", "-N", "-p", "cpu", "-t", "idle").count("node") == NODES)


def down(folder: Path) -> None:
    """Stop all daemons and remove the link."""
    nodes = [f"slurmd.node{node}" for node in range(1, NODES + 1)]
    for name in (*nodes, "slurmctld", "slurmdbd", "mariadbd", "munged"):
        _stop(folder / "run" / f"{name}.pid")
    if SYSTEM_CONFIG.is_symlink() and SYSTEM_CONFIG.readlink() == folder / "slurm.conf":
        SYSTEM_CONFIG.unlink()


def start(folder: Path) -> None:
    """Start the controller and wait until it answers."""
    _run("slurmctld", "-f", str(folder / "slurm.conf"))
    _until("slurmctld answers", lambda: "is UP" in _output("scontrol", "ping"))


def stop(folder: Path) -> None:
    """Stop the controller alone."""
    _stop(folder / "run" / "slurmctld.pid")


def _configure(folder: Path) -> None:
    controller, accounting, database, *nodes = _free_ports(3 + NODES)
    host, run, log = socket.gethostname().partition(".")[0], folder / "run", folder / "log"
    for gpu in range(GPUS):  # SLURM requires character devices: clones of /dev/null
        device = folder / "gpus" / f"gpu{gpu}"
        if not device.exists():
            _clone_of_null(device)
    shared = f"AuthType=auth/munge\nAuthInfo=socket={run}/munge.sock\nSlurmUser=root\n"
    lines = [
        MARK,
        f"{shared}ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}",
        f"SlurmdUser=root\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/%n",
        f"SlurmctldPidFile={run}/slurmctld.pid\nSlurmdPidFile={run}/slurmd.%n.pid",
        f"SlurmctldLogFile={log}/slurmctld.log\nSlurmdLogFile={log}/slurmd.%n.log",
        "CredType=cred/munge\nMpiDefault=none\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none",
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nGresTypes=gpu",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1",
        "ReturnToService=2\nMessageTimeout=30\nKillWait=5\nSlurmdParameters=config_overrides\nSlurmdTimeout=300",
        f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort={accounting}",
        f"AccountingStoragePass={run}/munge.sock\nAccountingStorageEnforce=associations\nAccountingStorageTRES=gres/gpu",
        "AccountingStoreFlags=job_comment\nJobAcctGatherType=jobacct_gather/none",
    ]
    for node, port in enumerate(nodes, start=1):
        gres = f" Gres=gpu:{GPUS}" if node == NODES else ""
        address = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        lines.append(f"NodeName=node{node} {address} CPUs={CPUS} RealMemory={MEMORY}{gres}")
    lines.append(f"PartitionName=cpu Nodes=node[1-{NODES}] Default=YES MaxTime=INFINITE State=UP")
    lines.append(f"PartitionName=gpu Nodes=node{NODES} MaxTime=INFINITE State=UP")
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    (folder / "gres.conf").write_text(f"NodeName=node{NODES} Name=gpu File={folder}/gpus/gpu[0-{GPUS - 1}]\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    dbd = folder / "slurmdbd.conf"
    dbd.write_text(
        f"{shared}DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={accounting}\nPidFile={run}/slurmdbd.pid\nLogFile={log}/slurmdbd.log\n"
        f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={database}\n"
        "StorageUser=slurm\nStoragePass=lab\nStorageLoc=accounting\n"
    )
    dbd.chmod(0o600)
    (folder / "database.port").write_text(str(database))
    SYSTEM_CONFIG.parent.mkdir(parents=True, exist_ok=True)
    SYSTEM_CONFIG.unlink(missing_ok=True)
    SYSTEM_CONFIG.symlink_to(folder / "slurm.conf")


def _munge(folder: Path) -> None:
    key, run = folder / "munge.key", folder / "run"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    paths = {"key-file": key, "seed-file": folder / "munge.seed", "log-file": folder / "log" / "munged.log"}
    paths |= {"socket": run / "munge.sock", "pid-file": run / "munged.pid"}
    _run("munged", "--force", *(f"--{name}={path}" for name, path in paths.items()))


def _database(folder: Path) -> None:
    port = (folder / "database.port").read_text()
    where = [f"--datadir={folder}/database", f"--socket={folder}/run/sql.sock", "--user=root"]
    _run("mariadb-install-db", "--no-defaults", *where, "--auth-root-authentication-method=normal", "--skip-test-db")
    light = ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900"]
    network = ["--bind-address=127.0.0.1", f"--port={port}", "--skip-name-resolve"]
    with (folder / "log" / "mariadbd.log").open("wb") as log:
        server = subprocess.Popen(
            ["mariadbd", "--no-defaults", *where, f"--pid-file={folder}/run/mariadbd.pid", *light, *network],
            stdout=log,
            stderr=log,
            env=_environment(),
            start_new_session=True,
        )
    client = ["mariadb", "--no-defaults", f"--socket={folder}/run/sql.sock", "-uroot", "-e"]
    _until("mariadbd answers", lambda: server.poll() is not None or _succeeds(*client, "select 1"))
    user = "create user 'slurm'@'127.0.0.1' identified by 'lab'; grant all on accounting.* to 'slurm'@'127.0.0.1'"
    _run(*client, f"create database accounting; {user}")


def _stop(pid_file: Path) -> None:
    """Terminate the process of a pid file, and kill it when it does not end; spare another program that has its number by now."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return
    name = pid_file.name.partition(".")[0]
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if _alive(pid, name):
            os.kill(pid, kind)
        deadline = time.monotonic() + LINGER
        while _alive(pid, name) and time.monotonic() < deadline:
            time.sleep(0.05)
    pid_file.unlink(missing_ok=True)


def _alive(pid: int, name: str) -> bool:
    try:
        running, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
    except OSError:
        return False
    return running == name and rest[0] != "Z"  # in a container, nothing may reap it


def _until(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"cluster: waited {PATIENCE:.0f} s, but not until {what}")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    free = []
    for port in secrets.SystemRandom().sample(PORTS, len(PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            free.append(port)
        if len(free) == count:
            return free
    sys.exit(f"cluster: no {count} free ports between {PORTS.start} and {PORTS.stop}")


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": _path(), "SLURM_CONF": str(SYSTEM_CONFIG.resolve())}


def _run(*command: str) -> None:
    result = subprocess.run(
        command,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        sys.exit(f"cluster: {command[0]} failed: {result.stdout.strip()}")


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, env=_environment(), capture_output=True).returncode == 0


def _output(*command: str) -> str:
    return subprocess.run(command, env=_environment(), capture_output=True, text=True).stdout


def main() -> None:
    """Run the command named by the first argument on the cluster in the folder named by the second."""
    if sys.argv[1:] == ["check"]:
        reason = obstacle()
        print(f"tests/slurm are skipped: {reason}" if reason else "tests/slurm start a SLURM of their own")
        return
    if len(sys.argv) != 3 or sys.argv[1] not in ("up", "down", "start", "stop"):
        sys.exit(__doc__)
    folder = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "up":
        up(folder)
        print(f"export SLURM_CONF={folder}/slurm.conf")
    else:
        {"down": down, "start": start, "stop": stop}[sys.argv[1]](folder)


if __name__ == "__main__":
    main()
