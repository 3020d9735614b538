"""The text of `--inject`: what it means, and what is said where it means nothing."""

from __future__ import annotations

import pytest

from stream_calib.backtest.what_if.faults import Injection, Member, parse_scenario
from stream_calib.errors import BacktestError
from tests.unit.backtest.made_histories import configuration

CONFIG = configuration()
JUNE_MS = 1_370_044_800_000


def test_a_shift_of_a_group_from_a_date_on() -> None:
    (one,) = parse_scenario("shift group=carrier:UA size=.5 from=2013-06-01", CONFIG).faults
    assert one == Injection("shift", 0.5, (Member("carrier", 0, "UA"),), JUNE_MS, None)
    assert str(one) == "outcomes of carrier UA moved by +0.5 in log-odds, from 2013-06-01 00:00"


def test_values_may_hold_blanks_colons_and_semicolons() -> None:
    text = "traffic group='carrier:United; Air' group=origin:E:WR factor=2 from='2013-06-01 02:00+02:00'"
    (one,) = parse_scenario(text, CONFIG).faults
    assert one.group == (Member("carrier", 0, "United; Air"), Member("origin", 1, "E:WR"))
    assert one.from_ms == JUNE_MS


def test_several_faults_make_a_scenario() -> None:
    text = (
        "outage from=2013-06-02 until=2013-06-03T12:00 ; delay by=2d from=2013-06-01;"
        "duplicate share=30% from=2013-06-04"
    )
    scenario = parse_scenario(text, CONFIG)
    assert [(one.fault, one.amount) for one in scenario.faults] == [
        ("outage", 1.0),
        ("delay", 172_800_000.0),
        ("duplicate", 0.3),
    ]
    assert scenario.from_ms == JUNE_MS
    assert str(scenario) == (
        "no labels for all events, from 2013-06-02 00:00 until 2013-06-03 12:00; labels final 2d later, from 2013-06-01"
        " 00:00; 30% of all events counted twice, from 2013-06-04 00:00"
    )


def test_a_missing_label_that_is_a_negative_is_known() -> None:
    config = configuration(missing_label="negative_at_horizon")
    assert parse_scenario("outage from=2013-06-01", config).faults[0].missing_is_negative
    assert not parse_scenario("outage from=2013-06-01", CONFIG).faults[0].missing_is_negative


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a fault is missing; write one of shift, traffic, outage, delay, duplicate"),
        ("outage from=2013-06-01;", "a fault is missing"),
        ("shft size=1 from=2013-06-01", "'shft' is no fault"),
        ("shift size=1", "from is missing; from= takes a time, as 2013-06-01"),
        ("shift from=2013-06-01", "size is missing; size= takes log-odds"),
        ("duplicate from=2013-06-01", "share is missing; share= takes a share of the events"),
        ("shift size=0 from=2013-06-01", "size=0 cannot be used; it takes log-odds from -10 to 10"),
        ("shift size=nan from=2013-06-01", "size=nan cannot be used"),
        ("shift size=big from=2013-06-01", "size=big cannot be used"),
        ("traffic factor=1 from=2013-06-01", "factor=1 cannot be used; it takes a factor from 0 to 100"),
        ("traffic factor=-1 from=2013-06-01", "factor=-1 cannot be used"),
        ("outage share=120% from=2013-06-01", "share=120% cannot be used"),
        ("delay by=5 from=2013-06-01", "by=5 cannot be used; it takes a duration"),
        ("delay by=0h from=2013-06-01", "by=0h cannot be used"),
        ("shift siz=1 from=2013-06-01", "'siz=1' says nothing of a shift; did you mean size?"),
        ("shift now", "'now' says nothing of a shift; shift takes group, size, from, until, seed, each as key=value"),
        ("delay by=1h group=carrier:UA from=2013-06-01", "'group=carrier:UA' says nothing of a delay"),
        ("shift size=1 size=2 from=2013-06-01", "size is there twice"),
        ("shift size=1 from=June", "from=June is no time; write 2013-06-01"),
        ("shift size=1 from=2013-06-02 until=2013-06-02", "it ends before it begins"),
        ("shift size=1 seed=-1 from=2013-06-02", "seed=-1 is no seed"),
        ("shift size=1 group=carier:UA from=2013-06-02", "write group=ATTRIBUTE:VALUE; did you mean carrier?"),
        ("shift size=1 group=UA from=2013-06-02", "there are: carrier, origin"),
        ("shift size=1 group=carrier:UA group=carrier:B6 from=2013-06-02", "one attribute is there twice"),
        ("shift group='carrier:UA size=1", "No closing quotation; quote values with blanks"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, said: str) -> None:
    with pytest.raises(BacktestError) as raised:
        parse_scenario(text, CONFIG)
    assert said in str(raised.value)
    assert str(raised.value).startswith(f"--inject {text!r}: ")
