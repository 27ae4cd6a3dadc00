import base64
import io

import numpy as np
from PIL import Image

from mia_audit.report.figures.catalogue import attribution_picture, attribution_scale, data_uri, record_picture


def decoded(uri):
    head, content = uri.split(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


def test_small_pictures_keep_their_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    found = decoded(data_uri(pixels))
    assert np.array_equal(found, pixels)


def test_large_and_oblong_pictures_keep_their_resolution():
    pixels = np.random.default_rng(1).integers(0, 256, (224, 100, 3), dtype=np.uint8)
    assert np.array_equal(decoded(data_uri(pixels)), pixels)


def test_grey_colour_and_other_channels():
    grey = np.full((1, 8, 8), 200, dtype=np.uint8)
    assert (decoded(record_picture(grey)) == 200).all()
    colour = np.stack([np.full((8, 8), value, dtype=np.uint8) for value in (10, 20, 30)])
    assert (decoded(record_picture(colour)) == [10, 20, 30]).all()
    pair = np.stack([np.full((8, 8), value, dtype=np.uint8) for value in (10, 30)])
    assert (decoded(record_picture(pair)) == 20).all()


def test_signs_of_an_attribution_are_colours_and_zero_is_pale():
    attribution = np.array([[[-1.0, 0.0, 1.0]]])
    row = decoded(attribution_picture(attribution, 1.0))[0]
    negative, zero, positive = row[0], row[len(row) // 2], row[-1]
    assert negative[2] > negative[0] and positive[0] > positive[2] and (zero > 240).all()
    assert (decoded(attribution_picture(np.zeros((1, 4, 4)), 0.0)) > 240).all()


def test_maps_share_a_scale_and_fine_ones_are_averaged():
    small, large = np.full((1, 8, 8), 0.5), np.full((2, 8, 8), -1.0)
    assert attribution_scale([small, large]) == 2.0
    fine = np.zeros((1, 128, 128))
    fine[0, :2, :2] = 4.0
    assert attribution_scale([fine]) == 4.0
    fine[0, 1, 1] = 0.0
    assert attribution_scale([fine]) == 3.0
