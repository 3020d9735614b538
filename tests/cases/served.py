"""What calibrate makes of records, without a log: outputs, blocks and dead letters of one poll after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.port import Outgoing, Record
from tests.unit.events.events_for_tests import config
from workers.calibrate_transform import Transform


def served_by(**sections: Any) -> Transform:
    """Over `events_for_tests.config`."""
    return Transform(config(**sections))


def no_snapshot(key: ModelKey) -> Serving:
    return Serving(None, "identity")


def polls(transform: Transform, batches: Sequence[Sequence[Record]]) -> dict[str, list[Outgoing]]:
    """Topic -> what is written there, in order, before there is a snapshot."""
    written: dict[str, list[Outgoing]] = defaultdict(list)
    for records in batches:
        decoded, scores = transform.decode(records)
        for output in transform.encode(records, decoded, transform.calibrate(scores, no_snapshot)):
            written[output.topic].append(output)
    return written
