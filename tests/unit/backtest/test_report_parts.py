"""What the report's charts and tables are made of."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream_calib.backtest.outcome import AlarmFigures, GroupFigures, PolicyOutcome, Sums
from stream_calib.backtest.report.alarms import AlarmSpan, alarm_spans
from stream_calib.backtest.report.groups import group_map
from stream_calib.backtest.report.reliability import day_reliability
from stream_calib.backtest.report.series import period_series
from stream_calib.backtest.report.time_line import time_line
from stream_calib.calibration.metrics.binomial_bounds import clopper_pearson
from stream_calib.pages.svg import time_ticks
from stream_calib.pages.texts import percent_text, shortened, signed_percent_text, signed_text
from stream_calib.pages.trailing_mean import trailing_mean
from tests.unit.backtest.made_up_results import FIRST_DAY, PANE_MS, outcome

DAY_MS = 86_400_000
PACKAGE = Path(__file__).parents[3] / "stream_calib"


@pytest.fixture(scope="module")
def long() -> PolicyOutcome:
    return outcome(days=1_000)


def multiplied(one: PolicyOutcome, factor: int) -> PolicyOutcome:
    """Every row as often as `factor` says."""
    days = [
        msgspec.structs.replace(
            day,
            raw_bins=[(factor * n, factor * positives, factor * said) for n, positives, said in day.raw_bins],
        )
        for day in one.days
    ]
    return msgspec.structs.replace(one, days=days)


def test_periods_of_a_long_history_are_weeks_and_lose_nothing(long: PolicyOutcome) -> None:
    series = period_series(long)

    assert series.days == 7
    assert len(series.start_ms) == 143
    assert series.start_ms[0] == FIRST_DAY * DAY_MS
    assert series.labelled.sum() == pytest.approx(sum(day.served.labelled for day in long.days))
    assert series.raw_loss[1] == pytest.approx(sum(day.raw.log_loss for day in long.days[7:14]))
    assert series.psi[3] == max(day.psi or 0.0 for day in long.days[21:28])
    assert period_series(outcome(days=3)).days == 1
    assert np.isnan(period_series(outcome(days=3)).psi).all()


def test_bands_do_not_narrow_where_rows_of_a_day_are_only_repeated() -> None:
    one = outcome(days=140)
    plain, repeated = day_reliability(one, raw=True), day_reliability(multiplied(one, 5), raw=True)

    assert max(plain.overdispersion) > 2
    beyond = np.array(plain.overdispersion) > 1
    assert beyond.sum() >= 10
    for name in ("lower", "upper"):
        left, right = (np.array(getattr(made.curve, name))[beyond] for made in (plain, repeated))
        np.testing.assert_allclose(left, right, rtol=1e-9)


def test_bands_of_rows_that_vary_less_than_independent_ones_are_clopper_pearsons() -> None:
    one = outcome(days=70)
    steady = [msgspec.structs.replace(day, bins=[(40.0, 10.0, 9.0), *[(0.0, 0.0, 0.0)] * 19]) for day in one.days]

    made = day_reliability(msgspec.structs.replace(one, days=steady), raw=False)

    counted = 70 - 14
    n, k = np.array([40.0 * counted]), np.array([10.0 * counted])
    lower, upper = clopper_pearson(k, n, 0.025)
    assert made.overdispersion == [1.0]
    assert (made.curve.lower, made.curve.upper) == (lower.tolist(), upper.tolist())
    assert list(made.curve.probability) == pytest.approx([9 / 40])
    assert made.lower_edge == [0.0]


def group(name: str, labelled: float, positives: float, probability: float) -> GroupFigures:
    sums = Sums(labelled, positives, probability, 0.0, 0.0)
    return GroupFigures("plan", name, sums, sums, {"2013-04": (labelled, positives, probability)})


def test_groups_are_ordered_by_their_certain_error_and_coloured_only_beyond_chance() -> None:
    groups = [
        group("right", 5_000, 1_000, 1_000),
        group("few", 20, 8, 4),
        group("tiny", 3, 2, 0.45),
        group("much more", 9_000, 2_600, 2_000),
        group("fewer", 9_000, 1_700, 2_000),
        group("none came", 4_000, 0, 400),
        group("empty", 0, 0, 0),
    ]

    made = group_map(msgspec.structs.replace(outcome(days=60), groups=groups))

    assert [row.name for row in made.rows] == [
        f"plan: {name}" for name in ("none came", "much more", "fewer", "right", "few", "tiny", "empty")
    ]
    cells = {row.name.removeprefix("plan: "): row.months[0] for row in made.rows}
    assert {name: cell.css for name, cell in cells.items()} == {
        "none came": "less strength3",
        "much more": "more strength3",
        "fewer": "less strength2",
        "few": "",
        "tiny": "",
        "empty": "",
        "right": "",
    }
    assert cells["much more"].text == "+30\N{NO-BREAK SPACE}%"
    assert cells["much more"].said.replace("\N{NO-BREAK SPACE}", " ") == (
        "plan: much more, 2013-04: 9,000 labelled, said 22.2 %, came true 28.9 %, 30 % more than said"
    )
    assert cells["few"].said.endswith("more than said; chance can be all of it")
    assert cells["empty"].text == ""


def test_rows_that_share_days_count_less_in_the_map_of_groups() -> None:
    calm = outcome(days=60)
    stormy = [
        msgspec.structs.replace(day, served=msgspec.structs.replace(day.served, positives=day.served.positives + shock))
        for day, shock in zip(calm.days, 150 * np.sin(np.arange(60)), strict=True)
    ]

    effects = [group_map(msgspec.structs.replace(calm, days=days)).design_effect for days in (calm.days, stormy)]

    assert 1 <= effects[0] < effects[1]


def alarm(kind: str, state: str, pane: int) -> AlarmFigures:
    return msgspec.convert(
        {"id": f"{kind}{pane}", "kind": kind, "state": state, "pane": pane, "since_ms": pane - 5, "what": f"at {pane}"},
        AlarmFigures,
    )


def test_alarms_go_from_their_opening_to_their_closing_and_those_for_the_record_are_left_out() -> None:
    events = [
        alarm("psi", "open", 10),
        alarm("refit_published", "open", 11),
        alarm("residual", "open", 12),
        alarm("psi", "update", 13),
        alarm("psi", "close", 15),
        alarm("psi", "open", 20),
        alarm("label_outage", "close", 21),
    ]

    spans = alarm_spans(msgspec.structs.replace(outcome(days=2), alarms=events), 100)

    assert spans == [
        AlarmSpan("psi", 5, 1_100, 1_600, "at 10"),
        AlarmSpan("residual", 7, 1_300, None, "at 12"),
        AlarmSpan("psi", 15, 2_100, None, "at 20"),
    ]


def test_marks_that_share_a_place_are_one_and_a_long_time_line_is_no_larger(long: PolicyOutcome) -> None:
    hourly = [
        msgspec.structs.replace(long.refits[0], pane=FIRST_DAY * 24 + pane, outcome="published")
        for pane in range(1_000 * 24)
    ]

    chart = time_line(msgspec.structs.replace(long, refits=hourly), None, PANE_MS)

    marks = [part for part in chart.elements if 'class="event published"' in part]
    assert 400 < len(marks) < 450
    assert sum(1 + int(n) for n in re.findall(r"\(and (\d+) more close by\)", "".join(marks))) == len(hourly)
    assert "swaps 24,000" in "".join(chart.elements)
    assert len("".join(chart.elements)) < 250_000


def test_ticks_of_time_are_months_or_days_and_few() -> None:
    start = FIRST_DAY * DAY_MS

    assert time_ticks(start, start + 120 * DAY_MS) == [
        (start + 31 * DAY_MS, "Feb"),
        (start + 59 * DAY_MS, "Mar"),
        (start + 90 * DAY_MS, "Apr"),
        (start + 120 * DAY_MS, "May"),
    ]
    assert [name for _, name in time_ticks(start + 5, start + 3 * DAY_MS)] == ["2 Jan", "3 Jan", "4 Jan"]
    assert all(0 < len(time_ticks(start, start + days * DAY_MS)) <= 14 for days in range(1, 4_000, 13))


def test_the_trailing_mean_is_weighted_and_nan_without_weight() -> None:
    mean = trailing_mean([0, 0, 6, 9, 0], [0, 0, 2, 1, 0], 2)

    np.testing.assert_array_equal(mean, [np.nan, np.nan, 3, 5, 9])


def test_figures_as_texts() -> None:
    space = "\N{NO-BREAK SPACE}"
    assert [signed_text(value, 2) for value in (0.5, -0.5, None, float("nan"))] == ["+0.50", "\u22120.50", "", "\u2013"]
    assert (percent_text(0.1234), signed_percent_text(-0.05)) == (f"12.3{space}%", f"\u22125{space}%")
    assert [shortened("abcdef", most) for most in (6, 5)] == ["abcdef", "abcd\N{HORIZONTAL ELLIPSIS}"]


def colours() -> dict[str, dict[str, str]]:
    """Scheme -> custom property -> colour, as a browser would take them."""
    out: dict[str, dict[str, str]] = {"light": {}, "dark": {}, "print": {}}
    for path in (PACKAGE / "pages/page.css", PACKAGE / "backtest/report/report.css"):
        for part in re.split(r"(?=@media|\n:root)", path.read_text(encoding="utf-8")):
            scheme = "dark" if "scheme: dark" in part else "print" if part.startswith("@media print") else "light"
            found = dict(re.findall(r"--([\w-]+): (#\w{6})", part))
            if part.startswith(("@media", ":root", "\n:root")):
                out[scheme] |= found
    return {scheme: out["light"] | own for scheme, own in out.items()}


def luminance(colour: str) -> float:
    """Relative, as WCAG 2 defines it."""
    channels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_colours_have_contrast(scheme: str) -> None:
    shown = colours()[scheme]
    heat = [f"{side}-{step}" for side, step in product(("more", "less"), (1, 2, 3))]
    names = ("text", "soft", "raw", "calibrated", "best", "good", "bad")
    pairs = [(name, "page") for name in names] + [("text", name) for name in (*heat, "note")]

    for over, under in pairs:
        high, low = sorted((luminance(shown[over]), luminance(shown[under])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (over, under)
