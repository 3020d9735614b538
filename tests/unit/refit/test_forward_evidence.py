from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stream_calib.refit.carried import CarriedEvidence
from stream_calib.refit.choice import choose
from stream_calib.refit.decayed_counts import FitCells
from stream_calib.refit.fit import fit_structure
from stream_calib.refit.forward_evidence import LEAST_DAYS, MOST_DAYS, ForwardEvidence
from stream_calib.refit.labelled import PaneCells
from stream_calib.snapshot.decision_log import Request
from tests.unit.refit.world import FIRST_PANE, World, config

FIRST_DAY = FIRST_PANE // 24


def carried(world: World, *last_panes: int) -> CarriedEvidence:
    """Advanced to each of the panes in turn."""
    made = CarriedEvidence(world.state, FIRST_PANE, world.config)
    for pane in last_panes:
        made.advance(pane)
    return made


def last_request(world: World) -> Request:
    return [e for e in world.store.log().entries if isinstance(e, Request)][-1]


@pytest.fixture(scope="module")
def world() -> World:
    made = World(config(), rows_a_pane=30)
    made.run(24 * 12)
    return made


def test_the_choice_and_its_evidence_are_in_report_and_snapshot(world: World) -> None:
    reports = [r for r in world.store.reports() if r.choices is not None]
    first, last = reports[0].choices, reports[-1].choices
    assert first is not None
    assert last is not None
    assert (first.days, first.rung) == (0, "girb")
    assert last.days >= LEAST_DAYS
    assert last.rows == pytest.approx(last.days * 24 * 30 * 12 / 20, rel=0.1)
    assert last.families_off == ()  # without offsets of the regions the loss is much larger
    region = next(f for f in last.figures if f.name == "family region")
    assert region.difference is not None
    assert region.difference < -0.01
    assert region.standard_error is not None
    version = world.store.current()
    assert version is not None
    structure = world.store.load(version).structure
    assert structure.choices == next(r.choices for r in reports if r.request_id == structure.request_id)
    assert structure.certificate is not None
    assert not structure.certificate.certified
    assert structure.certificate.alpha is not None
    assert structure.certificate.smallest_detectable_alpha is not None
    assert structure.certificate.rows == pytest.approx((structure.last_pane - FIRST_PANE + 1) * 30 * 2 / 20, rel=0.2)


def test_losses_are_those_of_fits_to_the_days_before(world: World) -> None:
    made = carried(world, last_request(world).last_pane)
    record = {day.day: day for day in made.forward.days}
    day = max(record)
    # By hand: the structure as of the end of the day before, on the day's rows of the fit buckets.
    again = World(config(), rows_a_pane=30)
    again.run((day - FIRST_DAY) * 24 - (FIRST_PANE - FIRST_DAY * 24), refit=False)
    evidence = type(made.evidence)(FIRST_PANE, world.config)
    for pane in range(FIRST_PANE, day * 24):
        evidence.advance(pane, again.matured[pane].pack())
    assert evidence.day_is_over
    choice = choose(made.forward.variants, [], "", world.config)
    parts = fit_structure(evidence, choice, world.state.signatures, world.config).parts
    loss, rows = 0.0, 0
    for pane in range(day * 24, day * 24 + 24):
        cells = world.matured[pane]
        fit = cells.unit_bucket < 12
        x = parts.base.log_odds_at((cells.grid_bin[fit].astype(np.float64) - 200.5) * 0.05)
        names = [world.state.signatures([h])[h] for h in cells.signature[fit].tolist()]
        x = x + np.array([parts.families[0].offsets[tuple(name)] for name in names])
        positives, labelled = cells.positives[fit], cells.labelled[fit]
        loss += float((positives * np.logaddexp(0, -x) + (labelled - positives) * np.logaddexp(0, x)).sum())
        rows += int(labelled.sum())
    assert record[day].rows == rows
    full = record[day].losses[0]
    assert full is not None
    assert full / rows == pytest.approx(loss / rows, abs=1e-6)


def test_a_worker_that_starts_anew_derives_the_same_record(world: World) -> None:
    request = last_request(world)
    fresh = carried(world, request.last_pane).forward
    continued = carried(world, *range(FIRST_PANE, request.last_pane, 7), request.last_pane).forward
    assert fresh.days == continued.days
    report = next(r for r in world.store.reports() if r.request_id == request.id)
    assert report.choices is not None
    assert report.choices.evidence_sha256 == fresh.sha256 == continued.sha256


def test_after_long_absence_only_the_days_that_decide_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = World(config(min_rows=50, min_positives=5), rows_a_pane=4)
    for _ in range(24 * 36):
        made.add_pane()
    last = FIRST_PANE + 24 * 36 - 1
    fitted: list[int] = []

    class Counted(ForwardEvidence):
        def end_day(self, day: int, panes: Sequence[PaneCells], fit_cells: FitCells | None) -> None:
            if fit_cells is not None:
                fitted.append(day)
            super().end_day(day, panes, fit_cells)

    monkeypatch.setattr("stream_calib.refit.carried.ForwardEvidence", Counted)
    end = (last + 1) // 24 - 1
    decide = list(range(end - MOST_DAYS + 1, end + 1))
    assert [day.day for day in carried(made, last).forward.days] == decide
    assert fitted == [decide[0] - 1, *decide]
