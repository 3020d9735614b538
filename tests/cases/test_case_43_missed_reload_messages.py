"""Processes heard of a new model by a message alone: they went deaf when the connection dropped or was idle for long;
and in a server of many workers a shared mark, "fetched already", let only one of them reload.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.follower import SnapshotFollower
from stream_calib.windows.memory_state import MemoryState
from tests.unit.snapshot.publishing import publish

KEY = ModelKey("m", "1")
POLL_MS = 1_000
LONGEST_PAUSE_MS = 30_000
"""After an answer that was long in coming; here none is."""


class Worker:
    """One of several processes, whose connection to the state can be cut."""

    def __init__(self, deployment: Deployment) -> None:
        self.cut = False
        worker = self

        class Connection(MemoryState):
            def __init__(self) -> None:
                self.__dict__ = deployment.state.__dict__

            def read(self, names: Sequence[str]) -> dict[str, str | None]:
                if worker.cut:
                    raise StateUnavailableError("cut")
                return super().read(names)

        self.follower = SnapshotFollower(
            Connection(),
            ("region", "device"),
            poll_ms=POLL_MS,
            max_staleness_ms=10**9,
            clock_ms=lambda: deployment.now_ms,
        )

    @property
    def version(self) -> str | None:
        """What the next score is served by."""
        served = self.follower.current()
        return None if served is None else served.version


class Deployment:
    def __init__(self, workers: int) -> None:
        self.state, self.now_ms = MemoryState(), 0
        self.workers = [Worker(self) for _ in range(workers)]

    def publish(self) -> str:
        self.published = publish(self.state, KEY, rows=1)
        return self.published

    def versions(self) -> list[str | None]:
        return [worker.version for worker in self.workers]


def test_a_worker_that_was_cut_off_has_the_new_version_within_the_poll_interval() -> None:
    here = Deployment(4)
    first = here.publish()
    assert here.versions() == [first] * 4
    here.workers[2].cut = True
    second = here.publish()
    here.now_ms += POLL_MS
    assert here.versions() == [second, second, first, second]
    here.workers[2].cut = False
    here.now_ms += POLL_MS
    assert here.versions() == [second] * 4


def test_a_worker_that_starts_after_the_publication_has_it_at_once() -> None:
    here = Deployment(1)
    here.publish()
    assert Worker(here).version == here.published


def test_two_quick_publications_end_at_the_last_one_everywhere() -> None:
    here = Deployment(4)
    here.publish()
    here.versions()
    here.publish()
    last = here.publish()
    here.now_ms += POLL_MS
    assert here.versions() == [last] * 4


def test_after_a_month_without_a_publication_the_next_is_seen_as_soon() -> None:
    here = Deployment(2)
    here.publish()
    here.versions()
    here.now_ms += 30 * 86_400_000
    here.versions()
    last = here.publish()
    here.now_ms += POLL_MS
    assert here.versions() == [last] * 2


@given(
    st.lists(
        st.one_of(st.just("publish"), st.integers(0, 3), st.sampled_from([1, 500, 1_000, 5_000]).map(str)), max_size=20
    )
)
@settings(max_examples=30)
def test_whatever_happened_all_are_at_the_last_version_an_interval_later(steps: list[str | int]) -> None:
    """A number cuts or mends the connection of that worker; a text of digits lets so many milliseconds pass."""
    here = Deployment(4)
    here.publish()
    for step in steps:
        if isinstance(step, int):
            here.workers[step].cut = not here.workers[step].cut
        elif step == "publish":
            here.publish()
        else:
            here.now_ms += int(step)
        for worker in here.workers:
            if not worker.cut:
                assert worker.version is not None
    for worker in here.workers:
        worker.cut = False
    here.now_ms += POLL_MS + LONGEST_PAUSE_MS
    assert here.versions() == [here.published] * 4


def test_without_any_answer_there_is_no_version_and_no_raw_score() -> None:
    here = Deployment(1)
    here.publish()
    here.workers[0].cut = True
    with pytest.raises(StateUnavailableError):
        _ = here.workers[0].version
