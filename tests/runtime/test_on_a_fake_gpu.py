"""Tensors, generators and masks on the wrong device, which only a GPU would show: a fake one shows them too."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
TORCH = Path(torch.__file__).parent


@pytest.fixture
def library(pytestconfig: pytest.Config) -> Path:
    """The compiled fake_gpu.cpp, kept in pytest's cache for as long as its source, torch and the compiler stay the same."""
    assert pytestconfig.cache is not None
    source = HERE / "fake_gpu.cpp"
    compiler = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    options = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{TORCH / 'include'}", str(source)]
    options += [f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-lc10", "-ltorch_cpu"]
    parts = [source.read_bytes(), compiler, torch.__version__.encode(), " ".join(options).encode()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    folder = pytestconfig.cache.mkdir("fake-gpu")
    compiled = folder / f"{digest}.so"
    if not compiled.exists():
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            partial = Path(temporary, "fake_gpu.so")
            subprocess.run(["g++", *options, "-o", str(partial)], check=True)
            partial.replace(compiled)
    return compiled


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the fake GPU is compiled with g++")
def test_everything_computes_the_same_on_a_gpu_and_on_the_cpu(library: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(HERE / "on_a_fake_gpu.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"FAKE_GPU": str(library)},
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert "memory-mapped" in result.stdout and "clipped sum" in result.stdout
