from __future__ import annotations

from collections.abc import Sequence

import pytest

from stream_calib.errors import DamagedSnapshotError, SnapshotError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.follower import SnapshotFollower
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.documents import level, report, request, structure
from tests.unit.snapshot.test_store import append


class Away(MemoryState):
    """A store that can be away, and counts reads of the pointer."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.reads = 0

    def read(self, names: Sequence[str]) -> dict[str, str | None]:
        if self.away:
            raise StateUnavailableError("away")
        self.reads += list(names) == ["current"]
        return super().read(names)


class Deployment:
    def __init__(self) -> None:
        self.now = 0
        self.state = Away()
        self.state.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
        self.state.acquire_lease("refit", "w", 1_000)
        self.store = SnapshotStore(self.state, ModelKey("m", "1"), "g", 1_000, lambda: 0)
        self.follower = self.new_follower()
        self.published = 0

    def new_follower(self, attributes: Sequence[str] = ("região", "device")) -> SnapshotFollower:
        return SnapshotFollower(
            self.state, attributes, poll_ms=1_000, max_staleness_ms=60_000, clock_ms=lambda: self.now
        )

    def publish(self) -> str:
        self.published += 1
        name, parent = f"r{self.published}", self.store.current()
        append(self.state, request(name, 9 + self.published, parent), decided=9 + self.published)
        return self.store.publish(structure(name, parent, rows=self.published), report(name), "1")

    def served(self) -> str | None:
        """The version served after the next poll."""
        self.now += 1_000
        found = self.follower.current()
        return None if found is None else found.version

    def lose_back_to(self, version: str) -> None:
        """The store lost everything after this version, history and blobs included."""
        moves = self.store.history()
        keep = 1 + next(i for i, m in enumerate(moves) if m["version"] == version)
        for move in moves[keep:]:
            self.state._blobs.pop(f"snapshot:{move['version']}")
        del self.state._lists["history"][keep:]
        self.state._fields["current"] = version


@pytest.fixture
def here() -> Deployment:
    return Deployment()


def test_nothing_before_the_first_publication_then_each_new_version(here: Deployment) -> None:
    assert here.served() is None
    for _ in range(3):
        version = here.publish()
        assert here.served() == version


def test_every_process_ends_at_the_last_version_whenever_it_looked_or_started(here: Deployment) -> None:
    followers = [here.new_follower() for _ in range(4)]
    here.publish()
    for follower in followers[:3]:
        follower.current()
    here.now += 500
    followers[3].current()
    here.publish()
    last = here.publish()
    late = here.new_follower()
    here.now += 1_000
    for follower in [*followers, late]:
        found = follower.current()
        assert found is not None
        assert found.version == last


def test_the_store_is_asked_once_a_poll_interval_and_the_object_stays(here: Deployment) -> None:
    here.publish()
    here.served()
    held = here.follower.current()
    newer = here.publish()
    reads = here.state.reads
    here.now += 999
    assert here.follower.current() is held
    assert here.state.reads == reads
    here.now += 1
    assert held is not None
    found = here.follower.current()
    assert found is not None
    assert found.version == newer
    assert here.state.reads == reads + 1


def test_away_it_goes_on_and_says_so_until_too_stale(here: Deployment) -> None:
    version = here.publish()
    here.served()
    here.state.away = True
    for _ in range(60):
        assert here.served() == version
    assert here.follower.staleness_ms == 60_000
    with pytest.raises(StateUnavailableError, match="max_snapshot_staleness"):
        here.served()
    here.state.away = False
    assert here.served() == version
    assert here.follower.staleness_ms == 0


def test_a_store_that_does_not_answer_takes_little_of_the_time(here: Deployment) -> None:
    version = here.publish()
    here.served()

    def blocks(names: Sequence[str]) -> dict[str, str | None]:
        here.now += 2_000
        attempts.append(here.now)
        raise StateUnavailableError("timed out")

    attempts: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here.state, "read", blocks)
        stop = here.now + 55_000
        while here.now < stop:
            found = here.follower.current()
            assert found is not None
            assert found.version == version
            here.now += 100
        assert 2 <= len(attempts) <= 3
        here.now = 1_000 + 60_001  # pauses never reach beyond the staleness allowed
        with pytest.raises(StateUnavailableError, match="max_snapshot_staleness"):
            here.follower.current()
    assert here.served() == version


def test_away_from_the_start_is_an_error_not_identity(here: Deployment) -> None:
    here.state.away = True
    with pytest.raises(StateUnavailableError):
        here.served()


def test_a_damaged_blob_is_refused_and_the_last_good_one_kept(here: Deployment) -> None:
    first = here.publish()
    here.served()
    second = here.publish()
    good = here.state._blobs[f"snapshot:{second}"]
    here.state._blobs[f"snapshot:{second}"] = good[:-1] + b"]"
    assert here.served() == first
    assert here.follower.damaged == second
    here.state._blobs[f"snapshot:{second}"] = good
    assert here.served() == second
    assert here.follower.damaged is None


def test_a_pointer_that_is_no_version_is_damage_too(here: Deployment) -> None:
    first = here.publish()
    here.served()
    here.state._fields["current"] = "nonsense"
    assert here.served() == first
    assert here.follower.damaged == "nonsense"
    here.state._fields["current"] = first
    assert here.served() == first
    assert here.follower.damaged is None


def test_a_damaged_blob_without_a_good_one_is_an_error(here: Deployment) -> None:
    version = here.publish()
    here.state._blobs[f"snapshot:{version}"] = b"{}"
    with pytest.raises(DamagedSnapshotError):
        here.served()


def test_a_logged_rollback_is_followed(here: Deployment) -> None:
    first, second = here.publish(), here.publish()
    assert here.served() == second
    here.store.rollback(first, "ann", "x")
    assert here.served() == first
    assert not here.follower.behind
    assert here.served() == first
    third = here.publish()
    assert here.served() == third


def test_a_pointer_that_went_back_by_itself_is_not_followed_and_blobs_are_put_back(here: Deployment) -> None:
    first, second = here.publish(), here.publish()
    here.served()
    here.lose_back_to(first)
    assert here.served() == second
    assert here.follower.behind
    assert f"snapshot:{second}" in here.state._blobs
    assert here.store.current() == first  # the pointer is the closer's and refit's to repair
    third = here.publish()  # sequence 3: the counter was not lost here
    assert here.served() == third
    assert not here.follower.behind


def test_an_old_rollback_does_not_excuse_a_lost_write(here: Deployment) -> None:
    first = here.publish()
    here.publish()
    here.store.rollback(first, "ann", "x")
    third = here.publish()
    assert here.served() == third
    here.state._fields["current"] = first
    assert here.served() == third
    assert here.follower.behind


def test_a_wiped_store_keeps_what_is_served(here: Deployment) -> None:
    version = here.publish()
    here.served()
    here.state._fields.clear()
    here.state._lists.clear()
    here.state._blobs.clear()
    assert here.served() == version
    assert f"snapshot:{version}" in here.state._blobs


def test_level_snapshots_are_served_and_both_blobs_put_back(here: Deployment) -> None:
    first = here.publish()
    append(here.state, request("l", 30, first), decided=30)
    second = here.store.publish(level(first, "l", first), report("l"), "1")
    assert here.served() == second
    names = [f"snapshot:{first}", f"snapshot:{second}"]
    for name in names:
        here.state._blobs.pop(name)
    for _ in range(60):
        here.served()
    assert all(name in here.state._blobs for name in names)


@pytest.mark.parametrize("attributes", [("device", "região"), ("região",), ("região", "device", "plan"), ()])
def test_a_snapshot_over_other_attributes_is_never_served(here: Deployment, attributes: tuple[str, ...]) -> None:
    """Its offsets go by position: they would be given to the values of other attributes."""
    other = here.new_follower(attributes)
    assert other.current() is None
    version = here.publish()
    here.now += 1_000
    with pytest.raises(SnapshotError, match=f"{version} is over the attributes região, device"):
        other.current()


def test_what_cannot_be_served_is_logged_once(here: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    first = here.publish()
    assert here.served() == first
    here.state.commit(Commit(fields={"current": "nonsense"}))
    for _ in range(3):
        assert here.served() == first
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"snapshot {first} is served on" in caplog.text
