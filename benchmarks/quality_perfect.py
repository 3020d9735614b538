"""What the service costs where there is nothing to calibrate: a score that is the probability of its label.

The flights with labels drawn anew from their scores: the traffic, the groups and the maturing stay as they are. Excess
log-loss is that of what is served over that of the score, in expectation: the mean of
p ln(p / q) + (1 - p) ln((1 - p) / (1 - q)), p the score and q what is served, so no label's luck is in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks import refits
from benchmarks.quality_figures import Figure, mean_of_blocks
from stream_calib.calibration.metrics import LOG_LOSS_CLIP
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.demo.flights import load_flights

GOAL = 0.001
_SEED = 5


def excess_on_perfect_score(days: int) -> Figure:
    """Of the service by the configuration of the flights, with an interval by days."""
    config = Config.model_validate(tomllib.loads(refits.CONFIG.read_text(encoding="utf-8")))
    rows = refits.Rows(load_flights(), config)
    drawn = np.random.default_rng(_SEED).uniform(size=len(rows.score)) < rows.score
    rows.label = np.where(rows.label >= 0, drawn, -1).astype(np.int8)
    _, served = refits.replay(config, rows, days)
    day = (rows.pane[: len(served)] - rows.pane[0]) // 24
    used = (rows.label[: len(served)] >= 0) & (day >= refits.WARM_UP_DAYS)
    return mean_of_blocks(divergence(rows.score[: len(served)][used], served[used]), day[used])


def divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) of Bernoulli(q) from Bernoulli(p), in nats, both clipped as log-loss is."""
    p, q = (np.clip(one, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP) for one in (p, q))
    return np.asarray(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
