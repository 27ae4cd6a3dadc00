"""Files from others: no other program is started, nothing outside is read, nothing waits, memory is bounded."""

import os
import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from mia_audit.config.load import parse
from mia_audit.errors import UserError
from mia_audit.planning import requests
from mia_audit.pools import images as decoding
from mia_audit.pools.section import Dataset
from mia_audit.pools.sources.files import table
from mia_audit.pools.sources.images import SUFFIXES, images
from mia_audit.pools.tables import MOST_COLUMNS

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(ran) print\n%%EOF\n"


@pytest.fixture
def folder(tmp_path):
    """Two classes of two images each."""
    for label in ("a", "b"):
        (tmp_path / "root" / label).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (8, 8), number).save(tmp_path / "root" / label / f"{number}.png")
    return tmp_path / "root"


def source(folder, **section):
    return images(parse(Dataset, {"source": "images", "path": str(folder), **section}, "test"), "datasets.d")


def png(width, height):
    """Return a PNG of one colour: some kilobytes, whatever its size."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    )


def refused(folder, words):
    with pytest.raises(UserError, match=words) as caught:
        source(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_an_eps_of_any_name_starts_no_ghostscript(folder, suffix, monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started"))
    (folder / "a" / f"2{suffix}").write_bytes(EPS)
    refused(folder, r"1 of 5 images cannot be read: .*not an image, or of an unknown kind")


def test_torchvisions_own_reading_starts_none_either(folder):
    decoding.guard_pillow()
    (folder / "a" / "2.jpg").write_bytes(EPS)
    with Image.open(folder / "a" / "2.jpg") as image, pytest.raises(OSError, match="Ghostscript"):
        image.load()


def test_every_accepted_suffix_has_a_format(tmp_path):
    for suffix in SUFFIXES:
        Image.new("L", (4, 4), 9).save(tmp_path / f"x{suffix}")
        with decoding.open_plain(tmp_path / f"x{suffix}") as image:
            assert image.size == (4, 4)


def test_links_that_leave_the_root_are_refused_and_others_are_not(folder):
    Image.new("L", (8, 8), 77).save(folder.parent / "secret.png")
    (folder / "a" / "inside.png").symlink_to(folder / "b" / "0.png")
    assert len(source(folder).records) == 5
    (folder / "a" / "outside.png").symlink_to(folder.parent / "secret.png")
    refused(folder, "a link to a file outside")


def test_a_folder_that_is_a_link_elsewhere_is_refused(folder, tmp_path):
    (tmp_path / "other").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "other" / "0.png")
    (folder / "c").symlink_to(tmp_path / "other")
    refused(folder, "a link to a file outside")


def test_fifos_and_devices_are_refused_and_not_waited_for(folder):
    os.mkfifo(folder / "a" / "2.png")
    (folder / "b" / "2.png").symlink_to("/dev/zero")
    refused(folder, "2 of 6 images cannot be read: .*not a regular file")
    with pytest.raises(UserError, match="neither a folder nor a regular file"):
        source(folder / "a" / "2.png")


def test_a_fifo_among_arrays_is_not_waited_for(tmp_path):
    from mia_audit.pools.sources.files import arrays

    os.mkfifo(tmp_path / "records.npy")
    with pytest.raises(UserError, match="not a regular file"):
        arrays(parse(Dataset, {"source": "arrays", "path": str(tmp_path)}, "test"), "datasets.d")


def test_a_small_file_of_many_pixels_is_refused_by_its_header(folder):
    (folder / "a" / "2.png").write_bytes(png(12_000, 12_000))
    refused(folder, "more than 50,000,000 pixels")


def test_no_more_is_decoded_at_once_than_there_is_memory_for():
    gate = decoding.decoding_at_once(decoding.MOST_PIXELS)
    taken = 0
    while gate.acquire(blocking=False):
        taken += 1
    assert taken == decoding.DECODING_MEGABYTES * 1_000_000 // (decoding.MOST_PIXELS * decoding.BYTES_PER_PIXEL) == 2
    assert decoding.DECODING_MEGABYTES + 2 * requests.PROCESS_MEGABYTES <= requests.POOL_MEGABYTES


def test_decoding_is_bounded(folder):
    inside, most = [], []

    class Gate:
        def __enter__(self):
            inside.append(1)
            most.append(len(inside))

        def __exit__(self, *_):
            inside.pop()

    one = source(folder).records
    decoded = decoding.Images(one.count, one.channels, one.sizes, one.open_image, one.name_of, Gate())
    threads = [threading.Thread(target=decoded.__getitem__, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 4
    assert isinstance(one.at_once, threading.BoundedSemaphore)
    assert np.array_equal(decoded[1], np.full((1, 8, 8), 1, dtype=np.uint8))


def test_more_columns_than_polars_survives_are_refused_by_the_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(["y", *("a" * MOST_COLUMNS)]) + "\n")
    with pytest.raises(UserError, match="50,001 columns; expected at most 50,000"):
        table(parse(Dataset, {"source": "table", "path": str(path), "label": "y"}, "test"), "datasets.d")
