"""What both decoders do first: control records, tombstones and bad JSON are set apart from the objects to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from stream_calib.events.contracts import ClockRecord, Reject
from stream_calib.events.control import is_control, read_clock
from stream_calib.events.json_decoding import BadJson, JsonDecoder, JsonObject
from stream_calib.transport.port import Record

_VALUE = attrgetter("value")
_HEADERS = attrgetter("headers")


@dataclass(slots=True)
class Intake:
    """The records of one batch, sorted by what they are. Indexes are into the list of records."""

    record_index: list[int] = field(default_factory=list)
    """Records whose value is a JSON object, in order."""
    objects: list[JsonObject] = field(default_factory=list)
    """Their objects."""
    tombstones: list[int] = field(default_factory=list)
    """Records without a value."""
    clocks: list[ClockRecord] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    """Bad JSON and bad control records."""


def take_in(records: Sequence[Record], decoder: JsonDecoder) -> Intake:
    """Sorts and decodes the records; each is in exactly one place of the result."""
    intake = Intake()
    values: list[bytes] = list(map(_VALUE, records))
    if not any(map(_HEADERS, records)) and None not in values:
        intake.record_index = list(range(len(records)))
    else:
        values = _events(records, intake)
    decoded = decoder.decode_all(values)
    if set(map(type, decoded)) <= {dict}:
        intake.objects = decoded  # type: ignore[assignment]  # the line above shows that no BadJson is among them
        return intake
    positions, intake.record_index = intake.record_index, []
    for i, outcome in zip(positions, decoded, strict=True):
        if isinstance(outcome, BadJson):
            intake.rejects.append(Reject(i, outcome.reason, outcome.message))
        else:
            intake.record_index.append(i)
            intake.objects.append(outcome)
    return intake


def _events(records: Sequence[Record], intake: Intake) -> list[bytes]:
    """The values to decode, with their place in `record_index`; all other records are sorted into the intake."""
    values: list[bytes] = []
    for i, record in enumerate(records):
        if record.headers and is_control(record):
            clock = read_clock(record, i)
            if isinstance(clock, Reject):
                intake.rejects.append(clock)
            else:
                intake.clocks.append(clock)
        elif record.value is None:
            intake.tombstones.append(i)
        else:
            intake.record_index.append(i)
            values.append(record.value)
    return values
