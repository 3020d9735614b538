"""Forward evidence: what each configuration would have lost on the day after the data that it was fitted to.

At the end of each UTC day of event time every configuration is fitted to the decayed counts of the fit buckets; when
the next day is complete, its log-loss on that day's labelled cells of the fit buckets is noted (prequential: Dawid,
"Statistical theory: the prequential approach", 1984). The record is a pure function of the panes and the configuration,
because no fit depends on that of the day before; so a worker that starts anew derives the same one by fitting the last
days only. The level is left out, because it is common to all configurations and fitted after all else; patches are
those that an audit of the fit buckets proposes, not confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.configuration import Rung
from stream_calib.calibration.groups import Family, FamilyRule, make_family
from stream_calib.calibration.intervals import interval_of
from stream_calib.calibration.joint.fit import JointFit
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import PatchRound
from stream_calib.calibration.metrics import log_loss_sums
from stream_calib.calibration.multicalibration.audit import EVERYTHING, audit
from stream_calib.calibration.multicalibration.finite import MIN_GROUP_UNITS
from stream_calib.calibration.multicalibration.patches import propose_round
from stream_calib.calibration.rounding import round_significant
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.errors import FitError
from stream_calib.refit.certificate import audit_target
from stream_calib.refit.configurations import Variant, variants
from stream_calib.refit.configured_fit import ConfiguredFit, fit_base, fit_configurations
from stream_calib.refit.decayed_counts import FitCells
from stream_calib.refit.derived import derived_names, time_attributes
from stream_calib.refit.labelled import PaneCells, believed, fit_data, trailing_cells
from stream_calib.refit.min_coverage import uncovered_groups
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.canonical import canonical_json, sha256_hex

MOST_DAYS = 28
"""Days of the record: older ones say little of what comes."""
LEAST_DAYS = 7
"""Before so many days have rows, nothing is decided by them."""
_TOLERANCE = 1e-4
"""Of the parameters together; it moves the loss of a day by less than 1e-7 a row, because the fit is at its minimum."""


@dataclass(frozen=True, slots=True)
class ForwardDay:
    """One day that has labelled rows in the fit buckets."""

    day: int
    """Days since 1970-01-01 UTC."""
    rows: int
    """By weight, to the next whole number."""
    losses: tuple[float | None, ...]
    """Log-loss summed over the rows, of each variant in the order of `variants`; None: it could not be fitted."""


@dataclass(frozen=True, slots=True)
class ForwardRecord:
    """The days that decide, oldest first, and what was compared on them."""

    variants: tuple[Variant, ...]
    days: tuple[ForwardDay, ...] = ()

    @property
    def sha256(self) -> str:
        """Hash of the record: names of the variants, days, rows, losses."""
        days = [[day.day, day.rows, list(day.losses)] for day in self.days]
        return sha256_hex(canonical_json({"variants": [v.name for v in self.variants], "days": days}))


class ForwardEvidence:
    """Advance it at the end of each day; `days` are those that decide. `variants`: what is compared."""

    def __init__(self, config: Config, signatures: Signatures) -> None:
        self.variants = variants(config)
        self._config, self._signatures = config, signatures
        self._derived = derived_names(config)
        self._weights = RowWeights.of(config)
        self._days: deque[ForwardDay] = deque(maxlen=MOST_DAYS)
        self.last_day: int | None = None
        """The last one that is over."""
        self._fitted: list[ConfiguredFit | None] = []
        """At the end of the last day; empty where nothing was fitted."""
        self._patches: PatchRound | None = None
        """What an audit of the full configuration proposed then."""

    @property
    def days(self) -> tuple[ForwardDay, ...]:
        """Those of the last 28 days up to the last one that is over, which have rows; oldest first."""
        last = self.last_day
        return tuple(day for day in self._days if last is not None and day.day > last - MOST_DAYS)

    @property
    def record(self) -> ForwardRecord:
        """As of the last day that is over."""
        return ForwardRecord(self.variants, self.days)

    @property
    def sha256(self) -> str:
        """Of the record."""
        return self.record.sha256

    def end_day(self, day: int, panes: Sequence[PaneCells], fit_cells: FitCells | None) -> None:
        """Notes the losses on the day that is over, then fits what the next day is judged by.

        `panes`: the fit buckets' labelled cells of the day. `fit_cells`: the counts as of its end; None where there are
        too few rows to fit, or the next day is too long ago to decide anything.
        """
        if self._fitted:
            self._judge(day, panes)
        self._fitted, self._patches = ([], None) if fit_cells is None else self._fit(fit_cells)
        self.last_day = day

    def _judge(self, day: int, panes: Sequence[PaneCells]) -> None:
        losses: list[float | None] = [None] * len(self.variants)
        rows = 0
        for places, derived in self._by_derived():
            cells = trailing_cells(panes, self._signatures, time_attributes(self._config, derived), self._weights).cells
            rows = round(float(cells.labelled.sum()))
            if not rows:
                return
            rules = _rules([self.variants[i] for i in places])
            families = {rule: make_family(rule, cells.signatures) for rule in rules}
            for i in places:
                fitted = self._fitted[i]
                if fitted is not None:
                    patches = self._patches if self.variants[i].change == "patches" else None
                    losses[i] = _loss(_patched(patches, _probability(fitted, cells, families), cells, families), cells)
        self._days.append(ForwardDay(day, rows, tuple(losses)))

    def _fit(self, fit_cells: FitCells) -> tuple[list[ConfiguredFit | None], PatchRound | None]:
        fitted: list[ConfiguredFit | None] = [None] * len(self.variants)
        start: JointFit | None = None
        patches: PatchRound | None = None
        for places, derived in self._by_derived():
            places_of = [self._derived.index(name) for name in derived]
            data = fit_data(fit_cells, self._signatures, places_of, self._weights)
            cells = believed(data.cells, data.design_effect)
            rules = _rules([self.variants[i] for i in places])
            uncovered = uncovered_groups(fit_cells, self._signatures, rules, places_of, self._config)
            families = {rule: uncovered.family(rule, cells.signatures) for rule in rules}
            bases = self._bases(places, cells)
            compared = [i for i in places if i in bases]
            while compared:
                # The first that can be fitted is the start of all others, which are fitted side by side.
                now = compared if start is not None else compared[:1]
                compared = compared[len(now) :]
                made = fit_configurations(
                    [(self.variants[i].configuration, bases[i]) for i in now],
                    cells,
                    families,
                    self._config,
                    tolerance=_TOLERANCE,
                    start=start,
                )
                for i, one in zip(now, made, strict=True):
                    if isinstance(one, ConfiguredFit):
                        fitted[i] = one
                        start = start or one.joint
            for i in places:
                if self.variants[i].change == "patches":
                    fitted[i] = full = fitted[0]
                    if full is not None:
                        patches = self._propose(_probability(full, cells, families), cells, families)
        return fitted, patches

    def _bases(self, places: Sequence[int], cells: LabelledCells) -> dict[int, BaseMap]:
        """Of the variants at these places that are fitted anew and whose rung the cells determine.

        A rung that these counts do not determine (a Platt fit that decreases, say) has no loss tomorrow, and without a
        loss on every day it is not chosen.
        """
        found: dict[Rung, BaseMap | None] = {}
        bases = {}
        for i in places:
            variant = self.variants[i]
            rung = variant.configuration.rung
            if variant.change == "patches":
                continue
            if rung not in found:
                try:
                    found[rung] = fit_base(rung, cells, self._config)
                except FitError:
                    found[rung] = None
            base = found[rung]
            if base is not None:
                bases[i] = base
        return bases

    def _propose(
        self, p: NDArray[np.float64], cells: LabelledCells, families: Mapping[FamilyRule, Family]
    ) -> PatchRound | None:
        target, rows = audit_target(self._config), float(cells.labelled.sum())
        audits = audit(cells, p, [make_family(EVERYTHING, cells.signatures), *families.values()], target)
        return propose_round(audits, rows, target, MIN_GROUP_UNITS, largest_unit=1.0)

    def _by_derived(self) -> list[tuple[list[int], tuple[str, ...]]]:
        """Places of the variants that have the same signatures, and their derived attributes."""
        made: dict[tuple[str, ...], list[int]] = {}
        for i, variant in enumerate(self.variants):
            made.setdefault(variant.derived, []).append(i)
        return [(places, derived) for derived, places in made.items()]


def _rules(of: Sequence[Variant]) -> list[FamilyRule]:
    return list(dict.fromkeys(rule for variant in of for rule in variant.configuration.families))


def _probability(
    fitted: ConfiguredFit, cells: LabelledCells, families: Mapping[FamilyRule, Family]
) -> NDArray[np.float64]:
    """(k,) at the centres of the cells' bins; groups that no fit has seen, or that it left out, have no shift."""
    joint = fitted.joint.over([families[family.rule] for family in fitted.joint.families])
    return np.asarray(expit(joint.log_odds(cells, fitted.base)))


def _patched(
    patches: PatchRound | None, p: NDArray[np.float64], cells: LabelledCells, families: Mapping[FamilyRule, Family]
) -> NDArray[np.float64]:
    """(k,) with the shifts of a round."""
    if patches is None:
        return p
    family = make_family(EVERYTHING, cells.signatures) if patches.rule == EVERYTHING else families[patches.rule]
    none = (0.0,) * (len(patches.edges) - 1)
    shifts = np.array([*(patches.shifts.get(key, none) for key in family.keys), none])
    moved: NDArray[np.float64] = p + shifts[family.group_of[cells.signature], interval_of(patches.edges, p)]
    return moved


def _loss(p: NDArray[np.float64], cells: LabelledCells) -> float:
    """Log-loss summed over the cells."""
    return float(round_significant(log_loss_sums(p, cells.labelled, cells.positives).sum()))
