"""Readers of records: scores, labels, control records, blocks."""

from __future__ import annotations

import json
import struct
import zlib

from stream_calib.errors import BlockFormatError
from stream_calib.events.blocks import pack, unpack
from stream_calib.events.contracts import ClockRecord, Decoded, Reject, RejectReason
from stream_calib.events.control import clock_record, read_clock
from stream_calib.events.dead_letters import MESSAGE_HEADER, REASON_HEADER
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import OffsetRange, Outgoing, Record
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.read_inputs import ReadBlocks, ReadLabels
from tests.cases.served import no_snapshot, polls, served_by
from tests.fuzz.target import Target, told
from tests.unit.events.events_for_tests import T0, config, label, record, score, strict_json
from workers.calibrate_transform import Transform

_SCORES = {"attributes": {"a": "a", "b": "b.c"}, "unit": "u", "keep_rate": "k"}
_TRANSFORM = Transform(config(scores=_SCORES, serving={"output": "enrich"}, records={"on_reject": "passthrough"}))
_LABELS = LabelDecoder(config(labels={"model": "model"}))
_SETTINGS = PaneSettings.of(config())
_REASONS = {reason.value.encode() for reason in RejectReason}


def _once(decoded: Decoded) -> None:
    """The record is in exactly one place, with a reason where it was refused."""
    batch = decoded.scores if decoded.scores is not None else decoded.labels
    assert batch is not None
    places = [*set(batch.record_index.tolist()), *(r.record_index for r in decoded.rejects)]
    places += [*(c.record_index for c in decoded.clocks), *decoded.tombstones]
    assert places == [0], places
    for reject in decoded.rejects:
        assert reject.reason in RejectReason
        assert reject.message


def _dead_letter(letter: Outgoing, value: bytes) -> None:
    headers = dict(letter.headers)
    assert headers[REASON_HEADER] in _REASONS
    assert headers[MESSAGE_HEADER].isascii()
    assert len(headers[MESSAGE_HEADER]) < 1_000
    assert value.startswith(letter.value or b"")


def scores(value: bytes) -> None:
    records = [record(value)]
    decoded, batch = _TRANSFORM.decode(records)
    _once(decoded)
    for output in _TRANSFORM.encode(records, decoded, _TRANSFORM.calibrate(batch, no_snapshot)):
        if output.topic == "dead-letters":
            _dead_letter(output, value)
        elif output.topic == "blocks":
            unpack(output.value or b"")
        elif not decoded.rejects:
            member = strict_json(output.value or b"")["stream_calib"]["m"]
            assert 0.0 <= member["raw"] <= 1.0
            assert 0.0 <= member["calibrated"] <= 1.0


def labels(value: bytes) -> None:
    records = [record(value)]
    decoded = _LABELS.decode(records)
    _once(decoded)
    ReadLabels(records, OffsetRange(0, 1), _LABELS, _SETTINGS)


def strict_values(value: bytes) -> None:
    """The decoder agrees with the standard library's about everything but what it refuses by its own rules."""
    found = JsonDecoder(10_000, 8).decode(value)
    if isinstance(found, BadJson):
        assert found.reason in RejectReason
        return
    assert found == json.loads(value)
    assert found == strict_json(value)


def control(value: bytes) -> None:
    _, headers = clock_record(T0)
    found = read_clock(record(value, headers=headers), 0)
    assert isinstance(found, Reject | ClockRecord)
    if isinstance(found, Reject):
        assert found.reason is RejectReason.CONTROL_INVALID
        assert found.message


def blocks(value: bytes) -> None:
    """As it is, and with the checksum made right, so that what lies behind it is reached."""
    for block in (value, _with_checksum(value)):
        try:
            rows = unpack(block)
        except BlockFormatError as error:
            told(error)
            continue
        assert pack(rows) == block
        _monitor_reads(record(block))
    _monitor_reads(record(value))


def _with_checksum(block: bytes) -> bytes:
    return block[:8] + struct.pack("<I", zlib.crc32(block[12:])) + block[12:]


def _monitor_reads(one: Record) -> None:
    read = ReadBlocks([one], OffsetRange(0, 1), 5_000)
    assert len(read.keys) + len(read.rejects) == 1
    for key in read.keys:
        read.of(key)
        read.signatures(key)


def _encoded(*values: object) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


_SCORE_SEEDS = _encoded(
    score(),
    score(a="x", b={"c": 3}, u=7, k=0.5),
    score(event_id=7, score=1, a=None, b={"c": [1]}),
    score(event_id="é\x00", score=1e-300, a=True),
    score(score="0.5", stream_calib={}),
)
_BLOCK_SEEDS = [
    block.value or b""
    for block in polls(served_by(scores={"attributes": {"a": "a"}}), [[record(score(a=a)) for a in ("x", "yé", None)]])[
        "blocks"
    ]
] + [
    block.value or b""
    for block in polls(served_by(), [[record(score(event_id=str(i), score=i / 40)) for i in range(40)]])["blocks"]
]

TARGETS = [
    Target("scores", scores, _SCORE_SEEDS),
    Target("labels", labels, _encoded(label(), label(model="m"), label(label=None, event_id=7), label(label="0"))),
    Target("strict_values", strict_values, [*_SCORE_SEEDS, b'{"a":[{"a":1,"b":"\\u00e9\\\\"}],"c":1e5}']),
    Target("control", control, [clock_record(T0)[0], clock_record(T0, end=True)[0]]),
    Target("blocks", blocks, _BLOCK_SEEDS),
]
