"""The detectors that are compared, window by window: ours as the product runs it, and the tests that people write."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.drift_traffic import GROUPS, PER_WINDOW, SERVED, SHIFT, Windows
from stream_calib.calibration.grid import N_BINS
from stream_calib.drift.psi import psi_of, shares
from stream_calib.drift.psi_reference import quantile_bins
from stream_calib.drift.residual import ResidualState, ResidualSums, WatchedCells, advance
from stream_calib.drift.residual_evidence import pane_evidence

EVENTS_PER_FALSE_ALARM = 1_000_000
"""A: the budget of ours."""
_PER_PANE = float(GROUPS * PER_WINDOW)


class Detector(Protocol):
    def alarms(self, windows: Windows) -> NDArray[np.bool_]:
        """(windows, groups) which alarm, going on where the last call ended."""
        ...


class Residual:
    """The residual detectors of one family of equal groups."""

    def __init__(self, groups: int, epsilon: float = 0.0, phi: float = 1.0) -> None:
        self._watched = WatchedCells(
            [f"group={i}" for i in range(groups)],
            np.zeros(groups, np.intp),
            np.full(groups, epsilon),
            np.array([phi]),
            _PER_PANE,
        )
        self._state = ResidualState()

    def alarms(self, windows: Windows) -> NDArray[np.bool_]:
        found = np.zeros(windows.labelled.shape[:2], bool)
        for row, labelled, positives in zip(found, windows.labelled, windows.positives, strict=True):
            cell, grid_bin = np.nonzero(labelled)
            row[
                self.look(ResidualSums(cell, SERVED[grid_bin], labelled[cell, grid_bin], positives[cell, grid_bin]))
            ] = True
        return found

    def look(self, sums: ResidualSums) -> list[int]:
        """Groups that alarm with the events of one pane, of any size."""
        evidence = pane_evidence(self._watched, sums)
        self._state, alarms = advance(self._state, self._watched, evidence, EVENTS_PER_FALSE_ALARM / _PER_PANE)
        return [alarm.cell for alarm in alarms]


class Oracle:
    """Shiryaev-Roberts that knows the change, +.05 in one direction, and waits for the moment only. Same budget."""

    def __init__(self, groups: int) -> None:
        self._log_m = np.full(groups, -np.inf)
        after = np.minimum(SERVED + SHIFT, 1 - 1e-9)
        self._positive, self._negative = np.log(after / SERVED), np.log((1 - after) / (1 - SERVED))

    def alarms(self, windows: Windows) -> NDArray[np.bool_]:
        ratio = windows.positives @ self._positive + (windows.labelled - windows.positives) @ self._negative
        return np.array([self._moved(PER_WINDOW, log_ratio) for log_ratio in ratio])

    def look(self, grid_bin: NDArray[np.intp], positive: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Groups that alarm with one event each, columns (groups,)."""
        return np.flatnonzero(self._moved(1, np.where(positive, self._positive[grid_bin], self._negative[grid_bin])))

    def _moved(self, events: int, log_ratio: NDArray[np.float64]) -> NDArray[np.bool_]:
        self._log_m = np.logaddexp(self._log_m, np.log(events)) + log_ratio
        alarms: NDArray[np.bool_] = self._log_m >= np.log(EVENTS_PER_FALSE_ALARM)
        self._log_m[alarms] = -np.inf
        return alarms


class ZTest:
    """Two-sided test of each window by itself: label - served against its standard deviation."""

    def __init__(self, level: float) -> None:
        self._limit = float(norm.isf(level / 2))

    def alarms(self, windows: Windows) -> NDArray[np.bool_]:
        residual = windows.positives.sum(axis=2) - windows.labelled @ SERVED
        deviation = np.sqrt(windows.labelled @ (SERVED * (1 - SERVED)))
        return np.asarray(np.abs(residual) > self._limit * deviation)


class PsiRule:
    """PSI of each window's scores above .25; 10 bins of equal mass of the reference, so it sees no outcome."""

    def __init__(self, reference: NDArray[np.int64]) -> None:
        """`reference`: counts (402,)."""
        ends = quantile_bins(reference.astype(np.float64), 10)
        self._starts = np.concatenate([[0], np.asarray(ends[:-1], np.intp) + 1])
        self._used = np.ones(len(ends), bool)
        self._shares = shares(self._binned(reference), self._used)

    def _binned(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.add.reduceat(counts, self._starts, axis=-1).astype(np.float64))

    def alarms(self, windows: Windows) -> NDArray[np.bool_]:
        return psi_of(shares(self._binned(windows.labelled), self._used), self._shares, self._used) > 0.25


TESTS_PER_BUDGET = EVENTS_PER_FALSE_ALARM // PER_WINDOW
"""Windows of a group that come while the budget allows one false alarm."""


def detectors(groups: int, reference: Windows) -> dict[str, Detector]:
    """By the name in the tables. `reference`: the events that PSI compares with."""
    return {
        "residual e-detectors": Residual(groups),
        "oracle": Oracle(groups),
        "z-test": ZTest(0.05),
        "z-test, Bonferroni": ZTest(0.05 / GROUPS),
        "z-test, same budget": ZTest(1 / TESTS_PER_BUDGET),
        "PSI > .25": PsiRule(reference.labelled.reshape(-1, N_BINS).sum(axis=0)),
    }
