"""The producer of the compose file's demo: every flight once, scores before their outcomes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from stream_calib.config_file import load_config
from stream_calib.demo.flights import Flights, load_flights

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def produce() -> ModuleType:
    specification = importlib.util.spec_from_file_location("produce", CHECKOUT / "examples/flights/produce.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["produce"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights()


def test_pieces_hold_every_event_once_and_in_order(produce: ModuleType, flights: Flights) -> None:
    pieces = list(produce.pieces(flights, 997, None))
    scores, labels = [0], [0]
    for piece in pieces:
        assert (piece.scores.start, piece.labels.start) == (scores[-1], labels[-1])
        scores.append(piece.scores.stop)
        labels.append(piece.labels.stop)
    assert scores[-1] == len(flights.event_id)
    assert labels[-1] == len(flights.label)
    sizes = np.diff(np.array(scores)) + np.diff(np.array(labels))
    assert set(sizes[:-1].tolist()) == {997}
    until = [piece.until_ms for piece in pieces]
    assert until == sorted(until)


def test_no_outcome_comes_before_its_score(produce: ModuleType, flights: Flights) -> None:
    for piece in produce.pieces(flights, 500, 5):
        rows = flights.label_row[piece.labels]
        assert not rows.size or int(rows.max()) < piece.scores.stop


def test_days_bound_what_is_sent(produce: ModuleType, flights: Flights) -> None:
    *_, last = produce.pieces(flights, 1_000, 3)
    day = flights.days()[2]
    assert (last.scores.stop, last.labels.stop) == (day.scores.stop, day.labels.stop)


def test_records_fit_the_configuration_of_the_compose_file(produce: ModuleType, flights: Flights) -> None:
    config = load_config(CHECKOUT / "deploy/compose/stream-calib.toml", {})
    records = [
        record for piece in produce.pieces(flights, 500, 2) for record in produce.outgoing(flights, piece, config)
    ]
    assert {record.topic for record in records} == {config.topics.scores, config.topics.labels}
    for record in records:
        event = json.loads(record.value)
        assert event[config.scores.id] == record.key.decode()
        assert config.scores.time.path in event
        if record.topic == config.topics.scores:
            assert 0 < event[config.scores.score] < 1
            assert set(config.scores.attributes.values()) <= event.keys()
        else:
            assert event[config.labels.label] in (0, 1)
