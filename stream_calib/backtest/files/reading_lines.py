"""Rows of NDJSON lines: by the decoders of the live system, so all of their rules hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from stream_calib.backtest.files.reading_rows import LABEL_ROW, SCORE_ROW, Read, Signatures
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import sampled
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.label_models import EVERY_MODEL
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.transport.port import Record, TopicPartition
from stream_calib.windows.join_entry import CODE_OF_LABEL

_CODE = np.array([CODE_OF_LABEL[-1], CODE_OF_LABEL[0], CODE_OF_LABEL[1]], dtype=np.uint8)
_SOURCE = TopicPartition("files", 0)


class ScoreLines:
    """Reads record values. `odd` and `not_sampled` count since it was made."""

    def __init__(self, config: Config, key: ModelKey, signatures: Signatures) -> None:
        self._decoder, self._key, self._signatures = ScoreDecoder(config), key, signatures
        self._sample_rate = config.scores.sample_rate
        self.not_sampled = 0

    @property
    def odd(self) -> Counter[str]:
        found = self._decoder.oddities
        return Counter(
            score_clamped=found.clamped_scores,
            unit_replaced=found.units_replaced,
            attribute_dropped=sum(found.dropped_attributes.values()),
        )

    def read(self, values: Sequence[bytes]) -> Read:
        """One row a record: that of the model key, or of whatever else has a score in it."""
        decoded = self._decoder.decode(_records(values))
        batch = decoded.scores
        assert batch is not None
        own_place = batch.keys.index(self._key) if self._key in batch.keys else -1
        own = batch.key_index == own_place
        # Of several scores of a record the own one comes first; the row of a record is the first of them.
        order = np.lexsort((~own, batch.record_index))
        first = np.ones(len(order), dtype=bool)
        first[1:] = np.diff(batch.record_index[order]) > 0
        index = order[first]
        counted = sampled(batch.fingerprint[index], self._sample_rate)
        self.not_sampled += int(np.count_nonzero(own[index] & ~counted))
        index = index[counted]
        rows = np.zeros(len(index), dtype=SCORE_ROW)
        rows["time_ms"] = batch.event_time_ms[index]
        rows["fingerprint"] = batch.fingerprint[index]
        rows["score"] = batch.score[index]
        rows["signature"] = self._signatures.places(batch.signatures)[batch.signature_index[index]]
        rows["unit_bucket"] = batch.unit_bucket[index]
        rows["own"] = own[index]
        return Read(rows, decoded.rejects)


class LabelLines:
    """Reads record values."""

    def __init__(self, config: Config, key: ModelKey) -> None:
        self._decoder, self._key = LabelDecoder(config), key

    def read(self, values: Sequence[bytes]) -> Read:
        """One row a record."""
        decoded = self._decoder.decode(_records(values))
        batch = decoded.labels
        assert batch is not None
        rows = np.zeros(len(batch.label), dtype=LABEL_ROW)
        rows["time_ms"] = batch.event_time_ms
        rows["fingerprint"] = batch.fingerprint
        rows["code"] = _CODE[batch.label + 1]
        own = np.array([*(name == self._key.model for name in batch.models), True], dtype=bool)
        assert EVERY_MODEL == -1  # the last place
        rows["own"] = own[batch.model_index]
        return Read(rows, decoded.rejects)


def _records(values: Sequence[bytes]) -> list[Record]:
    return [Record(_SOURCE, i, None, value, (), 0) for i, value in enumerate(values)]
