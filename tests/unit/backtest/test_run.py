from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pytest

from stream_calib.alerts.model import Alert
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.outcome import PolicyOutcome, decode_outcome
from stream_calib.backtest.policies.run import run_policy
from stream_calib.backtest.policies.stepping import Stepper
from stream_calib.calibration.fit_input import CENTRE_SCORE
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.metrics import auc, log_loss, worst_group_error
from stream_calib.refit.gate_evidence import judged
from tests.unit.backtest.made_up import history
from tests.unit.refit.world import FIRST_PANE, REGIONS, SIGNATURES, config

DAYS, WARM_UP = 14, 3
DAY_PANES = 24
FIRST_DAY = FIRST_PANE // DAY_PANES


@pytest.fixture(scope="module")
def cells() -> CellHistory:
    return history(DAYS * DAY_PANES, changed_from=9 * DAY_PANES)


@pytest.fixture(scope="module")
def outcome(cells: CellHistory) -> PolicyOutcome:
    return run_policy(cells, config(), name="current", warm_up_days=WARM_UP)


@pytest.fixture(scope="module")
def stepper(cells: CellHistory) -> Stepper:
    made = Stepper(cells, config())
    for pane in range(cells.first_pane, made.last_pane + 1):
        made.step(pane)
    return made


class LabelledRows:
    """Each labelled winner on its own, with what it was served: by the definition, without the columns of a run."""

    def __init__(self, cells: CellHistory, stepper: Stepper) -> None:
        publications = stepper.publications()
        maps = {one.version: judged(stepper.store.load(one.version)).served for one in publications}
        columns: list[tuple[int, int, float, float, int]] = []
        for pane in range(cells.first_pane, cells.last_matured + 1):
            matured = cells.matured(pane)
            version = next((one.version for one in reversed(publications) if one.serves_from <= pane), None)
            for i in range(len(matured.labelled)):
                values: Signature = SIGNATURES[int(matured.signature[i])]
                raw = float(CENTRE_SCORE[matured.grid_bin[i]])
                p = raw
                if version is not None:
                    p = float(maps[version].at_centres(matured.grid_bin[i : i + 1], np.array([0]), [values])[0])
                positives, rows = int(matured.positives[i]), int(matured.labelled[i])
                region = REGIONS.index(values[0])
                columns += [(pane, region, raw, p, int(row < positives)) for row in range(rows)]
        self.pane, self.region, self.raw, self.served, self.label = map(np.array, zip(*columns, strict=True))
        self.used = self.pane >= (FIRST_DAY + WARM_UP) * DAY_PANES


@pytest.fixture(scope="module")
def rows(cells: CellHistory, stepper: Stepper) -> LabelledRows:
    return LabelledRows(cells, stepper)


def test_days_sum_to_what_the_rows_say(outcome: PolicyOutcome, rows: LabelledRows) -> None:
    assert [day.day for day in outcome.days] == list(range(FIRST_DAY, FIRST_DAY + DAYS))
    assert outcome.scored_from_day == FIRST_DAY + WARM_UP
    for day in outcome.days:
        own = rows.pane // DAY_PANES == day.day
        label = rows.label[own]
        for sums, p in ((day.raw, rows.raw[own]), (day.served, rows.served[own])):
            assert (sums.labelled, sums.positives) == (len(label), label.sum())
            assert sums.probability == pytest.approx(p.sum())
            assert sums.log_loss == pytest.approx(log_loss(label, p) * len(label))
            assert sums.squared_error == pytest.approx(((label - p) ** 2).sum())
        for bins, p in ((day.bins, rows.served[own]), (day.raw_bins, rows.raw[own])):
            place = np.minimum((p * 20).astype(int), 19)
            assert [n for n, _, _ in bins] == np.bincount(place, minlength=20).tolist()
            assert [k for _, k, _ in bins] == np.bincount(place, label, 20).tolist()
            assert [s for _, _, s in bins] == pytest.approx(np.bincount(place, p, 20))


def test_what_was_scored_and_what_had_no_snapshot(
    outcome: PolicyOutcome, cells: CellHistory, stepper: Stepper, rows: LabelledRows
) -> None:
    first = stepper.publications()[0].serves_from
    assert sum(day.scored for day in outcome.days) == DAYS * DAY_PANES * 50
    assert [day.unlabelled for day in outcome.days] == [0] * DAYS
    assert sum(day.identity for day in outcome.days) == (rows.pane < first).sum() > 0
    assert outcome.days[-1].identity == 0
    # The age of the data by its definition: of every score with a snapshot, end of its pane less end of the last pane
    # that the snapshot was made from.
    day = first // DAY_PANES + 1
    age = 0.0
    for pane in range(day * DAY_PANES, (day + 1) * DAY_PANES):
        version = [one.version for one in stepper.publications() if one.serves_from <= pane][-1]
        age += int(cells.scored(pane).n.sum()) * (pane - stepper.store.document(version).last_pane) * 3_600_000
    assert outcome.days[day - FIRST_DAY].staleness_ms == pytest.approx(age)
    assert outcome.days[0].staleness_ms == 0
    assert all(day.psi is not None for day in outcome.days[1:])


def test_groups_auc_and_worst_group_are_those_of_the_rows(outcome: PolicyOutcome, rows: LabelledRows) -> None:
    label, region = rows.label[rows.used], rows.region[rows.used]
    for p, found_auc, found_worst in (
        (rows.served[rows.used], outcome.auc, outcome.worst_group_error_percent),
        (rows.raw[rows.used], outcome.raw_auc, outcome.raw_worst_group_error_percent),
    ):
        assert found_auc == pytest.approx(auc(label, p))
        assert found_worst == pytest.approx(worst_group_error(label, p, [region]))
    assert outcome.worst_group_error_percent < outcome.raw_worst_group_error_percent
    by_name = {group.group: group for group in outcome.groups}
    assert next(iter(by_name)) == "all"
    assert by_name["all"].served.labelled == len(label)
    for number, (name,) in enumerate(SIGNATURES.values()):
        group = by_name[f"region={name}"]
        own = region == number
        assert group.family == "region"
        assert group.served.labelled == own.sum()
        assert group.served.probability == pytest.approx(rows.served[rows.used][own].sum())
        assert group.raw.probability == pytest.approx(rows.raw[rows.used][own].sum())
        assert sum(n for n, _, _ in group.months.values()) == own.sum()
        month = datetime.fromtimestamp((FIRST_DAY + DAYS - 1) * 86_400, tz=timezone.utc).strftime("%Y-%m")
        assert month in group.months


def test_refits_and_alarms_are_told(outcome: PolicyOutcome, stepper: Stepper) -> None:
    assert [(one.pane, one.reason, one.outcome, one.version) for one in outcome.refits] == [
        (report.pane, report.reason, report.outcome, report.version) for report in stepper.reports
    ]
    published = [one for one in outcome.refits if one.outcome == "published"]
    assert len(published) > 3
    assert published[0].rung is not None
    assert "level" in published[0].changed
    assert "region=south -" in published[0].changed  # its scores are too high
    refused = [one for one in outcome.refits if one.outcome == "refused"]
    assert all(one.codes for one in refused)
    told = [Alert.decode(raw) for raw in stepper.state.entries("outbox", 0)]
    assert [one.id for one in outcome.alarms] == [
        alert.id for alert in told if alert.kind not in ("refit_asked", "refit_published")
    ]
    residual = [one for one in outcome.alarms if one.kind == "residual" and one.state == "open"]
    assert residual
    assert residual[0].pane >= FIRST_PANE + 9 * DAY_PANES  # when outcomes changed
    assert "region=west" in residual[0].what
    assert outcome.tip == stepper.log().tip


def test_the_outcome_is_the_same_every_time_and_strict_json(cells: CellHistory, outcome: PolicyOutcome) -> None:
    again = run_policy(cells, config(), name="current", warm_up_days=WARM_UP)
    document = decode_outcome(outcome.encode())
    assert document == outcome
    assert [getattr(again, f) for f in again.__struct_fields__ if f != "cpu_seconds"] == [
        getattr(outcome, f) for f in outcome.__struct_fields__ if f != "cpu_seconds"
    ]


def test_labels_that_come_later_change_nothing_but_when_it_serves(cells: CellHistory, outcome: PolicyOutcome) -> None:
    later = run_policy(cells, config(), name="late", warm_up_days=WARM_UP, label_delay_panes=DAY_PANES)
    assert later.tip == outcome.tip
    assert later.outbox_sha256 == outcome.outbox_sha256
    identity = [sum(day.identity for day in one.days) for one in (outcome, later)]
    assert identity[1] - identity[0] == DAY_PANES * 50


def test_progress_is_told_to_its_end(cells: CellHistory) -> None:
    told: list[tuple[int, int]] = []
    run_policy(history(30), config(), name="short", on_progress=lambda done, of: told.append((done, of)))
    assert told[0] == (0, 28)
    assert told[-1] == (28, 28)
    assert told == sorted(told)


def test_a_history_without_a_label_has_figures_that_say_nothing() -> None:
    made = run_policy(history(2), config(), name="none")
    assert (made.auc, made.worst_group_error_percent, made.refits, made.groups) == (0.5, 0.0, [], [])
    assert [day.psi for day in made.days] == [None]
    assert decode_outcome(made.encode()) == made
