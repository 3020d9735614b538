"""What policies over one history have in common, made once: cells, columns, and all that is fitted to the same panes.

All of it is a function of the cells and of part of the configuration only; a policy comes to the same bytes with it and
without.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.policies.encoded_parts import EncodedParts
from stream_calib.backtest.policies.run_columns import CellColumns, cell_columns
from stream_calib.backtest.policies.shared_fits_group import FitGroup, ForwardDays
from stream_calib.backtest.policies.shared_fits_panes import SharedPanes
from stream_calib.config import Config
from stream_calib.refit.row_weights import RowWeights
from stream_calib.refit.settings import hashed_content
from stream_calib.snapshot.canonical import canonical_json, sha256_hex

_GROUPS_KEPT = 2
"""Policies of the same fits come one after the other."""
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
_OF_PATHS = (
    ("refit", "max_age_ms"),
    ("refit", "level_cadence_ms"),
    ("refit", "triggers"),
    ("drift", "false_alarm_days"),
    ("refit", "gate_window_ms"),
    ("refit", "gate_margin"),
    ("refit", "max_auc_drop"),
    ("refit", "gate_min_rows"),
    ("refit", "min_new_labels"),
    ("refit", "cooldown_ms"),
    ("drift", "psi_threshold"),
)
"""The same settings, those first that part policies soonest: in what they fit, publish, and judge outcomes by."""
CHEAP_FROM = 1 + _OF_PATHS.index(("refit", "cooldown_ms"))
"""Policies that have the fit key and all before this place in the path key in common publish the same, as a rule."""

_NOT_OF_FORWARD: dict[str, tuple[str, ...]] = {"calibration": ("delta", "kappa", "level_prior")}
"""What more the forward evidence does not depend on, beside all of [drift]."""


def fit_key(config: Config) -> str:
    """Equal for configurations that fit the same candidate to the same panes. Whatever is not known to be of gate,
    triggers or cadence counts as part of the fit."""
    return sha256_hex(canonical_json(_of_fits(config)))


def path_key(config: Config) -> tuple[str, ...]:
    """Of configurations with one fit key: the more leading values two of these have in common, the longer they may be
    expected to publish the same at the same panes."""
    document = config.model_dump(mode="json")
    return tuple(canonical_json(document[section][name]).decode() for section, name in _OF_PATHS)


def _forward_key(config: Config) -> str:
    """Equal for configurations that compare the same, with the same losses."""
    document = _without(_of_fits(config), _NOT_OF_FORWARD)
    del document["drift"]
    document.pop("tolerance", None)
    return sha256_hex(canonical_json(document))


def _of_fits(config: Config) -> dict[str, Any]:
    document = _without(hashed_content(config), _NOT_OF_FITS)
    document.pop("decisions", None)
    document.pop("triggers", None)
    return document


def _without(document: dict[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    fewer = {
        section: {name: value for name, value in document[section].items() if name not in left_out}
        for section, left_out in names.items()
    }
    return document | fewer


class SharedFits:
    """Of one history. Not thread-safe."""

    def __init__(self, history: CellHistory) -> None:
        self.history = history
        self.panes = SharedPanes(history)
        self.parts = EncodedParts()
        self._columns: dict[RowWeights, CellColumns] = {}
        self._forwards: dict[str, ForwardDays] = {}
        self._groups: OrderedDict[str, FitGroup] = OrderedDict()

    def columns(self, config: Config) -> CellColumns:
        """As `cell_columns`."""
        weights = RowWeights.of(config)
        if weights not in self._columns:
            self._columns[weights] = cell_columns(self.history, config)
        return self._columns[weights]

    def group(self, config: Config) -> FitGroup:
        """What the configuration shares with those of the same `fit_key`."""
        key = fit_key(config)
        if key not in self._groups:
            self._groups[key] = FitGroup(self.panes, self._forward(config), RowWeights.of(config))
            while len(self._groups) > _GROUPS_KEPT:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        return self._groups[key]

    def _forward(self, config: Config) -> ForwardDays:
        key = _forward_key(config)
        if key not in self._forwards:
            self._forwards[key] = ForwardDays(self.panes, config)
        return self._forwards[key]
