"""Where an outcome is known only if somebody acted, the rest were read as negatives, and the unequal testing of groups
went into the model.
"""

from __future__ import annotations

import numpy as np
import pytest

from stream_calib.calibration.grid import locate
from stream_calib.events.identity import signature_hash
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.group_coverage import group_coverage
from stream_calib.refit.groups import fitted_rules
from stream_calib.refit.labelled import fit_data
from stream_calib.refit.min_coverage import uncovered_groups
from stream_calib.refit.row_weights import RowWeights
from stream_calib.windows.cells import MaturedCells
from tests.cases.joined import joined, label, score
from tests.unit.refit.world import FIRST_PANE, config

SIGNATURES = {signature_hash((name,)): (name,) for name in ("A", "B")}


def evidence() -> Evidence:
    """A: 1,000 scores, all labelled, 100 positive. B: 1,000 scores, 50 labelled, all above .8, 40 positive."""
    score_of_a = np.linspace(0.05, 0.95, 1_000)
    score_of_b = np.concatenate([np.linspace(0.05, 0.79, 950), np.linspace(0.81, 0.95, 50)])
    label_of_a = (np.arange(1_000) % 10 == 0).astype(np.int8)
    label_of_b = np.concatenate([np.full(950, -1), np.arange(50) % 5 != 0]).astype(np.int8)
    parts = [
        MaturedCells.count(np.zeros(1_000, np.uint8), np.full(1_000, number, np.uint64), locate(scores)[0], labels)
        for number, scores, labels in zip(SIGNATURES, (score_of_a, score_of_b), (label_of_a, label_of_b), strict=True)
    ]
    made = Evidence(FIRST_PANE, config())
    made.advance(FIRST_PANE, MaturedCells.merge(parts).pack())
    return made


def test_coverage_is_shown_and_the_share_is_of_labelled_rows() -> None:
    found = {g.name: g for g in group_coverage(evidence(), lambda hashes: {h: SIGNATURES[h] for h in hashes}, config())}
    a, b, everything = found["region=A"], found["region=B"], found["all"]
    assert (a.scores, a.labelled, a.coverage, a.positive_share) == (1_000, 1_000, 1.0, 0.1)
    assert (b.scores, b.labelled, b.coverage, b.positive_share) == (1_000, 50, 0.05, 0.8)
    assert everything.labelled == 1_050
    assert everything.positive_share == pytest.approx(140 / 1_050, rel=1e-3)


def test_a_least_coverage_leaves_the_hardly_labelled_group_out() -> None:
    asking = config()
    asking = asking.model_copy(update={"calibration": asking.calibration.model_copy(update={"min_coverage": 0.2})})
    found = uncovered_groups(
        evidence().counts.cells(),
        lambda hashes: {h: SIGNATURES[h] for h in hashes},
        fitted_rules(asking),
        (),
        asking,
    )
    assert [(group.name, group.coverage) for group in found.groups] == [("region=B", 0.05)]


def test_bins_without_labels_are_in_no_fit() -> None:
    cells = fit_data(
        evidence().counts.cells(), lambda hashes: {h: SIGNATURES[h] for h in hashes}, (), RowWeights.of(config())
    ).cells
    of_b = cells.signature == cells.signatures.index(("B",))
    used = of_b & (cells.labelled > 0)
    assert cells.labelled[of_b].sum() == 50
    assert int(cells.grid_bin[used].min()) >= int(locate(np.array([0.8]))[0][0])


@pytest.mark.services
def test_who_has_no_label_is_unlabelled_and_never_negative(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(*(score(f"a{i}", 3, g="A") for i in range(20)), *(score(f"b{i}", 3, g="B") for i in range(20)))
        j.labels(*(label(f"a{i}", 5, i % 2) for i in range(20)), label("b0", 5, 1))
        j.matured(3)
        found = j.pane(3)
        assert (found.labelled, found.positives, found.unlabelled) == (21, 11, 19)
