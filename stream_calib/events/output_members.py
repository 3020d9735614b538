"""What an output says of each model: the members of our field, as strict JSON.

Numbers are written so that they read back to the same bits (shortest form that does).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.config_models import ScoreModel
from stream_calib.events.contracts import RefusedScore, ScoreBatch
from stream_calib.events.json_decoding import JsonObject
from stream_calib.events.model_keys import text_at

Status = Literal["calibrated", "previous_version", "identity", "passthrough", "rejected"]

_encoder = msgspec.json.Encoder()


class ServedAs(NamedTuple):
    """How the scores of one model key were served in a batch."""

    snapshot: str
    """Version of the snapshot, "" for none."""
    status: Status


def output_models(config: Config) -> tuple[ScoreModel, ...]:
    """The models that an output may have a member of: those of the records, then the fused one."""
    fused = config.fused()
    if fused is None:
        return config.score_models()
    name, version = fused.key
    return (*config.score_models(), ScoreModel(name, None, version, None, "", "probability"))


class MemberEncoder:
    """Encodes members as ``"churn":{"raw":0.8,...}``; those whose version is in the records begin with it."""

    def __init__(self, models: Sequence[ScoreModel]) -> None:
        self._models = models
        self._by_name = {model.name: model for model in models}

    def rows(self, batch: ScoreBatch, calibrated: NDArray[np.float64], served: Sequence[ServedAs]) -> Sequence[bytes]:
        """One member for each row (n,) of the batch; `served` says how, for each of its keys."""
        raw, numbers = _numbers(batch.score), _numbers(calibrated)
        members = np.empty(len(raw), dtype=object)
        for key, how, rows in zip(batch.keys, served, batch.rows_by_key(), strict=True):
            model = self._by_name.get(key.model, self._models[0])
            before, after = _around(model, key.model, key.version, how)
            if len(batch.keys) == 1:
                return _joined(before, raw, numbers, after)
            places = rows.tolist()
            members[rows] = _joined(before, [raw[i] for i in places], [numbers[i] for i in places], after)
        return list(members)

    def refused(self, refused: RefusedScore) -> bytes:
        """The member of a model whose score is refused, in a record that has others."""
        model = self._by_name[refused.model]
        before, after = _around(model, refused.model, refused.version, ServedAs("", "rejected"))
        return b'%bnull,"calibrated":null%b,"reason":"%b"}' % (before, after[:-1], refused.reject.reason.value.encode())

    def passthrough(self, content: JsonObject) -> bytes:
        """The members of all models, in a rejected record that is passed on; of those that it names as it should."""
        members = []
        for model in self._models:
            name = model.name or text_at(model.name_path, content)
            if name is not None:
                version = model.version or text_at(model.version_path, content)
                before, after = _around(model, name, version, ServedAs("", "passthrough"))
                members.append(b'%bnull,"calibrated":null%b' % (before, after))
        return b",".join(members)


def _around(model: ScoreModel, name: str, version: str | None, how: ServedAs) -> tuple[bytes, bytes]:
    """What stands before the raw score of a member, and after its calibrated probability."""
    named = b'"version":%b,' % _encoder.encode(version) if model.version_path else b""
    before = b'"%b":{%b"raw":' % (name.encode(), named)
    return before, b',"snapshot":%b,"status":"%b"}' % (_encoder.encode(how.snapshot or None), how.status.encode())


def _joined(before: bytes, raw: Iterable[bytes], calibrated: Iterable[bytes], after: bytes) -> list[bytes]:
    columns = (repeat(before), raw, repeat(b',"calibrated":'), calibrated, repeat(after))
    return list(map(b"".join, zip(*columns, strict=False)))


def _numbers(values: NDArray[np.float64]) -> list[bytes]:
    return _encoder.encode(values.tolist())[1:-1].split(b",")
