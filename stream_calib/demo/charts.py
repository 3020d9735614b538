"""The report's charts of probabilities against outcomes, as SVG: reliability, and residuals of groups."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.demo.report_data import RELIABILITY_BINS, GroupResidual, Reliability
from stream_calib.pages.reliability_chart import Curve, counted_reliability
from stream_calib.pages.residual_chart import ResidualRow, residual_chart
from stream_calib.pages.svg import drawing


def reliability_chart(data: Reliability, css: str, name: str) -> str:
    """Share of positives against mean probability, with intervals; below it how many rows each bin has.

    `css` is the class of the series, "raw" or "calibrated".
    """
    curve = Curve(
        data.mean_probability.tolist(),
        data.rate.tolist(),
        data.rate_low.tolist(),
        data.rate_high.tolist(),
        data.n.tolist(),
    )
    lower_edge = data.lower_edge.tolist()
    return drawing(*counted_reliability(curve, lower_edge, 1 / RELIABILITY_BINS, css, name, "flights"))


def group_chart(groups: Sequence[GroupResidual]) -> str:
    """For each group how far the mean probability is off, raw and calibrated, in percentage points."""
    rows = [ResidualRow(g.family, g.name, g.n, g.rate, g.raw, g.calibrated) for g in groups]
    return residual_chart(rows, ("raw", "calibrated"), "flights")
