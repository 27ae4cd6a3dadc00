"""Make torchvision importable if its compiled operators were built for another torch than the installed one.

On a machine without CUDA the only torchvision wheel may be the CUDA build: its extension does not load there, and
importing torchvision (as timm does) then fails because `torchvision::nms` does not exist. The two operators that
torchvision names on import are declared here without an implementation, which is enough for transforms, data sets and
timm.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@cache  # the operators are removed when the library is garbage-collected
def guard() -> torch.library.Library | None:
    """Declare torchvision's operators if its extension cannot be loaded; return the library that holds the operators, if any."""
    import torch

    extension = _extension()
    if extension is None:
        return None
    try:
        torch.ops.load_library(str(extension))  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError):
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for operator in OPERATORS:
            library.define(operator)  # type: ignore[no-untyped-call]
        return library
    return None


class _BeforeTorchvision(MetaPathFinder):
    """An import finder that finds no module, but calls `guard` before the first import of torchvision."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name == "torchvision" and self in sys.meta_path:
            sys.meta_path.remove(self)
            guard()
        return None


def guard_imports() -> None:
    """Guard imports of torchvision by any other code, such as libraries."""
    if not any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def _extension() -> Path | None:
    """Find torchvision's compiled extension without importing torchvision; None if torchvision is not installed."""
    spec = PathFinder.find_spec("torchvision")  # this bypasses the other finders, one of which calls this function
    if spec is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    candidates = [folder / f"_C{suffix}" for folder in folders for suffix in EXTENSION_SUFFIXES]
    return next((path for path in candidates if path.exists()), folders[0] / "_C.so")
