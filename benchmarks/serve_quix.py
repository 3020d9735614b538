"""Quix Streams doing calibrate's work the way one writes it there: one function call a message, exactly once.

    python serve_quix.py interpolate|predict BOOTSTRAP SOURCE TARGET MAP_JSON

Runs in an environment of its own (quixstreams pins another confluent-kafka), so nothing of this project is imported.
It writes the outputs that calibrate writes, with the same headers, by a plain map without groups: still less work than
calibrate does, which also checks every field and writes blocks. Runs until it is ended.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from quixstreams import Application, message_context
from sklearn.isotonic import IsotonicRegression

_COMMIT_EVERY_MESSAGES = 5_000
_SNAPSHOT = "000001-0123456789ab"


def output(value: dict[str, Any], calibrated: float) -> dict[str, Any]:
    served = {"raw": value["score"], "calibrated": calibrated, "snapshot": _SNAPSHOT, "status": "calibrated"}
    return {"event_id": value["event_id"], "stream_calib": {"benchmark": served}}


def source_headers(*_: Any) -> list[tuple[str, bytes]]:
    at = message_context()
    return [
        ("stream-calib-source-topic", at.topic.encode()),
        ("stream-calib-source-partition", b"%d" % at.partition),
        ("stream-calib-source-offset", b"%d" % at.offset),
    ]


def main(how: str, bootstrap: str, source: str, target: str, map_json: str) -> None:
    score, probability = (np.array(values) for values in json.loads(map_json))
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(score, probability)

    def interpolate(value: dict[str, Any]) -> dict[str, Any]:
        return output(value, float(np.interp(value["score"], score, probability)))

    def predict(value: dict[str, Any]) -> dict[str, Any]:
        return output(value, float(isotonic.predict([value["score"]])[0]))

    application = Application(
        broker_address=bootstrap,
        consumer_group=target,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_every=_COMMIT_EVERY_MESSAGES,
        commit_interval=5.0,
        auto_create_topics=False,
        loglevel="WARNING",
    )
    messages = application.dataframe(application.topic(source, value_deserializer="json"))
    calibrated = messages.apply({"interpolate": interpolate, "predict": predict}[how]).set_headers(source_headers)
    calibrated.to_topic(application.topic(target, value_serializer="json"))
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:6])
