"""Several panes summed at once come to what each comes to alone, to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_calib.drift.cell_history import pane_measures, panes_measures
from stream_calib.drift.residual_evidence import pane_evidence, panes_evidence
from stream_calib.refit.outcome_watch import OutcomeWatch
from stream_calib.refit.pane_totals import PaneTotals
from stream_calib.refit.residual_reference import watched
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.fit_documents import DerivedDocument
from stream_calib.windows.cells import EMPTY_MATURED
from tests.unit.refit.test_residual_reference import Traffic, config_of, resolved, signatures
from tests.unit.refit.world import FIRST_PANE, IDENTITY


def watch_of(traffic: Traffic, derived: DerivedDocument | None) -> OutcomeWatch:
    config = config_of()
    residual, selection = watched(traffic.evidence(config), IDENTITY, signatures, config)
    snapshot = resolved(residual, selection, config)
    structure = snapshot.structure.model_copy(update={"derived": derived})
    return OutcomeWatch(replace(snapshot, structure=structure), RowWeights(), signatures)


@pytest.mark.parametrize("derived", [None, DerivedDocument(names=("hour_of_day",), zone="UTC")])
def test_evidence_and_measures_are_those_of_single_panes(derived: DerivedDocument | None) -> None:
    traffic = Traffic()
    watch = watch_of(traffic, derived)
    cells = [traffic.cells(0), EMPTY_MATURED, *(traffic.cells(pane) for pane in range(2, 6))]
    together = watch.sums_of(PaneTotals.of(FIRST_PANE, cells))
    for number, detectors in enumerate((watch.residual, watch.selection)):
        sums = together[number]
        assert sums is not None
        assert detectors is not None
        evidence = panes_evidence(detectors.watched, sums, len(cells))
        measures = panes_measures(detectors.watched, sums, len(cells))
        for i, of_pane in enumerate(cells):
            own = watch.sums(FIRST_PANE + i, of_pane)[number]
            assert own is not None
            expected = pane_evidence(detectors.watched, own)
            assert np.array_equal(evidence[i].labelled, expected.labelled)
            assert np.array_equal(evidence[i].log_ratio, expected.log_ratio)
            assert np.array_equal(measures[i], pane_measures(detectors.watched, own))


def test_panes_before_are_left_out() -> None:
    traffic = Traffic()
    cells = [traffic.cells(pane) for pane in range(4)]
    later, expected = PaneTotals.of(0, cells).since(2), PaneTotals.of(2, cells[2:])
    assert (later.first_pane, later.panes) == (2, 2)
    for name in ("part", "grid_bin", "n", "labelled", "positives"):
        assert np.array_equal(getattr(later, name), getattr(expected, name)), name
    assert np.array_equal(later.hashes[later.place], expected.hashes[expected.place])
