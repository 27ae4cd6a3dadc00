"""The wheel in a fresh environment that sees the checkout's dependencies, but not the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from mia_audit.runtime import warm

ROOT = Path(__file__).parents[1]
PARTS = ("src", "workflow", "config", "pyproject.toml", "README.md", "LICENSE")
"""What a wheel is built from."""


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy, so that no build is left in the checkout."""
    source, out = folder / "source", folder / "wheel"
    for name in PARTS:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    (built,) = out.iterdir()
    return built


def _pip(*words: object) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, words)]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it may hold an older build
    subprocess.run(command, check=True, capture_output=True, env=alone)


@dataclass(frozen=True)
class Environment:
    """A virtual environment with nothing but the wheel in it; the packages that it depends on lie elsewhere."""

    folder: Path

    @classmethod
    def from_wheel(cls, wheel: Path, folder: Path) -> "Environment":
        """Make the environment: what a path file adds to the search path is not searched for path files itself."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        made = cls(folder)
        packages = Path(made.output(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        _pip("--python", made.python, "install", "--no-deps", "--no-index", wheel)
        return made

    @property
    def python(self) -> Path:
        """The environment's Python."""
        return self.folder / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """The environment's variables, without any that lead to the checkout."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return kept | {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin:/usr/sbin:/sbin", warm.ADDRESS: ""}

    def output(self, words: list[str], folder: Path, more: dict[str, str] | None = None) -> str:
        """Run Python, or a program of the environment, in a folder, and return what it printed."""
        program = words if Path(words[0]).is_absolute() else [str(self.python), *words]
        found = subprocess.run(
            program,
            cwd=folder,
            env=self.variables | (more or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stdout
        return found.stdout

    def mia_audit(self, *words: str, folder: Path, more: dict[str, str] | None = None) -> str:
        """Run the command that the wheel installs."""
        return self.output([str(self.folder / "bin" / "mia-audit"), *words], folder, more)
