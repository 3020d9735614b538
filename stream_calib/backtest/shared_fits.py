"""What policies over one history have in common, made once: cells, fits, evidence, detectors.

All of it is a function of the cells and of part of the configuration only; a policy comes to the same bytes with it and
without.
"""

from __future__ import annotations

from typing import Any

from stream_calib.backtest.history import CellHistory
from stream_calib.config import Config
from stream_calib.refit.settings import hashed_content
from stream_calib.snapshot.canonical import canonical_json, sha256_hex

_NOT_OF_FITS: dict[str, tuple[str, ...]] = {
    "refit": (
        "max_age_ms",
        "level_cadence_ms",
        "cooldown_ms",
        "min_new_labels",
        "gate_window_ms",
        "gate_margin",
        "gate_min_rows",
        "max_auc_drop",
        "triggers",
    ),
    "drift": ("psi_threshold", "false_alarm_days"),
}
"""Settings of gate, triggers and cadence: what is fitted to the same panes does not depend on them."""


def fit_key(config: Config) -> str:
    """Equal for configurations that fit the same candidate to the same panes. Whatever is not known to be of gate,
    triggers or cadence counts as part of the fit."""
    document: dict[str, Any] = hashed_content(config)
    document.pop("decisions", None)
    for section, names in _NOT_OF_FITS.items():
        document[section] = {name: value for name, value in document[section].items() if name not in names}
    return sha256_hex(canonical_json(document))


class SharedFits:
    """Of one history. Not thread-safe."""

    def __init__(self, history: CellHistory) -> None:
        self.history = history
