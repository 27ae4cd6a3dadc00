"""Write three small data sets as people have them, with what is usual wrong with them: hospital.csv, clothes/ and photos/."""

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image

random = np.random.default_rng(0)

# a table of visits: five hundred rows of two hundred people, an id, a year, a code, years of schooling that are missing
people, rows = 200, 500
person = np.sort(random.integers(0, people, rows))
health = random.normal(size=people)[person]
age = 20 + 60 * random.random(people)[person]
school = random.choice([8, 12, 16], people)[person].astype(object)
school[random.random(rows) < 0.02] = ""
often = health + 0.02 * (age - 50) + random.normal(size=rows) > 0.3
lines = ["zper,visit,year,plan,age,health,school,visits"]
for k in range(rows):
    plan, year = "ABCD"[person[k] % 4], 1975 + k % 5
    lines.append(
        f"{125000 + person[k]},v{k:05d},{year},{plan},{age[k]:.1f},{health[k]:.3f},{school[k]},{'many' if often[k] else 'few'}"
    )
Path("hospital.csv").write_text("\n".join(lines) + "\n")

# images in the files of MNIST and Fashion-MNIST, packed
folder = Path("clothes")
folder.mkdir(exist_ok=True)
labels = random.integers(0, 3, 60).astype(np.uint8)
images = (random.integers(0, 80, (60, 28, 28)) + 60 * labels[:, None, None]).astype(np.uint8)
header = struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape)
(folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
(folder / "train-labels-idx1-ubyte.gz").write_bytes(
    gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 60) + labels.tobytes())
)

# a folder of photographs: two that are broken, one of 16 bits, a class that is empty
for number in range(24):
    path = Path("photos") / ("cat", "dog")[number % 2] / f"{number:02d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random.integers(0, 256, (16, 16), dtype=np.uint8)).save(path)
for name in ("cat/02", "dog/05"):
    broken = Path("photos") / f"{name}.png"
    broken.write_bytes(broken.read_bytes()[:30])
Image.fromarray(random.integers(0, 4096, (16, 16)).astype(np.uint16)).save("photos/dog/xray.png")
Path("photos/fox").mkdir(exist_ok=True)
