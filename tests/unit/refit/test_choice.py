from __future__ import annotations

import numpy as np
import pytest

from stream_calib.config import Config
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import RUNGS_COMPARED, variants
from stream_calib.refit.forward_evidence import ForwardDay

CONFIG = Config.model_validate(
    {
        "model": {"name": "m"},
        "scores": {
            "attributes": {"region": "r", "device": "d"},
            "intersections": [["region", "device"]],
            "derived": ["hour_of_day"],
        },
        "windows": {"horizon": "2h"},
    }
)
COMPARED = variants(CONFIG)
ROWS = 1_000


def days(worse: dict[str, float], count: int = 10, missing: str | None = None) -> list[ForwardDay]:
    """`worse`: mean loss a row that a variant has more than the full one; it varies by 10 % from day to day."""
    made = []
    for day in range(count):
        varied = 1.1 if day % 2 else 0.9
        losses = [ROWS * (0.5 + varied * worse.get(v.name, 0.01)) for v in COMPARED]
        losses[0] = ROWS * 0.5
        made.append(
            ForwardDay(
                day, ROWS, tuple(None if v.name == missing else x for v, x in zip(COMPARED, losses, strict=True))
            )
        )
    return made


def test_what_is_compared() -> None:
    assert [v.name for v in COMPARED] == [
        "full",
        "family region",
        "family device",
        "family region & device",
        "rung platt",
        "rung beta",
        "rung isotonic",
        "slopes region",
        "slopes device",
        "derived hour_of_day",
        "patches",
    ]


@pytest.mark.parametrize("count", [0, 6])
def test_before_seven_days_everything_configured_on_girb(count: int) -> None:
    chosen = choose(COMPARED, days({v.name: -0.1 for v in COMPARED}, count), "h", CONFIG)
    assert chosen.configuration == COMPARED[0].configuration
    assert (chosen.derived, chosen.document.patches, chosen.document.days) == ((), False, count)
    assert {figure.difference for figure in chosen.document.figures} <= {None}


def test_configured_families_go_only_when_they_harm() -> None:
    same = choose(COMPARED, days({"family region": 0.0}), "h", CONFIG)
    assert same.document.families_off == ()
    harmful = choose(COMPARED, days({"family region": -0.01}), "h", CONFIG)
    assert harmful.document.families_off == ("region",)
    assert [rule.name for rule in harmful.configuration.families] == ["device", "region & device"]


def test_all_else_comes_on_only_with_proof() -> None:
    for name in ("slopes device", "derived hour_of_day", "patches"):
        without = choose(COMPARED, days({name: 0.0}), "h", CONFIG)
        assert not {f.name: f.on for f in without.document.figures}[name]
        proved = choose(COMPARED, days({name: -0.01}), "h", CONFIG)
        assert {f.name: f.on for f in proved.document.figures}[name]
    both = choose(COMPARED, days({"slopes device": -0.01, "derived hour_of_day": -0.01}), "h", CONFIG)
    assert both.derived == ("hour_of_day",)
    assert both.configuration.families[-1].positions == (2,)
    assert both.document.slopes == ("device",)


def test_a_family_that_is_off_has_no_slopes() -> None:
    chosen = choose(COMPARED, days({"family device": -0.01, "slopes device": -0.01}), "h", CONFIG)
    assert chosen.document.slopes == ()


def test_the_simplest_rung_within_one_standard_error() -> None:
    assert RUNGS_COMPARED[0] == "platt"
    equal = choose(COMPARED, days({"rung platt": 0.0, "rung beta": 0.0}), "h", CONFIG)
    assert equal.document.rung == "platt"
    worse = choose(COMPARED, days({"rung platt": 0.001, "rung beta": 0.0}), "h", CONFIG)
    assert worse.document.rung == "beta"
    best = choose(COMPARED, days({}), "h", CONFIG)
    assert best.document.rung == "girb"
    figures = {f.name: f for f in worse.document.figures}
    assert figures["rung platt"].difference == pytest.approx(0.001)
    # Ten days of .0009 and .0011: sqrt(10 / 9 x 10) x .1 / 10,000 a row.
    assert figures["rung platt"].standard_error == pytest.approx(np.sqrt(10 / 9 * 10) * 0.1 / 10_000)


def test_a_rung_without_a_loss_on_every_day_is_not_chosen() -> None:
    chosen = choose(COMPARED, days({"rung platt": -0.1}, missing="rung platt"), "h", CONFIG)
    assert chosen.document.rung == "girb"
    assert "rung platt" not in {figure.name for figure in chosen.document.figures}
