"""What answers say about trying again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.alerts.hooks.retrying import is_for_good, retry_after_s


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 422, 499])
def test_the_receiver_will_never_take_it(status: int) -> None:
    assert is_for_good(status)


@pytest.mark.parametrize("status", [100, 302, 408, 421, 425, 429, 500, 502, 503, 504, 599])
def test_the_receiver_may_take_it_later(status: int) -> None:
    assert not is_for_good(status)


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        (None, None),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("999999999", 86_400.0),
        ("Wed, 21 Oct 2015 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0.0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 86_400.0),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_when_to_come_again(header: str | None, expected_s: float | None) -> None:
    now_s = 1445412480.0  # Wed, 21 Oct 2015 07:28:00 GMT
    assert retry_after_s(header, now_s) == expected_s


@given(st.text(max_size=40))
def test_any_header_is_read_as_a_wait_or_as_none(header: str) -> None:
    wait_s = retry_after_s(header, 0.0)
    assert wait_s is None or 0 <= wait_s <= 86_400
