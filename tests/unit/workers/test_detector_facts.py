from __future__ import annotations

import json

from stream_calib.drift.open_cells import OpenCell, OpenCells
from stream_calib.drift.outcome_step import OutcomeState
from stream_calib.drift.policy import TriggerState
from stream_calib.drift.step import DetectorState
from tests.unit.refit.world import World, config
from workers.detector_facts import detector_facts
from workers.status_tables import detector_rows


def test_before_the_first_decided_pane_nothing_is_said() -> None:
    world = World(config())
    assert detector_facts(None, None, None, world.store, world.config) is None


def test_without_detectors_it_is_said_that_nobody_watches() -> None:
    world = World(config())
    detector = json.dumps(DetectorState(trigger=TriggerState(residual_pane=3, new_labels=5)).to_json())
    facts = detector_facts(detector, 9, None, world.store, world.config)
    assert facts == {"outcomes": None, "labels": None, "psi_in_alarm": [], "trigger": "waiting_for_labels"}
    rows = dict(detector_rows(facts))
    assert rows["outcomes"] == "not watched yet: needs a snapshot with three whole drift.psi_window behind it"
    assert rows["refit by drift"] == "waits for refit.min_new_labels"


def test_what_is_watched_in_alarm_and_closest_to_it() -> None:
    world = World(config(max_age="30d", min_rows=3_000), rows_a_pane=60)
    world.run(96)
    fields = world.state.read(["detector", "decided"])
    state = DetectorState.from_json(json.loads(fields["detector"] or ""))
    assert state.outcomes != OutcomeState()
    cell = OpenCell("region=west", since_pane=3, version="v", needed=9)
    outcomes = OutcomeState(
        state.outcomes.refit, state.outcomes.page, state.outcomes.history, OpenCells((cell,), 3), OpenCells()
    )
    detector = json.dumps(DetectorState(outcomes=outcomes, selection=state.selection).to_json())
    facts = detector_facts(detector, int(fields["decided"] or 0), world.store.current(), world.store, world.config)
    assert facts is not None
    watched = facts["outcomes"]
    assert watched["cells"] == len(state.outcomes.refit.names) > 20
    assert watched["in_alarm"] == ["region=west"]
    assert watched["closest"] in state.outcomes.refit.names
    assert 0 < watched["evidence"] < 1
    said = dict(detector_rows(facts))["outcomes"]
    assert said.startswith(
        f"{watched['cells']} cells watched, in alarm: region=west; closest: {watched['closest']}, with "
    )
    assert said.endswith("% of an alarm's evidence")
    assert dict(detector_rows(facts))["labels by group"].split(",")[1].strip().startswith("none in alarm")
