"""What the users read on `calibrated`: one output for each record with an accepted score, as strict JSON.

`enrich` splices into the original bytes and so cannot change a number, an escape or the order of the user's fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, repeat
from operator import attrgetter

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.events.contracts import Reject, RejectReason, ScoreBatch
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.events.output_members import MemberEncoder, ServedAs, output_models
from stream_calib.transport.port import Outgoing, Record, TopicPartition

OUTPUT_FIELD = "stream_calib"
"""The one field of an output that is ours."""

STATUS_HEADER = "stream-calib-status"
"""Header of outputs whose status a reader cannot find in the value."""

TOPIC_HEADER = "stream-calib-source-topic"
PARTITION_HEADER = "stream-calib-source-partition"
OFFSET_HEADER = "stream-calib-source-offset"

Headers = tuple[tuple[str, bytes], ...]

_FIELD = b'"stream_calib":{'
_WHITESPACE = b" \t\r\n"
_KEY, _VALUE, _SOURCE, _OFFSET, _PARTITION = map(attrgetter, ("key", "value", "source", "offset", "partition"))
_encoder = msgspec.json.Encoder()


def source_headers(record: Record) -> Headers:
    """Headers that say where the record was read."""
    return (*_partition_headers(record.source), (OFFSET_HEADER, b"%d" % record.offset))


@lru_cache(maxsize=4_096)
def _partition_headers(source: TopicPartition) -> Headers:
    return (TOPIC_HEADER, source.topic.encode()), (PARTITION_HEADER, b"%d" % source.partition)


class OutputEncoder:
    """Encodes outputs for the `calibrated` topic. Each goes to the partition number of its score: whatever way the
    producers of the scores chose it, what was together stays together and in order."""

    def __init__(self, config: Config) -> None:
        self._topic = config.topics.calibrated
        self._enrich = config.serving.output == "enrich"
        self._several = bool(config.models)
        self._members = MemberEncoder(output_models(config))
        self._json = JsonDecoder(config.records.max_record_bytes, config.records.max_depth)
        self._max_passthrough_bytes = config.records.max_dead_letter_bytes

    def encode(
        self,
        records: Sequence[Record],
        batch: ScoreBatch,
        calibrated: NDArray[np.float64],
        served: Sequence[ServedAs],
    ) -> list[Outgoing]:
        """One output for each record with rows in the batch, in their order.

        `calibrated` (n,) float64 in [0, 1] is what is served; `served` says how, for each of the batch's keys. Raises
        ValueError for NaN and values outside [0, 1]: no such output may be written.
        """
        if len(calibrated) != len(batch.score) or not np.all((calibrated >= 0) & (calibrated <= 1)):
            raise ValueError(f"{len(batch.score)} served values in [0, 1] are due; {list(served)} gave others")
        if not len(calibrated):
            return []
        members, indexes, ids = (
            self._members.rows(batch, calibrated, served),
            batch.record_index.tolist(),
            batch.event_id,
        )
        if self._several:
            members, indexes, ids = self._by_record(batch, members)
        rows = records if len(indexes) == len(records) else [records[i] for i in indexes]
        if self._enrich:
            values = list(map(_spliced, map(_VALUE, rows), members))
        else:
            encoded_ids = _encoder.encode_lines(ids).split(b"\n")
            parts = (repeat(b'{"event_id":'), encoded_ids, repeat(b"," + _FIELD), members, repeat(b"}}"))
            values = list(map(b"".join, zip(*parts, strict=False)))
        partitions = map(_PARTITION, map(_SOURCE, rows))
        outgoing = zip(repeat(self._topic), map(_KEY, rows), values, _headers(rows), partitions, strict=False)
        return list(map(Outgoing._make, outgoing))

    def passthrough(self, records: Sequence[Record], rejects: Sequence[Reject]) -> list[Outgoing]:
        """Outputs for rejected scores where ``on_reject = "passthrough"``: the original, marked, with calibrated null.

        Where the original is a JSON object that has no field of our name it gets the field, whatever the output form.
        Where it is not, its bytes go out unchanged. Both carry the header STATUS_HEADER: passthrough. Bad control
        records are left out: they are no scores; and so are values too large for a dead letter: no topic may take them.
        """
        outputs = []
        for reject in rejects:
            record = records[reject.record_index]
            value = record.value or b""
            if reject.reason is RejectReason.CONTROL_INVALID or len(value) > self._max_passthrough_bytes:
                continue
            content = self._json.decode(value)
            if not isinstance(content, BadJson) and OUTPUT_FIELD not in content:
                value = _spliced(value, self._members.passthrough(content))
            headers = (*source_headers(record), (STATUS_HEADER, b"passthrough"))
            outputs.append(Outgoing(self._topic, record.key, value, headers, record.source.partition))
        return outputs

    def _by_record(self, batch: ScoreBatch, members: Sequence[bytes]) -> tuple[list[bytes], list[int], list[str]]:
        """For each record with rows in the batch: its members with commas between, its index, its event id."""
        by_record: dict[int, list[bytes]] = {}
        for index, member in zip(batch.record_index.tolist(), members, strict=True):
            by_record.setdefault(index, []).append(member)
        for refused in batch.refused:
            by_record[refused.record_index].append(self._members.refused(refused))
        ids = dict(zip(batch.record_index.tolist(), batch.event_id, strict=True))
        return list(map(b",".join, by_record.values())), list(by_record), list(ids.values())


def _headers(records: Sequence[Record]) -> list[Headers]:
    """`source_headers` of each record. Records of one partition mostly follow each other."""
    offsets = zip(repeat(OFFSET_HEADER), _encoder.encode(list(map(_OFFSET, records)))[1:-1].split(b","), strict=False)
    headers: list[Headers] = []
    for source, run in groupby(map(_SOURCE, records)):
        topic, partition = _partition_headers(source)
        headers += zip(repeat(topic, len(list(run))), repeat(partition), offsets, strict=False)
    return headers


def _spliced(value: bytes, members: bytes) -> bytes:
    """The JSON object with our field at its end."""
    head = value.rstrip(_WHITESPACE)[:-1].rstrip(_WHITESPACE)
    return b"%b%b%b%b}}" % (head, b"" if head.endswith(b"{") else b",", _FIELD, members)
