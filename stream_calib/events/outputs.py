"""What the users read on `calibrated`: one output for each accepted score, as strict JSON.

Numbers are written so that they read back to the same bits (shortest form that does). `enrich` splices into the
original bytes and so cannot change a number, an escape or the order of the user's fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey, Reject, RejectReason, ScoreBatch
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.transport.port import Outgoing, Record, TopicPartition

OUTPUT_FIELD = "stream_calib"
"""The one field of an output that is ours."""

STATUS_HEADER = "stream-calib-status"
"""Header of outputs whose status a reader cannot find in the value."""

TOPIC_HEADER = "stream-calib-source-topic"
PARTITION_HEADER = "stream-calib-source-partition"
OFFSET_HEADER = "stream-calib-source-offset"

Status = Literal["calibrated", "identity", "passthrough"]
Headers = tuple[tuple[str, bytes], ...]

_WHITESPACE = b" \t\r\n"
_encoder = msgspec.json.Encoder()


def source_headers(record: Record) -> Headers:
    """Headers that say where the record was read."""
    return (*_partition_headers(record.source), (OFFSET_HEADER, b"%d" % record.offset))


@lru_cache(maxsize=4_096)
def _partition_headers(source: TopicPartition) -> Headers:
    return (TOPIC_HEADER, source.topic.encode()), (PARTITION_HEADER, b"%d" % source.partition)


class OutputEncoder:
    """Encodes outputs of one model for the `calibrated` topic. The log chooses their partition from the key."""

    def __init__(self, config: Config) -> None:
        self._topic = config.topics.calibrated
        self._enrich = config.serving.output == "enrich"
        self._model = ModelKey.of(config.model.name, config.model.version).model
        self._json = JsonDecoder(config.records.max_record_bytes, config.records.max_depth)

    def encode(
        self, records: Sequence[Record], batch: ScoreBatch, calibrated: NDArray[np.float64], snapshot: str
    ) -> list[Outgoing]:
        """One output for each row of the batch, in its order.

        `calibrated` (n,) float64 in [0, 1] is what is served; `snapshot` is the version that made it, "" for none
        (status identity). Raises ValueError for NaN and values outside [0, 1]: no such output may be written.
        """
        if len(calibrated) != len(batch.score) or not np.all((calibrated >= 0) & (calibrated <= 1)):
            raise ValueError(f"{len(batch.score)} served values in [0, 1] are due; snapshot {snapshot!r} gave others")
        if not len(calibrated):
            return []
        field = self._field(b"%b", b"%b", snapshot, "calibrated" if snapshot else "identity")
        rows = [records[i] for i in batch.record_index.tolist()]
        numbers = (_numbers(batch.score), _numbers(calibrated))
        if self._enrich:
            fields = map(field.__mod__, zip(*numbers, strict=True))
            values = [_spliced(record.value or b"", mine) for record, mine in zip(rows, fields, strict=True)]
        else:
            ids = _encoder.encode_lines(batch.event_id).split(b"\n")[:-1]
            template = b'{"event_id":%b,' + field + b"}"
            values = [template % row for row in zip(ids, *numbers, strict=True)]
        return [
            Outgoing(self._topic, record.key, value, source_headers(record))
            for record, value in zip(rows, values, strict=True)
        ]

    def passthrough(self, records: Sequence[Record], rejects: Sequence[Reject]) -> list[Outgoing]:
        """Outputs for rejected scores where ``on_reject = "passthrough"``: the original, marked, with calibrated null.

        Where the original is a JSON object that has no field of our name it gets the field, whatever the output form.
        Where it is not, its bytes go out unchanged. Both carry the header STATUS_HEADER: passthrough. Bad control
        records are left out: they are no scores.
        """
        field = self._field(b"null", b"null", "", "passthrough")
        outputs = []
        for reject in rejects:
            if reject.reason is RejectReason.CONTROL_INVALID:
                continue
            record = records[reject.record_index]
            value = record.value or b""
            content = self._json.decode(value)
            if not isinstance(content, BadJson) and OUTPUT_FIELD not in content:
                value = _spliced(value, field)
            headers = (*source_headers(record), (STATUS_HEADER, b"passthrough"))
            outputs.append(Outgoing(self._topic, record.key, value, headers))
        return outputs

    def _field(self, raw: bytes, calibrated: bytes, snapshot: str, status: Status) -> bytes:
        """Our field as JSON, a template where `raw` and `calibrated` are ``%b``."""
        version = _encoder.encode(snapshot or None).replace(b"%", b"%%")
        return b'"%b":{"%b":{"raw":%b,"calibrated":%b,"snapshot":%b,"status":"%b"}}' % (
            OUTPUT_FIELD.encode(),
            self._model.encode(),
            raw,
            calibrated,
            version,
            status.encode(),
        )


def _numbers(values: NDArray[np.float64]) -> list[bytes]:
    return _encoder.encode(values.tolist())[1:-1].split(b",")


def _spliced(value: bytes, field: bytes) -> bytes:
    """The JSON object with one more field at its end."""
    head = value.rstrip(_WHITESPACE)[:-1].rstrip(_WHITESPACE)
    return b"%b%b%b}" % (head, b"" if head.endswith(b"{") else b",", field)
