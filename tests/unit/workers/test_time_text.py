from __future__ import annotations

import pytest

from workers.time_text import age, utc_minute, utc_of_pane


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (400, "0.4 s"),
        (12_000, "12 s"),
        (300_000, "5 min"),
        (3 * 3_600_000, "3 h"),
        (3 * 86_400_000, "3 d"),
    ],
)
def test_an_age_is_shown_in_its_largest_unit(milliseconds: int, text: str) -> None:
    assert age(milliseconds) == text


def test_a_minute_is_shown_in_utc() -> None:
    assert utc_minute(1_362_132_000_000) == "2013-03-01 10:00"


@pytest.mark.parametrize(
    ("pane", "pane_ms", "text"),
    [(378_370, 3_600_000, "2013-03-01 10:00"), (136_213_201, 10_000, "2013-03-01 10:00:10")],
)
def test_a_pane_is_shown_to_the_second_where_it_is_short(pane: int, pane_ms: int, text: str) -> None:
    assert utc_of_pane(pane, pane_ms) == text
