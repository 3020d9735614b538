"""Bad records on the users' topics and on our own: each becomes a dead letter, and the next good one is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_calib.events.control import clock_record
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from tests.integration.findings import Output, find, read_topic
from tests.integration.harness import Deployment, deployment
from tests.oracle import offline

pytestmark = pytest.mark.services

NOON_MS = 1_362_139_200_000
"""2013-03-01 12:00 UTC."""
GOOD = {"event_id": "good", "ts": NOON_MS, "score": 0.25, "carrier": "UA", "origin": "EWR", "dest": "ORD"}
CONTROL = clock_record(NOON_MS)[1]

Bad = tuple[bytes, str]
"""The value, and the reason why it is refused."""


def event(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


BAD_JSON: list[Bad] = [
    (b"not JSON", "not_json"),
    (b'{"event_id": "x", "ts": 1, "score": NaN}', "not_json"),
    (b'{"event_id": "x", "ts": 1, "score": -Infinity}', "not_json"),
    (b'{"event_id": "x", "ts": 1, "score": 1e999}', "not_json"),
    (b'{"event_id": "x", "ts": 1, "score": 0.5', "not_json"),
    (b"", "empty_value"),
    (b"[1, 2]", "not_an_object"),
    (b"7", "not_an_object"),
    (event()[:-1] + b', "score": 0.9}', "duplicate_key"),
    (event(more={"a": 1})[:-2] + b', "a": 2}}', "duplicate_key"),
    (b'{"event_id": "\xff\xfe", "ts": 1, "score": 0.5}', "not_utf8"),
    (event(more="x" * 1_100_000), "too_large"),
    (event()[:-1] + b', "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
    (without("event_id"), "id_missing"),
    (event(event_id=None), "id_invalid"),
    (event(event_id=""), "id_invalid"),
    (event(event_id=1.5), "id_invalid"),
    (event(event_id=True), "id_invalid"),
    (event(event_id=["x"]), "id_invalid"),
    (event(event_id="x" * 513), "id_invalid"),
    (event(event_id="\ud800"), "id_invalid"),
    (event(ts=1), "time_out_of_range"),
    (event(ts=5_000_000_000_000), "time_out_of_range"),
    (event(ts="2013-03-01T12:00:00Z"), "time_invalid"),
    (event(ts=None), "time_invalid"),
]
BAD_SCORES: list[Bad] = [
    *BAD_JSON,
    (without("score"), "score_missing"),
    (event(score=None), "score_invalid"),
    (event(score="0.5"), "score_invalid"),
    (event(score=True), "score_invalid"),
    (event(score={"p": 0.5}), "score_invalid"),
    (event(score=1.5), "score_out_of_range"),
    (event(score=-0.1), "score_out_of_range"),
    (event(score=10**30), "score_out_of_range"),
    (without("ts"), "time_missing"),
]
BAD_OUTCOMES: list[object] = ["yes", 2, -1, 0.5, "true", "", [], {}]
BAD_LABELS: list[Bad] = [
    *((value, reason) for value, reason in BAD_JSON if b'"score"' not in value),
    (json.dumps({"event_id": "x", "ts": NOON_MS}).encode(), "label_missing"),
    *(
        (json.dumps({"event_id": "x", "ts": NOON_MS, "label": label}).encode(), "label_invalid")
        for label in BAD_OUTCOMES
    ),
    (json.dumps({"event_id": None, "ts": NOON_MS, "label": 1}).encode(), "id_invalid"),
    (json.dumps({"event_id": "x", "label": 1}).encode(), "time_missing"),
    (b'{"event_id": "x", "ts": 1362139200000, "label": 1, "label": 1}', "duplicate_key"),
]
BAD_CONTROLS = [b"", b"not JSON", b'{"clock_ms": 1, "state": "idle"}', b'{"clock_ms": 1362139200000, "state": "stop"}']
HEADERS = (("trace", b"\x00\x01"), ("trace", b"2"))


def _feed(deployed: Deployment) -> dict[tuple[str, int], tuple[bytes | None, str]]:
    """Everything bad on partition 0 of its topic, with a good record after each. (topic, offset) -> what is due."""
    due: dict[tuple[str, int], tuple[bytes | None, str]] = {}
    for topic, bad in (("scores", BAD_SCORES), ("labels", BAD_LABELS)):
        records: list[Outgoing] = []

        def add(value: bytes | None, headers: tuple[tuple[str, bytes], ...] = HEADERS, key: bytes | None = b"k") -> int:
            records.append(Outgoing(topic, key, value, headers, 0))  # noqa: B023 - called in this round only
            return len(records) - 1  # noqa: B023 - as above

        for i, (value, reason) in enumerate(bad):
            due[topic, add(value)] = (value, reason)
            add(event(event_id=f"s{i}") if topic == "scores" else _label(i))
        for value in BAD_CONTROLS:
            due[topic, add(value, CONTROL)] = (value, "control_invalid")
        due[topic, add(b"{}", (("stream-calib-kind", b"other"),))] = (b"{}", "control_invalid")
        # A tombstone of a score is skipped, that of a label withdraws the label of the id that its key spells.
        add(None, (), b"s0")
        if topic == "labels":
            due[topic, add(None, HEADERS, None)] = (None, "id_missing")
            due[topic, add(None, HEADERS, b"\xff")] = (None, "id_invalid")
        deployed.log.produce(records)
    return due


def _label(i: int) -> bytes:
    return json.dumps({"event_id": f"s{i}", "ts": NOON_MS + 60_000, "label": i % 2}).encode()


def _wait(deployed: Deployment) -> None:
    """Until all is read: the last panes have matured."""
    deployed.log.produce(deployed.clocks(NOON_MS + 3_600_000, end=True))
    deployed.until_matured(NOON_MS // 3_600_000)
    deployed.until_served()


def _check_dead_letters(dead: list[Record], due: dict[tuple[str, int], tuple[bytes | None, str]]) -> None:
    found = {}
    for record in dead:
        headers = dict(record.headers)
        source = headers["stream-calib-source-topic"].decode(), int(headers["stream-calib-source-offset"])
        original, _ = due[source]
        cut = headers.get("stream-calib-truncated-from")
        if cut is not None:
            assert len(original or b"") == int(cut) > len(record.value or b"") > 800_000
            assert (original or b"").startswith(record.value or b"")
        found[source] = (original if cut else record.value, headers["stream-calib-reason"].decode())
        assert record.headers[: len(HEADERS)] == HEADERS or "stream-calib-kind" in headers
        assert headers["stream-calib-source-partition"] == b"0"
        assert record.key == f"{source[0]}-0-{source[1]}".encode()
        assert len(headers["stream-calib-message"]) > 10
        assert headers["stream-calib-message"].isascii()
    assert found == due
    assert len(dead) == len(due)


def test_bad_records_end_in_the_dead_letters(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        for role in ("calibrate", "monitor"):
            deployed.start(role)
        due = _feed(deployed)
        damaged = b"SCBK but no block"
        deployed.log.produce([Outgoing("blocks", None, damaged, (), 1)])
        _wait(deployed)
        found = find(deployed)
        # What a process says of itself is up to a second old.
        deployed.until(lambda: _rejected(deployed) == len(due) + 1, "the counts in the status")
        status = deployed.command("status", "--json")
    blocks = [r for r in found.dead_letters if dict(r.headers)["stream-calib-source-topic"] == b"blocks"]
    assert [(r.value, dict(r.headers)["stream-calib-reason"]) for r in blocks] == [(damaged, b"block_damaged")]
    _check_dead_letters([r for r in found.dead_letters if r not in blocks], due)

    assert [o.event["event_id"] for o in found.outputs] == [f"s{i}" for i in range(len(BAD_SCORES))]
    assert {o.served["calibrated"] for o in found.outputs} == {0.25}
    expected = _expected()
    assert found.matured[NOON_MS // 3_600_000] == expected.pane(NOON_MS // 3_600_000).matured
    assert found.totals["labels"] == len(BAD_LABELS) + 1
    assert found.totals["matched"] == expected.totals["labels_matched"]

    (model,) = json.loads(status.stdout)["models"]
    rejected = {p["role"]: p["facts"]["rejected"] for p in model["processes"]}
    assert sum(rejected["calibrate"].values()) == sum(topic == "scores" for topic, _ in due)
    assert sum(rejected["monitor"].values()) == sum(topic == "labels" for topic, _ in due) + 1
    assert rejected["calibrate"]["duplicate_key"] == 2


def _rejected(deployed: Deployment) -> int:
    return sum(sum(s.facts["rejected"].values()) for role in ("calibrate", "monitor") for s in deployed.statuses(role))


def _expected() -> offline.Result:
    signature = ("UA", "EWR", "ORD")
    later: list[Any] = [offline.Clock(NOON_MS + 3_600_000), offline.End()]
    scores = [offline.Score(f"s{i}", NOON_MS, 0.25, signature) for i in range(len(BAD_SCORES))]
    labels = [offline.Label(f"s{i}", NOON_MS + 60_000, i % 2) for i in range(len(BAD_LABELS))]
    labels.append(offline.Label("s0", None, None))
    return offline.compute(
        [[*scores, *later], later, later, later], [[*labels, *later], later, later, later], offline.Settings(86_400_000)
    )


def test_rejects_are_passed_through_where_that_is_asked_for(tmp_path: Path) -> None:
    overrides = {"serving": {"output": "enrich"}, "records": {"on_reject": "passthrough"}}
    with deployment(tmp_path, overrides) as deployed:
        deployed.start("calibrate")
        due = _feed(deployed)
        taken = event(event_id="taken", stream_calib="mine")
        deployed.log.produce([Outgoing("scores", b"k", taken, HEADERS, 0), Outgoing("scores", b"k", event(), (), 0)])
        deployed.until_served()
        dead = read_topic(deployed, "dead-letters")[0]
        raw = read_topic(deployed, "calibrated")
        end = deployed.log.end_offset(TopicPartition("scores", 0))
    of_scores = {offset: what for (topic, offset), what in due.items() if topic == "scores"}
    of_scores[end - 2] = (taken, "output_field_taken")
    _check_dead_letters(dead, {("scores", offset): what for offset, what in of_scores.items()})

    passed: dict[int, bytes | None] = {}
    served: list[Output] = []
    for record in (record for part in raw for record in part):
        headers = dict(record.headers)
        offset = int(headers["stream-calib-source-offset"])
        if headers.get("stream-calib-status") == b"passthrough":
            passed[offset] = record.value
        else:
            served.append(Output((0, offset), record, json.loads(record.value or b"")))
    # What may be too large for a topic is only a dead letter, and that is cut.
    kept_back = ("control_invalid", "too_large")
    assert set(passed) == {offset for offset, (_, reason) in of_scores.items() if reason not in kept_back}
    for offset, value in passed.items():
        original, reason = of_scores[offset]
        if reason in ("id_missing", "id_invalid", "score_out_of_range", "time_invalid"):
            enriched = json.loads(value or b"")
            mine = enriched.pop("stream_calib")["flights"]
            assert enriched == json.loads(original or b"")
            assert mine == {"raw": None, "calibrated": None, "snapshot": None, "status": "passthrough"}
        if reason in ("not_json", "not_utf8", "duplicate_key", "output_field_taken", "not_an_object"):
            assert value == original
    assert len(served) == len(BAD_SCORES) + 1
    assert all(o.served["status"] == "identity" and o.event["carrier"] == "UA" for o in served)
