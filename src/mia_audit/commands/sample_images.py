"""`mia-audit sample-images`: write synthetic images, one folder per class, for trying an audit of images."""

import argparse
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from mia_audit.errors import UserError
from mia_audit.seeds import generator

CELLS = 4
"""Number of cells along each side of a class's pattern."""
CONTRAST, NOISE = 40.0, 30.0
"""Standard deviations, in grey levels, of a class's pattern and of an image's own noise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", type=Path, help="folder for the images; it must be new or empty")
    parser.add_argument("--images", type=int, default=120, help="how many (120)")
    parser.add_argument(
        "--classes", type=int, default=10, help="number of classes; their sizes differ by at most one (10)"
    )
    parser.add_argument("--size", type=int, default=32, help="side of an image in pixels (32)")
    parser.add_argument(
        "--vary", action="store_true", help="draw the sides of images between half of --size and --size"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed (0)")


def run(options: argparse.Namespace) -> None:
    """Write FOLDER/class-{c}/{number}.png."""
    from PIL.Image import fromarray

    folder: Path = options.folder
    if not 2 <= options.classes <= options.images or options.size < CELLS:
        raise UserError(f"expected at least 2 classes, one image per class and sides of {CELLS} pixels")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder}: the folder is not empty; choose a new or empty one")
    patterns = generator(options.seed, "patterns").normal(0, CONTRAST, (options.classes, CELLS, CELLS, 3))
    for number in range(options.images):
        label = number % options.classes
        path = folder / f"class-{label:03d}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        fromarray(_image(patterns[label], options.size, options.vary, options.seed, number)).save(path)
    print(f"{options.images} images of {options.classes} classes in {folder}")


def _image(pattern: np.ndarray, size: int, vary: bool, seed: int, number: int) -> UInt8[np.ndarray, "H W 3"]:
    """Enlarge a class's pattern and add noise."""
    random = generator(seed, "image", number)
    height, width = random.integers(max(size // 2, CELLS), size + 1, 2) if vary else (size, size)
    rows, columns = (np.arange(side) * CELLS // side for side in (height, width))
    noise = random.normal(0, NOISE, (height, width, 3))
    return np.asarray(np.clip(128 + pattern[rows][:, columns] + noise, 0, 255), dtype=np.uint8)
