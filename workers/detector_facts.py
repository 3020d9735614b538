"""What `status` says of a model key's detectors, from the state of the last decided pane."""

from __future__ import annotations

import json
import math
from typing import Any

from stream_calib.config import Config
from stream_calib.drift.open_cells import OpenCells
from stream_calib.drift.policy import phase
from stream_calib.drift.residual import ResidualState, log_mean
from stream_calib.drift.step import DetectorState
from stream_calib.errors import SnapshotError
from stream_calib.refit.settings import step_config
from stream_calib.snapshot.model import WatchedDocument
from stream_calib.snapshot.reader import SnapshotReader


def detector_facts(
    detector: str | None, decided: int | None, current: str | None, snapshots: SnapshotReader, config: Config
) -> dict[str, Any] | None:
    """Plain values; None before the first decided pane.

    `outcomes`, `labels`: what is watched, in alarm and closest to it, with `evidence` as a share of an alarm's, in
    logarithms; None where the snapshot has no such detectors. `trigger`: what alarms wait for.
    """
    if detector is None or decided is None:
        return None
    state, limits = DetectorState.from_json(json.loads(detector)), step_config(config)
    residual = selection = None
    labelled_per_pane = scored_per_pane = 0.0
    if current is not None:
        try:
            reference = snapshots.load(current).structure.reference
        except SnapshotError:  # the state of the detectors is worth knowing without it
            pass
        else:
            residual, selection = reference.residual, reference.selection
            labelled_per_pane, scored_per_pane = reference.labelled_per_pane, reference.scored_per_pane
    outcomes, budget = state.outcomes, limits.budget_panes
    return {
        "outcomes": _watched(residual, outcomes.refit, outcomes.open_refit, labelled_per_pane * budget),
        "labels": _watched(selection, state.selection.detectors, state.selection.open_cells, scored_per_pane * budget),
        "psi_in_alarm": list(state.psi.open),
        "trigger": phase(state.trigger, decided, limits.trigger),
    }


def _watched(
    document: WatchedDocument | None, detectors: ResidualState, open_cells: OpenCells, budget_events: float
) -> dict[str, Any] | None:
    if document is None:
        return None
    in_alarm = [cell.name for cell in open_cells.cells]
    evidence = dict(zip(detectors.names, log_mean(detectors.rows).tolist(), strict=True))
    rest = {name: log_m for name, log_m in evidence.items() if name not in in_alarm and log_m > 0}
    closest = max(rest, key=rest.__getitem__, default=None)
    threshold = math.log(max(budget_events * len(document.families), math.e))
    return {
        "cells": sum(len(family.cells) for family in document.families),
        "in_alarm": in_alarm,
        "closest": closest,
        "evidence": None if closest is None else round(min(rest[closest] / threshold, 1.0), 3),
    }
