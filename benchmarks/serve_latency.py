"""From produce to committed output: one process that writes scores at a rate, one that reads the outputs.

    python -m benchmarks.serve_latency write|read BOOTSTRAP TOPIC RATE SECONDS

Both are on one machine and share its clock. The writer puts the time of writing (epoch nanoseconds) into the event id;
the reader (read_committed) prints the percentiles in milliseconds as JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time

import numpy as np
from confluent_kafka import Consumer, Producer

PERCENTILES = (50.0, 99.0, 99.9)
_EVERY_S = 0.002
_WARM_UP_SHARE = 0.25
_ID = re.compile(rb'"event_id":"(\d+)-')


def write(bootstrap: str, topic: str, rate: float, seconds: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})
    value = (
        '{"event_id":"%d-%d","ts":%d,"score":0.%06d,"carrier":"C%02d","origin":"EWR","dest":"D%02d","run":"nightly"}'
    )
    started, sent, total = time.monotonic(), 0, int(rate * seconds)
    while sent < total:
        due = min(int((time.monotonic() - started) * rate), total)
        now = time.time_ns()
        for i in range(sent, due):
            text = value % (now, i, now // 1_000_000, (i * 7919) % 1_000_000, i % 16, i % 100)
            producer.produce(topic, text.encode(), partition=i % 4)
        sent = due
        producer.poll(0)
        time.sleep(_EVERY_S)
    producer.flush(30)


def read(bootstrap: str, topic: str, rate: float, seconds: float) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-latency",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.subscribe([topic])
    total = int(rate * seconds)
    waited: list[int] = []
    deadline = time.monotonic() + seconds + 60
    while len(waited) < total and time.monotonic() < deadline:
        batch = consumer.consume(2_000, timeout=0.05)
        now = time.time_ns()
        for message in batch:
            found = _ID.search(message.value() or b"")
            if found:
                waited.append(now - int(found[1]))
    if len(waited) < total:
        raise SystemExit(f"{len(waited)} of {total} outputs came")
    milliseconds = np.array(waited[int(_WARM_UP_SHARE * total) :]) / 1e6
    print(json.dumps({f"p{q:g}": float(np.percentile(milliseconds, q)) for q in PERCENTILES}))
    consumer.close()


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
