"""Work on one model key after the other: what is wrong with one is no reason to stop for the others."""

from __future__ import annotations

import logging

import pytest

from stream_calib.errors import SnapshotError, StateError, StateUnavailableError, TransportError
from stream_calib.events.contracts import ModelKey
from workers.model_states import EachModel

A, B = ModelKey("m", "1"), ModelKey("m", "2")


class Works:
    """Each work is the error that it ends with, or None."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.each = EachModel[Exception | None]("refit", lambda: self.now_ms)
        self.done: list[Exception | None] = []

    def do(self, **works: Exception | None) -> bool:
        self.done = []
        return self.each.do([(ModelKey("m", name[1:]), work) for name, work in works.items()], self._step)

    def _step(self, work: Exception | None) -> bool:
        self.done.append(work)
        if work is not None:
            raise work
        return True


@pytest.mark.parametrize("error", [StateError("damaged"), SnapshotError("damaged")])
def test_one_that_is_wrong_is_left_alone_for_a_minute_and_named(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    works = Works()
    with caplog.at_level(logging.ERROR):
        assert works.do(v1=error, v2=None)
    assert works.done == [error, None]
    assert [record.getMessage() for record in caplog.records] == ["refit leaves m/1 alone for a minute: damaged"]
    works.now_ms += 59_999
    assert works.do(v1=error, v2=None)
    assert works.done == [None]
    works.now_ms += 1
    assert works.do(v1=None, v2=None)
    assert works.done == [None, None]


def test_where_no_other_is_left_its_error_ends_the_role() -> None:
    works = Works()
    with pytest.raises(StateError, match="the only one"):
        works.do(v1=StateError("the only one"))
    assert works.do(v2=None)
    works.now_ms += 60_000
    with pytest.raises(StateError, match="second"):
        works.do(v1=StateError("first"), v2=StateError("second"))


@pytest.mark.parametrize("error", [StateUnavailableError("away"), TransportError("away")])
def test_a_server_that_is_away_concerns_all(error: Exception) -> None:
    works = Works()
    with pytest.raises(type(error)):
        works.do(v1=error, v2=None)
    assert works.done == [error]
    assert works.do(v1=None, v2=None), "and nobody is left alone for it"
    assert works.done == [None, None]
