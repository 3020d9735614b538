"""What a fit of the Multicalibrator found, as text."""

from __future__ import annotations

from textwrap import wrap

import numpy as np

from stream_calib.calibration.five_folds import Chosen
from stream_calib.calibration.multicalibration.certificate import Certificate
from stream_calib.calibration.multicalibration.finite import MulticalibrationResult
from stream_calib.calibration.multicalibration.held_out import HeldOut
from stream_calib.calibration.multicalibration.round_search import RoundReport
from stream_calib.calibration.text_table import text_table

_SHOWN = 5
"""Audit cells with rows, at most."""
_WIDTH = 80
"""Of warnings, beside 20 characters for the title."""


def summary_text(chosen: Chosen, result: MulticalibrationResult, held_out: HeldOut | None) -> str:
    """Lines of at most about 100 characters, without one at the end."""
    lines = [f"base map, offsets   {chosen.configuration.name}"]
    lines += _warnings(chosen)
    lines += _patches(result)
    lines += ["", *_certificate(result.certificate), "", *_losses(held_out)]
    return "\n".join(lines)


def _warnings(chosen: Chosen) -> list[str]:
    """Why rungs were refused: mostly because outcomes become rarer as the score rises."""
    lines = []
    for rung, reason in chosen.refused.items():
        lines += wrap(f"{rung} was refused: {reason}", _WIDTH)
    if "platt" in chosen.refused:
        lines.append("if low scores mean likely outcomes, turn the score round: fit and predict 1 - score")
    return [f"{'' if place else 'warning':<20}{line}" for place, line in enumerate(lines)]


def _patches(result: MulticalibrationResult) -> list[str]:
    if not result.rounds:
        return ["patches             none: no residual beyond its alpha and beyond noise"]
    confirmed = "confirmed" if result.confirmable else f"uncertified: a bucket needs {result.rows_needed:,.0f} rows"
    lines = [f"patches             {confirmed}"]
    return lines + [f"  {place}. {_round(report)}" for place, report in enumerate(result.rounds, start=1)]


def _round(report: RoundReport) -> str:
    verdict = "accepted" if report.accepted else "refused"
    proof = f"standard error {report.standard_error:.2g}"
    if report.lower_bound is not None:
        proof = f"at least {report.lower_bound:.3g}"
    groups = len(report.patches.shifts)
    return (
        f"{verdict}: {report.patches.rule.name}, {groups} group{'s' if groups > 1 else ''}; "
        f"Brier score falls by {report.mean_gain:.3g} ({proof}) on {report.rows:,.0f} rows"
    )


def _certificate(certificate: Certificate) -> list[str]:
    target = certificate.target
    if certificate.alpha_claimed >= 1:
        return [f"certificate         claims nothing: {certificate.total_rows:,.0f} rows do not suffice"]
    lines = [
        f"certificate         {certificate.status}, on {certificate.total_rows:,.0f} rows: with probability "
        f"{1 - certificate.delta:g} no cell of mass >= {target.gamma:g}",
        f"                    is off by more than {certificate.alpha_claimed:.4f}; so many rows could have shown "
        f"{certificate.detectable_alpha:.4f} at best",
    ]
    shown = np.flatnonzero(certificate.rows)[:_SHOWN].tolist()
    body = [
        (
            certificate.cell_name(place),
            f"{certificate.rows[place]:,.0f}",
            f"{certificate.residual[place]:+.4f}",
            f"{certificate.half_width[place]:.4f}",
            f"{certificate.alpha[place]:.4f}",
        )
        for place in shown
    ]
    return lines + text_table(("cells", "rows", "residual", "+-", "alpha"), body)


def _losses(held_out: HeldOut | None) -> list[str]:
    if held_out is None:
        return ["held out            no rows"]
    return text_table(
        (f"held out, {held_out.rows:,} rows", "raw", "calibrated"),
        [
            ("log-loss", f"{held_out.raw_log_loss:.5f}", f"{held_out.log_loss:.5f}"),
            ("Brier score", f"{held_out.raw_brier:.5f}", f"{held_out.brier:.5f}"),
        ],
    )
