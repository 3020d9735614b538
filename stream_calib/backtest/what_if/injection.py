"""Faults injected into a history of cells: what it would have been, had outcomes, traffic or labels been otherwise.

Pure: the same history and fault give the same cells, and panes that it does not change are the very same bytes.
What happens to single events is drawn, from a seed and the pane's number.

* **shift**: labels flip. An event whose outcome is positive at log-odds r (see inject_rates) is to be so at r + size:
  for size > 0 each negative flips with probability q = p (e^size - 1) / (1 - p + p e^size), p = 1 / (1 + e^-r), so that
  p + (1 - p) q = 1 / (1 + e^-(r + size)); for size < 0 positives do, likewise. Scores stay, so do counts of labels.
* **traffic**: a factor below 1 keeps each event with that probability. Above 1 every event brings others like it (the
  same attributes, bin and unit bucket, a label if it has one): as many as the whole part of the factor less 1, and one
  more with the probability of the rest. Their outcomes are drawn at r, so they are no copies.
* **outage**: labelled events lose their label, each with a probability; where a missing label is a negative, positives
  become such.
* **delay**: labels come later and are counted all the same: the panes are decided later.
* **duplicate**: each event is counted a second time, with its outcome, with a probability: what a join that does not
  know duplicates makes of a partition that was delivered twice, when partitions are by a hash of the id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.backtest.history import CellHistory, PaneBlobs
from stream_calib.backtest.what_if.faults import Injection, Scenario
from stream_calib.backtest.what_if.notes import notes_of
from stream_calib.backtest.what_if.rates import BinCounts, OutcomeRates, fit_rates, month_of
from stream_calib.backtest.what_if.stretch import EventGroup, stretch_of
from stream_calib.backtest.what_if.unchanged import why_unchanged
from stream_calib.calibration.grid import N_BINS
from stream_calib.errors import BacktestError
from stream_calib.windows.cells import MaturedCells, ScoredCells

Counts = NDArray[np.int64]


class Injected(NamedTuple):
    history: CellHistory
    notes: tuple[str, ...]
    """What the faults came to, where that is not what their settings say."""


def inject_all(history: CellHistory, scenario: Scenario) -> Injected:
    """The history with all faults, one after the other. Raises BacktestError where one cannot be in it."""
    notes: list[str] = []
    for fault in scenario.faults:
        before, history = history, inject(history, fault)
        notes += notes_of(before, history, fault)
    return Injected(history, tuple(notes))


def inject(history: CellHistory, injection: Injection) -> CellHistory:
    """The history with the fault. Raises BacktestError where nothing of the history changes."""
    panes = stretch_of(history, injection)
    source = f"{history.source}; injected: {injection}"
    if injection.fault == "delay":
        more = -(-round(injection.amount) // history.pane_ms)
        delays = dict(history.label_delays)
        for pane in panes:
            delays[pane] = delays.get(pane, 0) + more
        return replace(history, label_delays=delays, source=source)
    group = EventGroup(history, injection)
    rates = _rates(history, injection, panes, group) if injection.fault in ("shift", "traffic") else None
    blobs = list(history.panes)
    for pane in panes:
        i = pane - history.first_pane
        drawn = np.random.default_rng([injection.seed, pane])
        blobs[i] = _injected(blobs[i], injection, group, rates, month_of(pane * history.pane_ms), drawn)
    if blobs == list(history.panes):
        raise BacktestError(
            f"{injection}: nothing of the history changes by it: {why_unchanged(history, injection, group, panes)}"
        )
    return replace(history, panes=blobs, source=source)


def _rates(history: CellHistory, injection: Injection, panes: range, group: EventGroup) -> OutcomeRates | None:
    def counts() -> Iterator[BinCounts]:
        for pane in range(panes.start, min(panes.stop, history.last_matured + 1)):
            cells = history.matured(pane)
            mine = group.has(cells.signature) & (cells.labelled > 0)
            month = month_of(pane * history.pane_ms)
            yield BinCounts(month, cells.grid_bin[mine], cells.labelled[mine], cells.positives[mine])

    rates = fit_rates(counts())
    if rates is None and injection.fault == "shift":
        raise BacktestError(f"{injection}: no event of the group has a label there, so there is nothing to move")
    return rates


def _injected(
    blobs: PaneBlobs,
    injection: Injection,
    group: EventGroup,
    rates: OutcomeRates | None,
    month: int,
    drawn: np.random.Generator,
) -> PaneBlobs:
    """One pane with the fault; the very same blobs where no count of it is another one."""
    scored = ScoredCells.unpack(blobs.scored)
    matured = None if blobs.matured is None else MaturedCells.unpack(blobs.matured)
    mine = None if matured is None else np.flatnonzero(group.has(matured.signature))
    after = matured
    if matured is not None and mine is not None and len(mine):
        log_odds = None if rates is None else rates.of(month, matured.grid_bin[mine])
        after = _with_counts(matured, mine, _moved(injection, matured, mine, log_odds, drawn))
    new_scored = scored
    if injection.fault in ("traffic", "duplicate"):
        new_scored = _rescored(scored, matured, after, group, lambda n: _times(injection, n, drawn))
    if new_scored is scored and after is matured:
        return blobs
    return PaneBlobs(
        blobs.scored if new_scored is scored else new_scored.pack(),
        blobs.matured if after is None or after is matured else after.pack(),
    )


def _moved(
    injection: Injection,
    cells: MaturedCells,
    mine: NDArray[np.intp],
    log_odds: NDArray[np.float64] | None,
    drawn: np.random.Generator,
) -> tuple[Counts, Counts, Counts]:
    """Positives, negatives, unlabelled of the group's cells after the fault, each (k,)."""
    positives, unlabelled = cells.positives[mine], cells.unlabelled[mine]
    negatives = cells.labelled[mine] - positives
    amount = injection.amount
    if injection.fault == "shift":
        assert log_odds is not None  # without a label _rates refused
        flips = _flip_probability(log_odds, amount)
        if amount > 0:
            flipped = drawn.binomial(negatives, flips)
            return positives + flipped, negatives - flipped, unlabelled
        flipped = drawn.binomial(positives, flips)
        return positives - flipped, negatives + flipped, unlabelled
    if injection.fault == "outage":
        lost_positives = drawn.binomial(positives, amount)
        if injection.missing_is_negative:
            return positives - lost_positives, negatives + lost_positives, unlabelled
        lost_negatives = drawn.binomial(negatives, amount)
        return positives - lost_positives, negatives - lost_negatives, unlabelled + lost_positives + lost_negatives
    if injection.fault == "traffic" and amount > 1:
        more = _times(injection, positives + negatives, drawn) - positives - negatives
        # Where nothing has a label no rate is known, and none is needed.
        more_positives = more if log_odds is None else drawn.binomial(more, expit(log_odds))
        return positives + more_positives, negatives + more - more_positives, _times(injection, unlabelled, drawn)
    after = [_times(injection, n, drawn) for n in (positives, negatives, unlabelled)]
    return after[0], after[1], after[2]


def _flip_probability(log_odds: NDArray[np.float64], size: float) -> NDArray[np.float64]:
    """That a negative (size > 0) or a positive (size < 0) flips, see above; for the latter p is that of a negative."""
    p = expit(log_odds if size > 0 else -log_odds)
    grown = np.expm1(abs(size))
    return np.asarray(p * grown / (1 + p * grown), dtype=np.float64)


def _times(injection: Injection, n: Counts, drawn: np.random.Generator) -> Counts:
    """Counts after traffic is multiplied, or a share is counted twice."""
    factor = injection.amount if injection.fault == "traffic" else 1 + injection.amount
    whole = int(factor)
    return n * whole + drawn.binomial(n, factor - whole)


def _with_counts(cells: MaturedCells, mine: NDArray[np.intp], after: tuple[Counts, Counts, Counts]) -> MaturedCells:
    """The cells with other counts in some rows; rows that have no event left go. The very same where no count is
    another one."""
    positives, negatives, missing = after
    given = cells.positives[mine], (cells.labelled - cells.positives)[mine], cells.unlabelled[mine]
    if all(map(np.array_equal, given, after)):
        return cells
    labelled, new_positives, unlabelled = cells.labelled.copy(), cells.positives.copy(), cells.unlabelled.copy()
    labelled[mine], new_positives[mine], unlabelled[mine] = positives + negatives, positives, missing
    left = np.flatnonzero(labelled + unlabelled)
    return MaturedCells(
        cells.unit_bucket[left],
        cells.signature[left],
        cells.grid_bin[left],
        labelled[left],
        new_positives[left],
        unlabelled[left],
    )


def _rescored(
    scored: ScoredCells,
    before: MaturedCells | None,
    after: MaturedCells | None,
    group: EventGroup,
    draw: Callable[[Counts], Counts],
) -> ScoredCells:
    """The scored cells that belong to the new matured ones. Of cells that these do not have, or otherwise, because the
    pane is not mature or rare values were put together there, it is drawn afresh. The very same where no count is
    another one."""
    mine = np.flatnonzero(group.has(scored.signature))
    if not len(mine):
        return scored
    n = scored.n.copy()
    known = np.zeros(len(mine), dtype=bool)
    if before is not None and after is not None:
        names = np.unique(scored.signature)
        place = _places(names, scored.signature[mine], scored.grid_bin[mine])
        winners, then = (_winners(names, cells, place) for cells in (before, after))
        known = winners == n[mine]
        n[mine[known]] = then[known]
    n[mine[~known]] = draw(n[mine[~known]])
    if np.array_equal(n, scored.n):
        return scored
    left = np.flatnonzero(n)
    return ScoredCells(scored.signature[left], scored.grid_bin[left], n[left])


def _places(names: NDArray[np.uint64], signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16]) -> Counts:
    return np.searchsorted(names, signature).astype(np.int64) * N_BINS + grid_bin


def _winners(names: NDArray[np.uint64], cells: MaturedCells, place: Counts) -> Counts:
    """(k,) winners of the matured cells at each place."""
    there = np.isin(cells.signature, names)
    places = _places(names, cells.signature[there], cells.grid_bin[there])
    sums = np.zeros(len(names) * N_BINS, dtype=np.int64)
    np.add.at(sums, places, (cells.labelled + cells.unlabelled)[there])
    return np.asarray(sums[place], dtype=np.int64)
