"""timm can be imported whether or not torchvision's compiled operators fit this machine."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_timm_is_importable_after_the_guard() -> None:
    code = (
        "from mia_audit.runtime.torchvision_guard import guard; guard(); guard(); import timm, torchvision.transforms"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_code_that_knows_nothing_of_the_guard_can_import_torchvision() -> None:
    code = (
        "import sys; from mia_audit.runtime.torchvision_guard import guard_imports; guard_imports(); guard_imports();"
        "assert 'torch' not in sys.modules; import torchvision; assert torchvision.__version__"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_broken_extension_is_stood_in_for_by_the_guard_and_in_guarded_imports(tmp_path: Path) -> None:
    code = (
        "import mia_audit.runtime.torchvision_guard as g, pathlib;"
        f"(broken := pathlib.Path({str(tmp_path / '_C.so')!r})).write_bytes(b'');"
        "find = g._extension; g._extension = lambda: find() and broken;"
        "g.guard_imports(); kept = g.guard(); assert kept is not None; import torchvision, torch;"
        "assert torch.ops.torchvision.nms and torch.ops.torchvision.qnms"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
