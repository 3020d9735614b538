"""Paired differences of policies with the current one, with their intervals, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.backtest.document import Interval
from stream_calib.backtest.report.choice import Chosen, side
from stream_calib.backtest.report.policy_table import interval_text
from stream_calib.pages.svg import Drawing, Scale, element, signed
from stream_calib.pages.texts import shortened, signed_text

MOST_DRAWN = 25
_WIDTH, _ROW, _TOP, _LONGEST_NAME, _LETTER = 860.0, 22.0, 22.0, 44, 7.8


def difference_chart(shown: Chosen) -> Drawing:
    """The MOST_DRAWN policies of least log-loss beside the current one; left of 0 is better."""
    table = sorted(shown.document.table, key=lambda figures: figures.log_loss.value)
    rows = [(f.policy, f.log_loss_difference) for f in table if f.log_loss_difference is not None][:MOST_DRAWN]
    names = _distinct_names([policy for policy, _ in rows])
    longest = max((len(name) for name in names), default=0)
    left = max(120.0, longest * _LETTER + 24)
    bottom = _TOP + _ROW * len(rows) + 4
    reach = max((abs(end) for _, difference in rows for end in _ends(difference)), default=0.0) * 1.06 or 1e-6
    x = Scale(-reach, reach, left, _WIDTH - 16)
    out = []
    for tick in x.ticks(5):
        css = "axis" if tick == 0 else "grid"
        out.append(element("line", css, x1=x(tick), x2=x(tick), y1=_TOP, y2=bottom))
        out.append(element("text", "tick middle", x=x(tick), y=bottom + 18, text=signed(tick)))
    out.append(element("text", "axis-name end", x=x(0) - 8, y=12, text="\N{LEFTWARDS ARROW} better than the current"))
    out.append(element("text", "axis-name", x=x(0) + 8, y=12, text="worse \N{RIGHTWARDS ARROW}"))
    for line, ((policy, difference), name) in enumerate(zip(rows, names, strict=True)):
        out += _row(policy, name, difference, x, _TOP + _ROW * (line + 0.5) + 2)
    label = "Difference of each policy's log-loss with the current policy's, with intervals"
    return Drawing(_WIDTH, bottom + 24, label, out)


def _distinct_names(names: Sequence[str]) -> list[str]:
    """At most _LONGEST_NAME characters each, without the words that all of them have: what a grid did not vary."""
    words = [name.split(" ") for name in names]
    common = set.intersection(*map(set, words)) if len(names) > 1 else set()
    told = [" ".join(word for word in one if word not in common) for one in words]
    if len({shortened(name, _LONGEST_NAME) for name in told}) < len(set(names)):
        half = _LONGEST_NAME // 2
        told = [
            name if len(name) <= _LONGEST_NAME else name[: half - 1] + "\N{HORIZONTAL ELLIPSIS}" + name[-half:]
            for name in told
        ]
    return [
        shortened(name, _LONGEST_NAME) or shortened(whole, _LONGEST_NAME)
        for name, whole in zip(told, names, strict=True)
    ]


def _ends(difference: Interval) -> list[float]:
    return [end for end in (difference.value, difference.low, difference.high) if end is not None]


def _row(policy: str, name: str, difference: Interval, x: Scale, centre: float) -> list[str]:
    seen = side(difference)
    interval = interval_text(difference, 5, signed=True)
    said = f"{policy}: {signed_text(difference.value, 5)}" + (f" (95 %: {interval})" if interval else "")
    out = [element("text", "tick end group-name", x=x.start - 10, y=centre + 4, text=name)]
    if difference.low is not None and difference.high is not None:
        low, high = x(difference.low), x(difference.high)
        out.append(element("line", f"difference {seen}", x1=low, x2=high, y1=centre, y2=centre))
    at = x(difference.value)
    # The shape says it too: beyond chance is filled.
    if seen in ("better", "worse"):
        out.append(element("rect", f"mark {seen}", title=said, x=at - 4.5, y=centre - 4.5, width=9, height=9))
    else:
        out.append(element("circle", f"mark {seen}", title=said, cx=at, cy=centre, r=4.5))
    return out
