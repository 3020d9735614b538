"""Following the snapshots of all model keys of a deployment."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.errors import SnapshotError, StateUnavailableError, TooManyModelsError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.served_models import ServedModels
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.model_registry import ModelRegistry
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.publishing import publish

ONE, TWO, THREE = (ModelKey("m", version) for version in "123")
OTHER = ModelKey("n", "1")
FUSED = ModelKey("f", "1")
HOUR_MS = 3_600_000


class Server:
    """What all states are on."""

    def __init__(self) -> None:
        self.away = self.full = False
        self.reads = 0


class State(MemoryState):
    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server

    def read(self, names: Sequence[str]) -> dict[str, str | None]:
        if self.server.away:
            raise StateUnavailableError("away")
        self.server.reads += 1
        return super().read(names)

    def commit(self, change: Commit) -> bool:
        if self.server.full:
            raise StateUnavailableError("full")
        return super().commit(change)


class Deployment:
    def __init__(self, **sections: Any) -> None:
        base: dict[str, Any] = {
            "model": {"name": "m", "version_path": "v"},
            "scores": {"attributes": {"region": "r", "device": "d"}},
            "windows": {"horizon": "2h"},
        }
        self.config = Config.model_validate({**base, **sections})
        self.server = Server()
        self.now = 0
        self.states: dict[ModelKey, State] = defaultdict(lambda: State(self.server))
        self.registry = ModelRegistry(self.states[ModelKey("*", "d")], self.config.model.max_keys)
        self.models = self.start()

    def start(self) -> ServedModels:
        return ServedModels(self.config, self.registry, self.states.__getitem__, lambda: self.now)

    def publish(self, key: ModelKey, **change: Any) -> str:
        return publish(self.states[key], key, **change)

    def serving(self, key: ModelKey, later_ms: int = 1_000) -> tuple[str, str]:
        """(status, snapshot) with the next batch."""
        self.now += later_ms
        self.models.refresh()
        assert self.models.admit(key)
        served, status = self.models.serving(key)
        return status, served.version if served else ""


@pytest.fixture
def here() -> Deployment:
    return Deployment()


def test_each_key_has_its_own_snapshot_once_it_is_published(here: Deployment) -> None:
    assert here.serving(ONE) == ("identity", "")
    first = here.publish(ONE)
    second = here.publish(TWO, level=2.0)
    assert here.serving(ONE) == ("calibrated", first)
    assert here.serving(TWO) == ("calibrated", second)
    assert here.registry.known() == [ONE, TWO]


def test_what_is_served_says_how_far_its_data_go(here: Deployment) -> None:
    here.publish(ONE, last_pane=41, pane_ms=1_000)
    here.serving(ONE)
    served, _ = here.models.serving(ONE)
    assert served is not None
    assert served.data_end_ms == 42_000


def test_the_state_is_read_once_a_poll_interval_whatever_the_number_of_batches(here: Deployment) -> None:
    here.serving(ONE)
    reads = here.server.reads
    for _ in range(100):
        here.serving(ONE, later_ms=1)
    assert here.server.reads == reads
    here.serving(ONE)
    assert here.server.reads == reads + 2  # the registry, and the key's pointer


def test_constants_of_the_configuration_are_followed_and_registered_from_the_start() -> None:
    here = Deployment(model={}, models=[{"name": "m", "score": "x"}, {"name": "n", "score": "y"}])
    version = here.publish(OTHER)
    here.models.refresh()
    assert here.registry.known() == [ONE, OTHER]
    here.server.away = True
    assert here.serving(OTHER) == ("calibrated", version)


# --- cold start -----------------------------------------------------------------------------------------------


def test_a_new_version_is_served_by_the_latest_other_one_that_has_a_snapshot() -> None:
    here = Deployment(serving={"bootstrap": "previous_version"})
    assert here.serving(ONE) == ("identity", "")
    first = here.publish(ONE)
    assert here.serving(TWO) == ("previous_version", first)
    assert here.serving(THREE) == ("previous_version", first)  # 2 has none yet
    second = here.publish(TWO)
    assert here.serving(THREE) == ("previous_version", second)
    third = here.publish(THREE)
    assert here.serving(THREE) == ("calibrated", third)


def test_another_models_snapshot_is_no_previous_version() -> None:
    here = Deployment(model={"name_path": "n"}, serving={"bootstrap": "previous_version"})
    here.publish(OTHER)
    here.serving(OTHER)
    assert here.serving(ONE) == ("identity", "")


def test_a_previous_version_over_other_attributes_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    here = Deployment(serving={"bootstrap": "previous_version"})
    first = here.publish(ONE)
    here.publish(TWO, attributes=("region",))
    for key in (ONE, TWO):
        here.registry.add(key)
    with caplog.at_level(logging.ERROR):
        assert here.serving(THREE) == ("previous_version", first)
        here.serving(THREE)
    assert [r.getMessage().count("m/2") for r in caplog.records] == [1], "said once"


def test_a_keys_own_snapshot_that_cannot_be_served_is_an_error(here: Deployment) -> None:
    here.publish(ONE, attributes=("region",))
    with pytest.raises(SnapshotError, match="region"):
        here.serving(ONE)


def test_wait_is_for_the_constants_only() -> None:
    models = [{"name": "m", "score": "x"}, {"name": "n", "score": "y", "version_path": "v"}]
    here = Deployment(model={}, models=models, serving={"bootstrap": "wait"})
    here.models.refresh()
    assert here.models.waited_for() == [ONE]
    here.publish(ONE)
    here.now += 1_000
    here.models.refresh()
    assert here.models.waited_for() == []
    assert here.serving(OTHER) == ("identity", "")


def test_wait_is_for_the_members_of_a_fusion_and_not_for_what_is_fused() -> None:
    """What is served is all that can become its first snapshot."""
    models = [{"name": "m", "score": "x"}, {"name": "n", "score": "y"}]
    here = Deployment(model={}, models=models, fusion={"name": "f"}, serving={"bootstrap": "wait"})
    here.models.refresh()
    assert here.models.waited_for() == [ONE, OTHER]
    assert here.registry.known() == [ONE, OTHER, FUSED]
    for key in (ONE, OTHER):
        here.publish(key)
    here.now += 1_000
    here.models.refresh()
    assert here.models.waited_for() == []
    assert here.serving(FUSED) == ("identity", "")


# --- bounds ---------------------------------------------------------------------------------------------------


def test_keys_beyond_the_bound_are_not_admitted_also_where_others_took_the_place() -> None:
    here = Deployment(model={"name": "m", "version_path": "v", "max_keys": 2})
    here.serving(ONE)
    here.registry.add(TWO)  # another process, just now
    assert not here.models.admit(THREE)
    assert here.models.admit(ONE)
    reads = here.server.reads
    for i in range(100):
        assert not here.models.admit(ModelKey("m", f"x{i}"))
    assert here.server.reads == reads, "a deployment that is full asks nobody"


def test_constants_that_are_too_many_are_told() -> None:
    here = Deployment(model={"name": "m", "max_keys": 1})
    here.registry.add(OTHER)
    with pytest.raises(TooManyModelsError, match=r"raise model\.max_keys"):
        here.models.refresh()


def test_keys_that_are_not_used_for_an_hour_are_dropped_and_come_back(here: Deployment) -> None:
    version = here.publish(TWO)
    here.serving(TWO)
    for _ in range(3):
        here.serving(ONE, later_ms=HOUR_MS // 2)
    assert list(here.models.followers) == [ONE]
    assert here.serving(TWO) == ("calibrated", version)


# --- the state away, or full ----------------------------------------------------------------------------------


def test_with_the_state_away_from_the_start_there_is_nothing_to_serve(here: Deployment) -> None:
    here.server.away = True
    with pytest.raises(StateUnavailableError):
        here.models.refresh()


def test_with_the_state_away_what_is_followed_is_served_on(here: Deployment) -> None:
    version = here.publish(ONE)
    here.serving(ONE)
    here.server.away = True
    assert here.serving(ONE, later_ms=HOUR_MS) == ("calibrated", version)
    assert here.models.staleness_ms == HOUR_MS


def test_the_log_says_once_that_the_state_is_away_and_once_that_it_is_back(
    here: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stream_calib.snapshot.served_models")
    here.serving(ONE)
    here.server.away = True
    here.serving(ONE)
    here.serving(ONE, later_ms=60_000)
    assert [r.message for r in caplog.records] == ["the state is away; what is held is served on for up to 7d: away"]
    here.server.away = False
    here.serving(ONE, later_ms=60_000)
    assert caplog.records[-1].message == "the state is back, after 121 s"
    here.serving(ONE, later_ms=60_000)
    assert len(caplog.records) == 2


def test_a_key_that_nobody_has_registered_has_no_snapshot_so_it_is_served_while_the_state_is_away() -> None:
    here = Deployment(serving={"bootstrap": "previous_version"})
    version = here.publish(ONE)
    here.serving(ONE)
    here.server.away = True
    assert here.serving(TWO) == ("previous_version", version)
    here.server.away = False
    here.serving(TWO, later_ms=60_000)
    assert here.registry.known() == [ONE, TWO]


def test_a_key_of_others_waits_for_a_state_that_is_away(here: Deployment) -> None:
    here.serving(ONE)
    here.registry.add(TWO)
    here.serving(ONE)
    here.server.away = True
    with pytest.raises(StateUnavailableError):
        here.serving(TWO)


def test_with_the_state_away_too_long_nothing_is_served() -> None:
    here = Deployment(serving={"max_snapshot_staleness": "10m"})
    here.publish(ONE)
    here.serving(ONE)
    here.server.away = True
    here.serving(ONE, later_ms=600_000)
    with pytest.raises(StateUnavailableError, match=r"longer than serving\.max_snapshot_staleness"):
        here.serving(ONE)


def test_a_state_that_is_full_holds_up_no_serving(here: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    here.serving(ONE)
    version = here.publish(TWO)
    here.server.full = True
    for _ in range(3):
        assert here.serving(TWO) == ("calibrated", version)
    assert [r.getMessage().count("m/2") for r in caplog.records] == [1], "said once"
    assert here.registry.known() == [ONE]
    here.server.full = False
    here.serving(TWO)
    assert here.registry.known() == [ONE, TWO]


def test_a_retired_key_is_let_go_and_comes_back_with_traffic(here: Deployment) -> None:
    version = here.publish(TWO)
    here.serving(ONE)
    assert here.serving(TWO) == ("calibrated", version)
    here.registry.retire(TWO, {}, 0)
    assert here.serving(ONE)[0] == "identity"
    assert list(here.models.followers) == [ONE]
    here.states[TWO] = State(here.server)  # deleted
    for _ in range(100):
        here.serving(ONE)
    assert here.states[TWO].blobs([f"snapshot:{version}"]) == [None], "what was served is not put back"
    assert here.serving(TWO) == ("identity", "")
    assert here.registry.known() == [ONE, TWO]


def test_a_constant_of_the_configuration_is_served_on() -> None:
    here = Deployment(model={"name": "m", "version": "1"})
    version = here.publish(ONE)
    here.serving(ONE)
    here.registry.retire(ONE, {}, 0)
    assert here.serving(ONE) == ("calibrated", version)


def test_a_key_served_while_the_state_was_full_is_rejected_where_others_took_its_place() -> None:
    here = Deployment(model={"name": "m", "version_path": "v", "max_keys": 2})
    here.serving(ONE)
    here.server.full = True
    here.serving(TWO)
    here.server.full = False
    here.registry.add(THREE)
    here.now += 1_000
    here.models.refresh()
    assert not here.models.admit(TWO)
    assert list(here.models.followers) == [ONE]
