import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.serving.desk import Refused
from mia_audit.serving.queries import record_of, schema

FLOAT, PIXELS = np.dtype(np.float32), np.dtype(np.uint8)


def test_a_record_has_the_shape_and_type_of_the_set() -> None:
    record = record_of(b'{"query": [[1, 2.5], [-0.0, 1e3]]}', (2, 2), FLOAT)
    assert record.dtype == FLOAT
    np.testing.assert_array_equal(record, [[1, 2.5], [0, 1000]])
    np.testing.assert_array_equal(record_of(b'{"query": [0, 255.0]}', (2,), PIXELS), [0, 255])


@pytest.mark.parametrize(
    ("body", "dtype", "status"),
    [
        (b"", FLOAT, 400),
        (b"[1, 2]", FLOAT, 400),
        (b'{"query": ' + b"[" * 200_000, FLOAT, 400),
        (b'{"query": [1, ' + b"9" * 5000 + b"]}", FLOAT, 400),
        (b"\xff\xfe", FLOAT, 400),
        (b'{"query": [1, 2], "values": [1]}', FLOAT, 422),
        (b'{"queries": [1, 2]}', FLOAT, 422),
        (b'{"query": [1]}', FLOAT, 422),
        (b'{"query": [1, [2]]}', FLOAT, 422),
        (b'{"query": [1, "2"]}', FLOAT, 422),
        (b'{"query": [1, true]}', FLOAT, 422),
        (b'{"query": [1, null]}', FLOAT, 422),
        (b'{"query": [1, NaN]}', FLOAT, 422),
        (b'{"query": [1, -Infinity]}', FLOAT, 422),
        (b'{"query": [1, 1e999]}', FLOAT, 422),
        (b'{"query": [1, ' + b"9" * 400 + b"]}", FLOAT, 422),
        (b'{"query": [1, 256]}', PIXELS, 422),
        (b'{"query": [1, -1]}', PIXELS, 422),
        (b'{"query": [1, 0.5]}', PIXELS, 422),
    ],
)
def test_what_is_no_record_is_refused(body: bytes, dtype: np.dtype, status: int) -> None:
    with pytest.raises(Refused) as caught:
        record_of(body, (2,), dtype)
    assert caught.value.status == status
    assert "\n" not in caught.value.reason and len(caught.value.reason) < 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3), lambda one: st.lists(one, max_size=3)
)


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.binary(max_size=60), VALUES.map(lambda value: json.dumps({"query": value}).encode())))
def test_any_body_is_a_record_or_refused(body: bytes) -> None:
    for shape, dtype in (((2,), FLOAT), ((1, 2), PIXELS)):
        try:
            assert record_of(body, shape, dtype).shape == shape
        except Refused as refused:
            assert refused.status in (400, 422)


def test_the_schema_says_the_shape() -> None:
    query = schema((3, 2))["properties"]["query"]
    assert (query["minItems"], query["items"]["maxItems"], query["items"]["items"]) == (3, 2, {"type": "number"})
