"""What only a card would show: tensors, generators and masks on the wrong device; a pretended card shows it too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
TORCH = Path(torch.__file__).parent


@pytest.mark.skipif(shutil.which("g++") is None, reason="the pretended card is compiled")
def test_everything_that_computes_does_so_on_a_card(tmp_path: Path) -> None:
    library = tmp_path / "card.so"
    words = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{TORCH / 'include'}", str(HERE / "pretended_card.cpp")]
    words += [f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-lc10", "-ltorch_cpu", "-o", str(library)]
    subprocess.run(words, check=True)
    told = subprocess.run(
        [sys.executable, str(HERE / "on_a_card.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"PRETENDED_CARD": str(library)},
    )
    assert told.returncode == 0, told.stdout + told.stderr[-3000:]
    assert "memory-mapped" in told.stdout
