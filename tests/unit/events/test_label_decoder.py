"""Label records to columns."""

from __future__ import annotations

from typing import Any

import pytest

from stream_calib.events.contracts import TOMBSTONE_TIME_MS, WITHDRAWN, Decoded, LabelBatch, RejectReason
from stream_calib.events.control import clock_record
from stream_calib.events.identity import fingerprints
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.label_models import EVERY_MODEL
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.transport.port import Record
from tests.unit.events.events_for_tests import T0, config, label, record, score

DAY = 86_400_000


def decode(records: list[Record], **sections: Any) -> Decoded:
    return LabelDecoder(config(**sections)).decode(records)


def batch_of(decoded: Decoded) -> LabelBatch:
    assert decoded.scores is None
    assert decoded.labels is not None
    return decoded.labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0), ("1", 1), ("0.0", 0), ("1.0", 1), ("-0", 0), ("-0.0", 0), ("1e0", 1),
        ("true", 1), ("false", 0), ('"0"', 0), ('"1"', 1), ("null", WITHDRAWN),
    ],
)  # fmt: skip
def test_the_table_of_labels(text: str, expected: int) -> None:
    decoded = decode([record(f'{{"event_id":"e","ts":{T0},"label":{text}}}'.encode())])

    assert decoded.rejects == []
    assert batch_of(decoded).label.tolist() == [expected]


@pytest.mark.parametrize(
    "text",
    [
        '"true"', '"false"', '"False"', '""', '" 1"', '"1.0"', '"yes"', "0.5", "2", "-1", "1e-300", "[]", "[1]", "{}",
        "1" * 400,
    ],
)  # fmt: skip
def test_all_else_is_no_label(text: str) -> None:
    decoded = decode([record(f'{{"event_id":"e","ts":{T0},"label":{text}}}'.encode()), record(label())])

    assert [(reject.record_index, reject.reason) for reject in decoded.rejects] == [(0, RejectReason.LABEL_INVALID)]
    assert batch_of(decoded).record_index.tolist() == [1]


def test_missing_fields_have_reasons_of_their_own() -> None:
    decoded = decode(
        [record({"event_id": 1, "ts": T0}), record({"ts": T0, "label": 1}), record({"event_id": 1, "label": 1})]
    )

    assert [reject.reason for reject in decoded.rejects] == [
        RejectReason.LABEL_MISSING,
        RejectReason.ID_MISSING,
        RejectReason.TIME_MISSING,
    ]


def test_scores_and_labels_agree_on_ids() -> None:
    ids: list[Any] = [7, "7", "007", "caf\u00e9", "cafe\u0301"]
    settings = config()

    scores = ScoreDecoder(settings).decode([record(score(event_id=i)) for i in ids]).scores
    labels = batch_of(LabelDecoder(settings).decode([record(label(event_id=i)) for i in ids]))

    assert scores is not None
    assert scores.fingerprint.tolist() == labels.fingerprint.tolist()
    assert len(set(labels.fingerprint.tolist())) == 4


def test_a_label_time_is_the_end_of_its_granule() -> None:
    settings = {"time": {"path": "ts", "unit": "iso8601"}, "time_granularity": "1d"}
    values = ["2024-05-01", "2024-05-01T00:00:00Z", "2024-05-01T23:59:59.999Z", "2024-05-02"]

    decoded = decode([record(label(ts=v)) for v in values], labels=settings)

    first = T0 - T0 % DAY
    assert batch_of(decoded).event_time_ms.tolist() == [first + DAY - 1] * 3 + [first + 2 * DAY - 1]


def test_tombstones_withdraw_in_the_order_of_their_records() -> None:
    records = [
        record(label(event_id="b")),
        record(None, key=b"a"),
        record(label(event_id="c", label=0)),
        record(None, key="é".encode()),
    ]

    batch = batch_of(decode(records))

    assert batch.record_index.tolist() == [0, 1, 2, 3]
    assert batch.label.tolist() == [1, WITHDRAWN, 0, WITHDRAWN]
    assert batch.event_time_ms.tolist() == [T0, TOMBSTONE_TIME_MS, T0, TOMBSTONE_TIME_MS]
    assert batch.fingerprint.tolist() == fingerprints(["b", "a", "c", "é"]).tolist()


def test_tombstones_keep_their_time_whatever_the_granularity() -> None:
    settings = {"time": {"path": "ts"}, "time_granularity": "1d"}

    assert batch_of(decode([record(None, key=b"a")], labels=settings)).event_time_ms.tolist() == [TOMBSTONE_TIME_MS]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, RejectReason.ID_MISSING),
        (b"", RejectReason.ID_MISSING),
        (b"\xff", RejectReason.ID_INVALID),
        (b"x" * 513, RejectReason.ID_INVALID),
    ],
)
def test_a_tombstone_without_a_usable_key_is_refused(key: bytes | None, reason: RejectReason) -> None:
    decoded = decode([record(None, key=key), record(label())])

    assert [(reject.record_index, reject.reason) for reject in decoded.rejects] == [(0, reason)]
    assert batch_of(decoded).record_index.tolist() == [1]


def test_empty_bytes_and_the_text_null_are_no_tombstones() -> None:
    decoded = decode([record(b"", key=b"a"), record(b"null", key=b"a")])

    assert [reject.reason for reject in decoded.rejects] == [RejectReason.EMPTY_VALUE, RejectReason.NOT_AN_OBJECT]
    assert len(batch_of(decoded).label) == 0


def test_control_records_are_neither_labels_nor_tombstones() -> None:
    value, headers = clock_record(T0, end=True)

    decoded = decode([record(value, headers=headers), record(None, key=b"a", headers=headers)])

    assert [(clock.record_index, clock.end) for clock in decoded.clocks] == [(0, True)]
    assert [reject.reason for reject in decoded.rejects] == [RejectReason.CONTROL_INVALID]
    assert len(batch_of(decoded).label) == 0


def test_a_label_may_name_its_model() -> None:
    values = [label(model="b"), label(model=None), label(), label(model="a"), label(model="b")]
    decoded = decode([*(record(value) for value in values), record(None, key=b"gone")], labels={"model": "model"})
    batch = batch_of(decoded)

    assert decoded.rejects == []
    assert batch.models == ["b", "a"]
    assert batch.model_index.tolist() == [0, EVERY_MODEL, EVERY_MODEL, 1, 0, EVERY_MODEL]


@pytest.mark.parametrize("name", [7, 1.0, True, "", "with space", ".dot", "x" * 65, ["b"], {"b": 1}])
def test_what_is_no_name_of_a_model_is_refused(name: Any) -> None:
    records = [record(label(model=name)), record(label(model="b"))]
    decoded = decode(records, labels={"model": "model"})

    assert [(reject.record_index, reject.reason) for reject in decoded.rejects] == [(0, RejectReason.MODEL_INVALID)]
    assert "for every model" in decoded.rejects[0].message
    assert batch_of(decoded).record_index.tolist() == [1]
    assert batch_of(decoded).model_index.tolist() == [0]


def test_the_model_is_refused_after_the_id_and_before_the_label() -> None:
    bad = {"model": 7, "label": "yes", "ts": "then"}
    decoded = decode([record({**bad, "event_id": None}), record({**bad, "event_id": "e"})], labels={"model": "model"})

    assert [reject.reason for reject in decoded.rejects] == [RejectReason.ID_INVALID, RejectReason.MODEL_INVALID]


def test_without_a_path_no_label_names_a_model() -> None:
    batch = batch_of(decode([record(label(model="b")), record(label(model=7))]))

    assert batch.models == []
    assert batch.model_index.tolist() == [EVERY_MODEL, EVERY_MODEL]
