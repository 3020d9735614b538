"""What a process serves when another generation of a model key's state becomes live."""

from __future__ import annotations

import logging

import pytest

from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.publishing import publish
from tests.unit.snapshot.test_served_models import ONE, Deployment, State


@pytest.fixture
def here() -> Deployment:
    return Deployment()


def another(here: Deployment) -> State:
    """It takes the place of what was live."""
    here.states[ONE] = State(here.server)
    return here.states[ONE]


def test_the_snapshot_of_the_live_generation_is_served_whatever_its_number(here: Deployment) -> None:
    here.publish(ONE)
    before = here.publish(ONE, level=2.0)
    assert here.serving(ONE) == ("calibrated", before)
    first = publish(another(here), ONE, level=0.5)
    assert first.split("-")[0] < before.split("-")[0]
    assert here.serving(ONE) == ("calibrated", first)


def test_a_generation_without_a_snapshot_is_served_raw(here: Deployment) -> None:
    here.publish(ONE)
    assert here.serving(ONE)[0] == "calibrated"
    another(here)
    assert here.serving(ONE) == ("identity", "")


def test_what_was_served_is_served_on_while_the_new_one_cannot_be(
    here: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    before = here.publish(ONE)
    assert here.serving(ONE) == ("calibrated", before)
    another(here).commit(Commit(fields={"current": "000001-0123456789ab"}))
    with caplog.at_level(logging.ERROR):
        assert here.serving(ONE) == ("calibrated", before)
    assert "cannot be served" in caplog.text
    after = here.publish(ONE)
    here.states[ONE].commit(Commit(fields={"current": after}))
    assert here.serving(ONE) == ("calibrated", after)


def test_while_the_state_is_away_what_is_held_is_served_on(here: Deployment) -> None:
    before = here.publish(ONE)
    assert here.serving(ONE) == ("calibrated", before)
    another(here)
    here.server.away = True
    assert here.serving(ONE) == ("calibrated", before)
