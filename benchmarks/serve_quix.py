"""Quix Streams doing calibrate's work the way one writes it there: one function call a message, exactly once.

    python serve_quix.py interpolate|predict BOOTSTRAP SOURCE TARGET MAP_JSON

Runs in an environment of its own (quixstreams pins another confluent-kafka), so nothing of this project is imported.
It is given the plain map, without groups: less work than calibrate does. Runs until it is ended.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from quixstreams import Application
from sklearn.isotonic import IsotonicRegression

_COMMIT_EVERY_MESSAGES = 5_000


def main(how: str, bootstrap: str, source: str, target: str, map_json: str) -> None:
    score, probability = (np.array(values) for values in json.loads(map_json))
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(score, probability)

    def interpolate(value: dict[str, Any]) -> dict[str, Any]:
        value["calibrated"] = float(np.interp(value["score"], score, probability))
        return value

    def predict(value: dict[str, Any]) -> dict[str, Any]:
        value["calibrated"] = float(isotonic.predict([value["score"]])[0])
        return value

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
    messages.apply({"interpolate": interpolate, "predict": predict}[how]).to_topic(
        application.topic(target, value_serializer="json")
    )
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:6])
