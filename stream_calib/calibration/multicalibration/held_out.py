"""Losses on rows that nothing was fitted to, before and after calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.labelled_rows import LabelledRows
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.metrics.brier import brier
from stream_calib.calibration.metrics.log_loss import log_loss


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Means over the weight of `rows` labelled rows: log-loss in nats, Brier score in squared probability."""

    rows: int
    raw_log_loss: float
    log_loss: float
    raw_brier: float
    brier: float


def hold_out(rows: LabelledRows, chosen: NDArray[np.bool_], served: ServedMap) -> HeldOut | None:
    """Losses of the chosen rows by their scores and by the map; None where there are none."""
    used = chosen & (rows.weight > 0)
    if not used.any():
        return None
    score, label, weight = rows.score[used], rows.label[used], rows.weight[used]
    probability = served.apply(score, rows.signature[used], rows.signatures)
    return HeldOut(
        rows=int(used.sum()),
        raw_log_loss=log_loss(label, score, weight),
        log_loss=log_loss(label, probability, weight),
        raw_brier=brier(label, score, weight),
        brier=brier(label, probability, weight),
    )
