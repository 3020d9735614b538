"""What a role says of the records that it rejects."""

from __future__ import annotations

import pytest

from stream_calib.events.contracts import Reject, RejectReason
from stream_calib.transport.port import Record, TopicPartition
from workers.rejects import RejectCounts


def test_each_reason_is_logged_once_with_a_place_and_without_values(caplog: pytest.LogCaptureFixture) -> None:
    records = [Record(TopicPartition("labels", 2), i, None, b'{"iban": "DE02"}', (), 0) for i in range(70, 73)]
    counts = RejectCounts()
    for _ in range(2):
        rejects = [
            Reject(1, RejectReason.TIME_OUT_OF_RANGE, "DE02"),
            Reject(2, RejectReason.TIME_OUT_OF_RANGE, "DE02"),
            Reject(0, RejectReason.ID_MISSING, "DE02"),
        ]
        counts.add(records, rejects)
    assert counts.by_reason == {"time_out_of_range": 4, "id_missing": 2}
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(" (")[0] for text in said] == [
        "labels-2, offset 71, is rejected: time_out_of_range",
        "labels-2, offset 70, is rejected: id_missing",
    ]
    assert "DE02" not in caplog.text
