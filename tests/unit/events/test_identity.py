"""The sample of event ids: nested, of the size that was asked for, independent of unit buckets and shards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.errors import ConfigurationError
from stream_calib.events.identity import fingerprints, sampled, shards, unit_buckets

_RATES = st.floats(min_value=0, max_value=1, exclude_min=True)


@given(st.lists(st.text(max_size=5), max_size=30), _RATES, _RATES)
def test_an_id_stays_in_the_sample_at_every_larger_rate(ids: list[str], one: float, other: float) -> None:
    found = fingerprints(ids)
    small, large = sampled(found, min(one, other)), sampled(found, max(one, other))
    assert (small <= large).all()
    assert sampled(found, 1.0).all()
    np.testing.assert_array_equal(sampled(found[::-1], one)[::-1], sampled(found, one))


def test_the_sample_is_independent_of_shards_and_unit_buckets() -> None:
    found = fingerprints(str(i) for i in range(200_000))
    chosen = sampled(found, 0.1)
    # 5 standard errors: sqrt(.1 * .9 / n).
    assert abs(chosen.mean() - 0.1) < 5 * 0.3 / np.sqrt(200_000)
    for part in (shards(found, 20), unit_buckets(found)):
        shares = np.bincount(part, chosen) / np.bincount(part)
        assert (abs(shares - 0.1) < 5 * 0.3 / np.sqrt(10_000)).all()


def test_which_ids_are_sampled_never_changes() -> None:
    """State and logs outlive versions."""
    chosen = sampled(fingerprints(str(i) for i in range(40)), 0.25)
    assert np.flatnonzero(chosen).tolist() == [0, 6, 9, 16, 19, 20, 21, 29, 30, 31, 33, 37, 38]


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_that_is_none(rate: float) -> None:
    with pytest.raises(ConfigurationError, match=r"sample_rate = .*: it must be above 0 and at most 1"):
        sampled(fingerprints(["a"]), rate)
