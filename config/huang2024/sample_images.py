"""Write synthetic images, one folder per class, on which the smoke configs of this folder run.

python config/huang2024/sample_images.py FOLDER --images 120 --classes 10 --size 32
"""

import argparse
from pathlib import Path

import numpy as np
from PIL.Image import fromarray

from mia_audit.seeds import generator

CELLS = 4
"""Number of cells along each side of a class's pattern."""
CONTRAST, NOISE = 40.0, 30.0
"""Standard deviations, in grey levels, of a class's pattern and of an image's own noise."""


def main() -> None:
    """Write FOLDER/class-{c}/{number}.png."""
    parser = argparse.ArgumentParser(description="Write synthetic images, one folder per class.")
    parser.add_argument("folder", type=Path, help="folder for the images; it must be new or empty")
    parser.add_argument("--images", type=int, default=120, help="how many (120)")
    parser.add_argument("--classes", type=int, default=10, help="number of classes (10)")
    parser.add_argument("--size", type=int, default=32, help="side of an image in pixels (32)")
    parser.add_argument("--vary", action="store_true", help="draw the sides between half of --size and --size")
    options = parser.parse_args()
    if options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder}: the folder is not empty; choose a new or empty one")
    patterns = generator(0, "patterns").normal(0, CONTRAST, (options.classes, CELLS, CELLS, 3))
    for number in range(options.images):
        label = number % options.classes
        path = options.folder / f"class-{label:03d}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        fromarray(image(patterns[label], options.size, options.vary, number)).save(path)
    print(f"{options.images} images of {options.classes} classes in {options.folder}")


def image(pattern: np.ndarray, size: int, vary: bool, number: int) -> np.ndarray:
    """Enlarge a class's pattern and add noise."""
    random = generator(0, "image", number)
    height, width = random.integers(max(size // 2, CELLS), size + 1, 2) if vary else (size, size)
    rows, columns = (np.arange(side) * CELLS // side for side in (height, width))
    noise = random.normal(0, NOISE, (height, width, 3))
    return np.asarray(np.clip(128 + pattern[rows][:, columns] + noise, 0, 255), dtype=np.uint8)


if __name__ == "__main__":
    main()
