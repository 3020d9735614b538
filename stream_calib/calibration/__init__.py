"""Pure numerics of calibration. Knows nothing of logs, Redis or configuration files.

| to | take | from |
|---|---|---|
| calibrate scores, no groups | `GIRB`, `GIRBCV`; to compare: `Identity`, `Platt`, `BetaCalibration`, `Isotonic`, \
`CenteredIsotonic`; one of them by name: `LADDER`, `make_rung` | `girb`, `baselines`, `ladder` |
| calibrate within groups, all in one | `Multicalibrator` | `multicalibrator` |
| say what the groups are | `families_up_to`, `family_rule`, `predicate_rule`, `make_family` | `groups` |
| fit to counts by signature and grid bin | `LabelledCells` | `labelled_cells` |
| fit offsets and slopes of groups, and see them | `fit_joint`, `group_effects`, `effects_text`; `fit_level` | `joint` |
| choose base map and families | `Configuration`, `RUNGS`, `choose_by_folds`, `cells_by_fold` | `configuration`, \
`five_folds` |
| patch, confirm, certify | `multicalibrate_cells`, `AuditTarget`, `log_odds_intervals` | `multicalibration`, \
`intervals` |
| run the theorems on exact numbers | `make_population`, `multicalibrate_population`, `multicalibrate_with_oracle`, \
`guarantee` | `multicalibration` |
| serve, store and explain a map | `MapParts` (of `BaseMap`, `FamilyShift`, `PatchRound`), `ServedMap`, `explain`; \
`TimeAttributes` | `maps`, `time_attributes` |
| make one score of several models' | `fit_fusion`, `fuse`, `FusionWeights` | `fusion` |
| measure | `metrics.log_loss`, `metrics.ece`, `metrics.group_table`, ... | `metrics` |

What only serves is imported with the package. What fits is imported when first asked for: scikit-learn alone takes most
of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.explanation import Explanation, explain
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.time_attributes import TimeAttributes

if TYPE_CHECKING:
    from stream_calib.calibration.baselines import BetaCalibration, CenteredIsotonic, Identity, Isotonic, Platt
    from stream_calib.calibration.configuration import RUNGS, Configuration
    from stream_calib.calibration.five_folds import Chosen, cells_by_fold, choose_by_folds
    from stream_calib.calibration.fusion import FusionWeights, fit_fusion, fuse
    from stream_calib.calibration.girb import GIRB, GIRBCV
    from stream_calib.calibration.groups import (
        Family,
        FamilyRule,
        families_up_to,
        family_rule,
        make_family,
        predicate_rule,
    )
    from stream_calib.calibration.intervals import log_odds_intervals
    from stream_calib.calibration.joint.effects import GroupEffect, effects_text, group_effects
    from stream_calib.calibration.joint.fit import JointFit, fit_joint
    from stream_calib.calibration.joint.level import fit_level
    from stream_calib.calibration.labelled_cells import LabelledCells
    from stream_calib.calibration.ladder import LADDER, make_rung
    from stream_calib.calibration.multicalibration.certificate import Certificate
    from stream_calib.calibration.multicalibration.exact_population import Population, make_population
    from stream_calib.calibration.multicalibration.finite import MulticalibrationResult, multicalibrate_cells
    from stream_calib.calibration.multicalibration.oracle import Guarantee, guarantee, multicalibrate_with_oracle
    from stream_calib.calibration.multicalibration.population import multicalibrate_population
    from stream_calib.calibration.multicalibration.target import AuditTarget
    from stream_calib.calibration.multicalibrator import Multicalibrator
    from stream_calib.calibration.platt import PlattFit, fit_platt

__all__ = [
    "GIRB",
    "GIRBCV",
    "LADDER",
    "RUNGS",
    "AuditTarget",
    "BaseMap",
    "BetaCalibration",
    "CenteredIsotonic",
    "Certificate",
    "Chosen",
    "Configuration",
    "Explanation",
    "Family",
    "FamilyRule",
    "FamilyShift",
    "FusionWeights",
    "GroupEffect",
    "Guarantee",
    "Identity",
    "Isotonic",
    "JointFit",
    "LabelledCells",
    "MapParts",
    "MulticalibrationResult",
    "Multicalibrator",
    "PatchRound",
    "Platt",
    "PlattFit",
    "Population",
    "ServedMap",
    "TimeAttributes",
    "cells_by_fold",
    "choose_by_folds",
    "effects_text",
    "explain",
    "families_up_to",
    "family_rule",
    "fit_fusion",
    "fit_joint",
    "fit_level",
    "fit_platt",
    "fuse",
    "group_effects",
    "guarantee",
    "log_odds_intervals",
    "make_family",
    "make_population",
    "make_rung",
    "multicalibrate_cells",
    "multicalibrate_population",
    "multicalibrate_with_oracle",
    "predicate_rule",
]

_NAMES_OF = {
    "baselines": ("BetaCalibration", "CenteredIsotonic", "Identity", "Isotonic", "Platt"),
    "configuration": ("RUNGS", "Configuration"),
    "five_folds": ("Chosen", "cells_by_fold", "choose_by_folds"),
    "fusion": ("FusionWeights", "fit_fusion", "fuse"),
    "girb": ("GIRB", "GIRBCV"),
    "groups": ("Family", "FamilyRule", "families_up_to", "family_rule", "make_family", "predicate_rule"),
    "intervals": ("log_odds_intervals",),
    "joint.effects": ("GroupEffect", "effects_text", "group_effects"),
    "joint.fit": ("JointFit", "fit_joint"),
    "joint.level": ("fit_level",),
    "labelled_cells": ("LabelledCells",),
    "ladder": ("LADDER", "make_rung"),
    "multicalibration.certificate": ("Certificate",),
    "multicalibration.exact_population": ("Population", "make_population"),
    "multicalibration.finite": ("MulticalibrationResult", "multicalibrate_cells"),
    "multicalibration.oracle": ("Guarantee", "guarantee", "multicalibrate_with_oracle"),
    "multicalibration.population": ("multicalibrate_population",),
    "multicalibration.target": ("AuditTarget",),
    "multicalibrator": ("Multicalibrator",),
    "platt": ("PlattFit", "fit_platt"),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
