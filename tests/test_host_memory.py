"""The limits of control groups on the memory of a process."""

from pathlib import Path

import psutil
import pytest

from mia_audit import host_memory as memory


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in place of /sys/fs/cgroup; the process's groups are those of `tmp_path`/membership."""
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "MEMBERSHIP", tmp_path / "membership")
    return tmp_path / "cgroup"


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(f"{text}\n")


def test_without_control_groups_it_is_the_machines(groups: Path) -> None:
    assert memory.whole_memory() == psutil.virtual_memory().total
    assert 0 < memory.available_memory() < 1 << 50


def test_a_limit_of_the_job_or_of_any_group_around_it_counts(groups: Path) -> None:
    """SLURM limits the job's group, of which the process is in a descendant; a container limits the root."""
    (groups.parent / "membership").write_text("0::/slurm/job_7/step_0\n")
    write(groups / "slurm/job_7/step_0", max="max", current=5_000_000)
    write(groups / "slurm/job_7", max=64_000_000, current=50_000_000, stat="anon 1\ninactive_file 10000000\nfile 2")
    assert memory.whole_memory() == 64_000_000
    assert memory.available_memory() == 24_000_000
    write(groups, max=32_000_000, current=31_000_000)
    assert memory.whole_memory() == 32_000_000
    assert memory.available_memory() == 1_000_000


def test_the_first_version_of_control_groups(groups: Path) -> None:
    (groups.parent / "membership").write_text("4:cpu,memory:/a\n1:cpu:/\n0::/\n")
    write(groups / "memory/a", limit_in_bytes=9223372036854771712, usage_in_bytes=1)
    assert memory.whole_memory() == psutil.virtual_memory().total
    write(groups / "memory", limit_in_bytes=8_000_000, usage_in_bytes=3_000_000, stat="total_inactive_file 1000000")
    assert memory.available_memory() == 6_000_000
