"""What a candidate consists of: chosen by the forward evidence, by the rules of calibration/entering.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.configuration import Configuration, Rung
from stream_calib.calibration.entering import comes_on, mean_and_error, simplest_rung, stays_on
from stream_calib.calibration.groups import family_rule
from stream_calib.config import Config
from stream_calib.refit.configurations import FULL, RUNGS_COMPARED, Variant, full_configuration
from stream_calib.refit.derived import derived_names
from stream_calib.refit.forward_evidence import LEAST_DAYS, ForwardDay
from stream_calib.snapshot.figures import rounded_figure
from stream_calib.snapshot.fit_documents import ChoicesDocument, FigureDocument, PatchesDocument


@dataclass(frozen=True, slots=True)
class Choice:
    """One candidate, before it is fitted."""

    configuration: Configuration
    derived: tuple[str, ...]
    """Derived attributes that follow the configured ones in the map's signatures."""
    document: ChoicesDocument
    """`patches`: whether the evidence asks for them."""


class _Evidence:
    """Losses (days,) by variant, of those that were fitted on every day."""

    def __init__(self, compared: Sequence[Variant], days: Sequence[ForwardDay]) -> None:
        self.rows = np.array([day.rows for day in days], dtype=np.float64)
        self.losses: dict[str, NDArray[np.float64]] = {}
        for i, variant in enumerate(compared):
            of_days = [day.losses[i] for day in days]
            if len(days) >= LEAST_DAYS and None not in of_days:
                self.losses[variant.name] = np.array(of_days, dtype=np.float64)
        if FULL not in self.losses:
            # There is nothing to compare with.
            self.losses = {}


def choose(compared: Sequence[Variant], days: Sequence[ForwardDay], sha256: str, config: Config) -> Choice:
    """Configured families stay on unless they harm; the base map is the simplest rung within one standard error of the
    best, the richest before there are seven days; slopes, derived attributes and patches come on only with proof.

    `days`: the record, of hash `sha256`, with losses in the order of `compared`.
    """
    evidence = _Evidence(compared, days)
    figures = [_figure(variant, evidence) for variant in compared if variant.change not in ("none", "rung")]
    on = {figure.name: figure.on for figure in figures}
    chosen, attributes = full_configuration(config), tuple(config.scores.attributes)
    off = [rule for rule in chosen.families if not on[f"family {rule.name}"]]
    for rule in off:
        chosen = chosen.without(rule)
    for rule in chosen.families:  # a family that is off has no slopes either
        if on.get(f"slopes {rule.name}"):
            chosen = chosen.with_slope(rule)
    derived = tuple(name for name in derived_names(config) if on[f"derived {name}"])
    for name in derived:
        chosen = chosen.with_family(family_rule((name,), attributes + derived))
    rung, rung_figures = _rung(compared, evidence, chosen.rung)
    document = ChoicesDocument(
        rung=rung,
        families_off=tuple(rule.name for rule in off),
        slopes=tuple(rule.name for rule in chosen.slopes),
        patches=on.get("patches", False),
        patches_tried=None if config.scores.unit is None else PatchesDocument(outcome="unit_sizes_unknown"),
        days=len(days),
        rows=sum(day.rows for day in days),
        figures=(*rung_figures, *figures),
        evidence_sha256=sha256,
    )
    return Choice(chosen.on_rung(rung), derived, document)


def _figure(variant: Variant, evidence: _Evidence) -> FigureDocument:
    """Whether what the variant changes is on: a configured family without proof of harm, all else with proof only."""
    configured = variant.change == "family"
    changed, rows = evidence.losses.get(variant.name), evidence.rows
    if changed is None:
        return FigureDocument(name=variant.name, on=configured, difference=None, standard_error=None)
    full = evidence.losses[FULL]
    with_it, without_it = (full, changed) if configured else (changed, full)
    on = stays_on(with_it, without_it, rows) if configured else comes_on(with_it, without_it, rows)
    return _noted(variant.name, on, with_it - without_it, rows)


def _rung(compared: Sequence[Variant], evidence: _Evidence, default: Rung) -> tuple[Rung, list[FigureDocument]]:
    """The chosen rung, and what there is to say of each, from the simplest to the richest."""
    name_of = {v.configuration.rung: v.name for v in compared if v.change in ("rung", "none")}
    known = [rung for rung in RUNGS_COMPARED if name_of.get(rung) in evidence.losses]
    if not known:
        return default, []
    losses, rows = np.stack([evidence.losses[name_of[rung]] for rung in known]), evidence.rows
    chosen = known[simplest_rung(losses, rows)]
    best = losses[int(losses.sum(axis=1).argmin())]
    return chosen, [
        _noted(f"rung {rung}", rung == chosen, own - best, rows) for rung, own in zip(known, losses, strict=True)
    ]


def _noted(name: str, on: bool, difference: NDArray[np.float64], rows: NDArray[np.float64]) -> FigureDocument:
    mean, error = mean_and_error(difference, rows)
    return FigureDocument(name=name, on=on, difference=rounded_figure(mean), standard_error=rounded_figure(error))
