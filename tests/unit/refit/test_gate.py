from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration.groups import CellGroups
from stream_calib.config_refits import RefitSection
from stream_calib.refit.gate import GateWindow, judge_candidate
from stream_calib.refit.gate_rows import GateCells
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.report import GateCode, GateReport

CONFIG = RefitSection()


def window(kind: Literal["structure", "level"] = "structure", **change: Any) -> GateWindow:
    fields = {"baseline": None, "first_pane": 0, "last_pane": 167, "incomplete_panes": 0, "incomplete_share": 0.0}
    return GateWindow(kind=kind, **fields | change)


class Data:
    """n rows over 7 days and 4 buckets, with true probabilities `truth` and 5 groups."""

    def __init__(self, n: int = 4_000, seed: int = 1, groups: int = 5) -> None:
        rng = np.random.default_rng(seed)
        self.day = rng.integers(0, 7, n)
        self.bucket = rng.integers(16, 20, n).astype(np.uint8)
        self.truth: NDArray[np.float64] = rng.uniform(0.05, 0.6, n)
        self.label = (rng.random(n) < self.truth).astype(np.int64)
        self.group = rng.integers(0, groups, n)
        self.names = [f"g={i}" for i in range(groups)]

    def moved(self, shift: float) -> NDArray[np.float64]:
        return np.asarray(expit(logit(self.truth) + shift))

    def judge(
        self,
        served: NDArray[np.float64],
        candidate: NDArray[np.float64],
        kind: Literal["structure", "level"] = "structure",
        config: RefitSection = CONFIG,
        **change: Any,
    ) -> GateReport:
        return judge_candidate(self.cells(served, candidate), window(kind, **change), config)

    def cells(self, served: NDArray[np.float64], candidate: NDArray[np.float64]) -> GateCells:
        return GateCells(
            self.day,
            self.bucket,
            np.ones(len(self.label), np.int64),
            self.label,
            served,
            candidate,
            [CellGroups(self.names, self.group.astype(np.intp))],
            RowWeights().of_cells(np.ones(len(self.label))),
        )


def test_a_better_candidate_passes_with_its_figures() -> None:
    data = Data()
    report = data.judge(data.moved(0.5), data.truth)
    assert report.passed
    assert report.reasons == ()

    def loss(p: NDArray[np.float64]) -> float:
        return float(-np.mean(np.log(np.where(data.label == 1, p, 1 - p))))

    assert report.loss_served == pytest.approx(loss(data.moved(0.5)))
    assert report.loss_candidate == pytest.approx(loss(data.truth))
    assert report.gain == pytest.approx(loss(data.moved(0.5)) - loss(data.truth))
    assert report.rows == 4_000
    assert report.positives == data.label.sum()
    assert report.days == 7
    assert report.auc_served == pytest.approx(report.auc_candidate)


def test_the_lower_bound_is_that_of_the_worse_blocks() -> None:
    data = Data()
    served, candidate = data.moved(0.5), data.truth
    report = data.judge(served, candidate)
    gain = np.where(data.label == 1, np.log(candidate / served), np.log((1 - candidate) / (1 - served)))
    mean, n = gain.mean(), len(gain)
    errors = []
    for block in (data.day, data.bucket):
        sums = [np.sum(gain[block == b] - mean) for b in np.unique(block)]
        errors.append(np.sqrt(len(sums) / (len(sums) - 1) * np.sum(np.square(sums))) / n)
    assert [report.error_days, report.error_buckets] == pytest.approx(errors)
    assert report.gain_lower == pytest.approx(mean - 1.645 * max(errors))


def test_a_worse_candidate_is_refused() -> None:
    data = Data()
    report = data.judge(data.truth, data.moved(0.5))
    assert not report.passed
    assert "no_gain" in report.codes
    assert "mean gain -0." in report.reasons[0].detail


def test_a_gain_that_hangs_on_one_day_is_refused_for_its_lower_bound() -> None:
    data = Data()
    one_day = data.day == 3
    served = np.where(one_day, data.moved(2.5), data.truth)
    candidate = np.where(one_day, data.truth, data.moved(0.3))
    report = data.judge(served, candidate, config=CONFIG.model_copy(update={"gate_margin": 0.0}))
    assert report.gain is not None
    assert report.gain > 0
    assert report.codes == ("lower_bound_below_margin",)


def test_level_is_refused_only_beyond_the_margin() -> None:
    data = Data()
    slightly_worse = data.judge(data.truth, data.moved(0.05), kind="level")
    assert slightly_worse.gain is not None
    assert slightly_worse.gain < 0
    assert slightly_worse.passed
    assert not data.judge(data.truth, data.moved(0.05), kind="structure").passed
    assert not data.judge(data.truth, data.moved(0.8), kind="level").passed


def test_auc_may_not_fall() -> None:
    data = Data()
    rng = np.random.default_rng(2)
    shuffled = np.asarray(expit(logit(data.truth) + rng.normal(0, 0.5, len(data.truth))))
    report = data.judge(data.moved(2.0), shuffled)
    assert report.gain is not None
    assert report.gain > 0
    assert report.codes == ("auc_drop",)


def test_a_group_that_is_harmed_beyond_doubt_refuses() -> None:
    data = Data(8_000)
    served = np.where(data.group == 2, data.truth, data.moved(1.0))
    candidate = np.where(data.group == 2, data.moved(1.5), data.truth)
    report = data.judge(served, candidate, config=CONFIG.model_copy(update={"max_auc_drop": 1.0}))
    assert report.gain is not None
    assert report.gain > 0
    assert [g.name for g in report.harmed_groups] == ["g=2"]
    assert [(r.code, r.detail[:13]) for r in report.reasons] == [("group_harmed", "g=2 is harmed")]
    assert not report.passed


def test_groups_of_one_class_by_chance_are_underpowered_not_harmed() -> None:
    """Thirty rows that happen to be all negative have gains that are all alike; that proves no harm."""
    data = Data(8_000)
    small = np.arange(8_000) < 35
    data.group[small] = 4
    data.group[~small] %= 4
    data.label[small] = 0
    data.truth[small] = 0.1
    candidate = np.where(small, 0.13, data.truth)
    served = np.where(small, 0.1, data.moved(0.5))
    report = data.judge(served, candidate)
    assert report.passed
    assert "g=4" in report.underpowered_groups


def test_no_change_harms_nobody() -> None:
    passed = 0
    for seed in range(60):
        data = Data(2_000, seed=seed, groups=40)
        report = data.judge(data.moved(0.02), data.truth, kind="level")
        passed += report.passed
        assert report.harmed_groups == ()
    assert passed == 60


@pytest.mark.parametrize(
    ("rows", "change", "codes"),
    [
        (60, {}, ("too_few_rows",)),
        (0, {}, ("too_few_rows", "too_few_of_a_class")),
        (4_000, {"incomplete_share": 0.6}, ("labels_missing",)),
    ],
)
def test_too_little_to_judge_is_refused_with_the_reason(
    rows: int, change: dict[str, Any], codes: tuple[str, ...]
) -> None:
    data = Data(rows)
    report = data.judge(data.moved(0.5), data.truth, **change)
    assert not report.passed
    assert report.codes == codes
    assert report.gain is None


def test_too_few_of_one_class_is_refused() -> None:
    data = Data()
    data.label[:] = 0
    data.label[:5] = 1
    assert data.judge(data.moved(0.5), data.truth).codes == ("too_few_of_a_class",)


def test_a_single_day_leaves_the_buckets_to_judge() -> None:
    data = Data()
    data.day[:] = 0
    report = data.judge(data.moved(0.5), data.truth)
    assert report.error_days is None
    assert report.error_buckets is not None
    assert report.passed


def test_a_single_day_in_a_single_bucket_still_has_the_noise_of_its_labels() -> None:
    """As where the unit is a large customer, and the first day is judged."""
    data = Data(400)
    data.day[:] = 0
    data.bucket[:] = 16
    served = data.moved(0.1)
    report = data.judge(served, data.truth, kind="level")
    assert (report.error_days, report.error_buckets) == (None, None)
    assert report.gain is not None
    assert report.gain_lower is not None
    middle = (served + data.truth) / 2
    spread = logit(data.truth) - logit(served)
    assert report.gain - report.gain_lower == pytest.approx(
        1.645 * np.sqrt(np.sum(middle * (1 - middle) * spread**2)) / 400
    )


def test_scores_of_exactly_0_and_1_are_clipped_on_both_sides() -> None:
    data = Data()
    data.truth[:50] = 0.5
    served = data.moved(0.5)
    served[:50] = 0.0
    report = data.judge(served, data.truth)
    assert report.loss_served is not None
    assert np.isfinite(report.loss_served)
    assert report.passed


def test_every_code_of_refusal_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs/architecture.md").read_text(encoding="utf-8")
    assert [code for code in get_args(GateCode) if f"`{code}`" not in page] == []
