from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from stream_calib.refit.gate_groups import JudgedGroup, judge_groups
from stream_calib.refit.gate_rows import GateLosses
from stream_calib.snapshot.report import MOST_HARMED, MOST_UNDERPOWERED, GateReport
from tests.unit.refit.test_gate import CONFIG, Data


def groups_of(data: Data, harmed: int) -> dict[str, JudgedGroup]:
    """As judged where the candidate is wrong about one group and right about all others."""
    served = np.where(data.group == harmed, data.truth, data.moved(1.0))
    cells = data.cells(served, np.where(data.group == harmed, data.moved(1.5), data.truth))
    return {group.name: group for group in judge_groups(cells, GateLosses.of(cells))}


def test_each_group_has_its_figures_and_a_verdict() -> None:
    data = Data(8_000)
    found = groups_of(data, harmed=2)
    assert {name: group.verdict for name, group in found.items()} == {f"g={i}": "better" for i in range(5)} | {
        "g=2": "harmed"
    }
    inside = data.group == 2
    p, q, y = data.truth[inside], data.moved(1.5)[inside], data.label[inside] == 1
    gain = np.where(y, np.log(q / p), np.log((1 - q) / (1 - p)))
    assert found["g=2"].rows == inside.sum()
    assert found["g=2"].gain == pytest.approx(gain.mean())
    assert found["g=2"].half_width == pytest.approx(found["g=2"].error * t.ppf(1 - 0.05 / 5, 6))
    assert found["g=2"].harm_lower == pytest.approx(-gain.mean() - found["g=2"].half_width)


def test_a_group_that_is_one_large_unit_is_judged_by_its_days() -> None:
    data = Data(8_000)
    data.bucket[data.group == 2] = 17
    found = groups_of(data, harmed=2)
    assert found["g=2"].verdict == "harmed"


def test_a_single_day_is_too_little_to_judge_a_group_by() -> None:
    data = Data(8_000)
    data.day[:] = 3
    assert {group.verdict for group in groups_of(data, harmed=2).values()} == {"underpowered"}


def report_of(groups: int, rows: int, harmed: bool) -> GateReport:
    data = Data(groups * rows, groups=groups)
    data.group = np.arange(groups * rows) % groups
    wrong = data.moved(3.0)
    config = CONFIG.model_copy(update={"max_auc_drop": 1.0})
    return data.judge(data.truth, wrong, config=config) if harmed else data.judge(wrong, data.truth, config=config)


def test_of_many_harmed_groups_the_worst_are_named() -> None:
    report = report_of(MOST_HARMED + 10, 2_000, harmed=True)
    assert (len(report.harmed_groups), report.harmed_left_out) == (MOST_HARMED, 10)
    assert sum(reason.code == "group_harmed" for reason in report.reasons) == MOST_HARMED
    worst = [group.harm_lower * group.rows for group in report.harmed_groups]
    assert worst == sorted(worst, reverse=True)


def test_of_many_groups_too_small_to_tell_the_largest_are_named() -> None:
    report = report_of(400, 8, harmed=False)
    assert (len(report.underpowered_groups), report.underpowered_left_out) == (
        MOST_UNDERPOWERED,
        400 - MOST_UNDERPOWERED,
    )
    assert list(report.underpowered_groups) == sorted(report.underpowered_groups)
