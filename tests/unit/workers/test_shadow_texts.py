from __future__ import annotations

from dataclasses import replace

from stream_calib.refit.shadow_evaluation import ShadowFigures
from workers.shadow_texts import gain_text, shadow_rows

FIGURES = ShadowFigures(
    version="000012-89abcdef0123",
    first_pane=378_370,
    last_pane=378_393,
    incomplete_panes=2,
    rows=12_700,
    positives=2_540,
    loss_served=0.50291,
    loss_shadow=0.5021,
    gain=0.00081,
    gain_error=0.0004,
    worst_group_served=2.51,
    worst_group_shadow=1.8,
)


def test_both_are_named_with_their_figures() -> None:
    assert shadow_rows(FIGURES, 3_600_000) == [
        (
            "evaluated on",
            "2013-03-01 10:00 until 2013-03-02 10:00: 12,700 labelled rows, 2 panes without their labels left out",
        ),
        ("log-loss", "0.50210 by the shadow, 0.50291 by what was served"),
        ("gain a row", "+0.00081 (standard error 0.00040 by days)"),
        ("worst group error", "1.80 % by the shadow, 2.51 % by what was served"),
    ]


def test_what_is_not_known_is_not_made_up() -> None:
    one_class = replace(FIGURES, incomplete_panes=0, gain_error=None, worst_group_served=None, worst_group_shadow=None)
    rows = dict(shadow_rows(one_class, 3_600_000))
    assert rows["worst group error"] == "-"
    assert rows["gain a row"] == "+0.00081"
    assert gain_text(replace(FIGURES, gain=None)) == "-"
    ((_, nothing),) = shadow_rows(replace(FIGURES, last_pane=FIGURES.first_pane - 1), 3_600_000)
    assert nothing.startswith("nothing yet")
