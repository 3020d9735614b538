"""What an event is once it has been decoded: columns of a batch, and the reasons for which a record is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MISSING_VALUE = "__missing__"
"""The one attribute value for a missing key, null and the empty string."""

CONTROL_HEADER = "stream-calib-kind"
"""Header of control records; its value is ``clock``."""

MIN_EVENT_TIME_MS = 946_684_800_000
"""2000-01-01T00:00:00Z in epoch milliseconds; earlier times are rejected."""

MAX_EVENT_TIME_MS = 4_102_444_800_000
"""2100-01-01T00:00:00Z in epoch milliseconds; this and later times are rejected."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ModelKey(NamedTuple):
    """What snapshots, cells and everything else belong to."""

    model: str
    version: str

    def __str__(self) -> str:
        return f"{self.model}/{self.version}"

    @classmethod
    def of(cls, model: str, version: str) -> ModelKey:
        """The checked key. Raises ValueError where a part is not 1-64 characters of ``A-Za-z0-9._-``."""
        for part in (model, version):
            if not _NAME.fullmatch(part):
                raise ValueError(f"model name or version {part!r}: use 1-64 characters of A-Z a-z 0-9 . _ -")
        return cls(model, version)


class RejectReason(str, Enum):
    """Reason codes of dead letters. The text is the code as written to the header and the metric label."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    EMPTY_VALUE = "empty_value"
    DUPLICATE_KEY = "duplicate_key"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    ID_MISSING = "id_missing"
    ID_INVALID = "id_invalid"
    SCORE_MISSING = "score_missing"
    SCORE_INVALID = "score_invalid"
    SCORE_OUT_OF_RANGE = "score_out_of_range"
    TIME_MISSING = "time_missing"
    TIME_INVALID = "time_invalid"
    TIME_OUT_OF_RANGE = "time_out_of_range"
    LABEL_MISSING = "label_missing"
    LABEL_INVALID = "label_invalid"
    MODEL_MISSING = "model_missing"
    MODEL_INVALID = "model_invalid"
    TOO_MANY_MODELS = "too_many_models"
    KEEP_RATE_INVALID = "keep_rate_invalid"
    OUTPUT_FIELD_TAKEN = "output_field_taken"
    BLOCK_DAMAGED = "block_damaged"
    CONTROL_INVALID = "control_invalid"


class Reject(NamedTuple):
    """One refused record of a batch."""

    record_index: int
    """Index into the list of records that was decoded."""
    reason: RejectReason
    message: str


class ClockRecord(NamedTuple):
    """A control record: moves its partition's clock; ``end`` closes the partition."""

    record_index: int
    clock_ms: int
    end: bool


class RefusedScore(NamedTuple):
    """One model's score that is refused, in a record that has a good score of another model."""

    record_index: int
    """Index into the list of records that was decoded."""
    model: str
    version: str | None
    """None where it is what cannot be read."""
    reject: Reject


@dataclass(frozen=True, slots=True)
class ScoreBatch:
    """n accepted scores as columns, in the order of their records. A record may hold scores of several models: their
    rows follow each other, in the order in which the models are configured."""

    record_index: NDArray[np.intp]
    """(n,) index into the list of records that was decoded."""
    keys: list[ModelKey]
    """The distinct model keys of the batch."""
    key_index: NDArray[np.intp]
    """(n,) index into `keys`."""
    event_id: list[str]
    """n ids."""
    fingerprint: NDArray[np.uint64]
    """(n,) see `identity.fingerprints`."""
    event_time_ms: NDArray[np.int64]
    """(n,) epoch milliseconds."""
    score: NDArray[np.float64]
    """(n,) in [0, 1], never -0.0."""
    signature_index: NDArray[np.intp]
    """(n,) index into `signatures`."""
    signatures: list[tuple[str, ...]]
    """The distinct attribute values of the batch, each in the order of the configured attributes; with
    `scores.keep_rate` the text of the keep rate follows them."""
    unit_bucket: NDArray[np.uint8]
    """(n,) 0 .. UNIT_BUCKETS - 1."""
    refused: list[RefusedScore]
    """Scores of these records that are left out, in the order of the records."""

    def rows_by_key(self) -> list[NDArray[np.intp]]:
        """For each of `keys` the rows (k,) that are its own, in order."""
        if len(self.keys) == 1:
            return [np.arange(len(self.score))]
        return [np.flatnonzero(self.key_index == i) for i in range(len(self.keys))]


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """n accepted label events as columns in the order of their records."""

    record_index: NDArray[np.intp]
    """(n,) index into the list of records that was decoded."""
    fingerprint: NDArray[np.uint64]
    """(n,) see `identity.fingerprints`."""
    event_time_ms: NDArray[np.int64]
    """(n,) epoch milliseconds, after `label_time_granularity`."""
    label: NDArray[np.int8]
    """(n,) 0 or 1; WITHDRAWN for null."""
    model_index: NDArray[np.intp]
    """(n,) index into `models`; -1 where the label is for every model."""
    models: list[str]
    """The distinct names of models in the batch."""


WITHDRAWN = -1
"""Label value of a null label (or a label tombstone)."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Everything that a decoder says of one list of records: each is in exactly one place."""

    scores: ScoreBatch | None
    """Set by the score decoder."""
    labels: LabelBatch | None
    """Set by the label decoder. Tombstones are here too, as withdrawals whose time is `TOMBSTONE_TIME`."""
    rejects: list[Reject]
    clocks: list[ClockRecord]
    tombstones: list[int]
    """Record indexes of score tombstones (counted and skipped); empty for labels."""


TOMBSTONE_TIME_MS = -1
"""Event time of a label tombstone: the reader puts its partition's clock there."""
