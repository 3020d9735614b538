"""Severities in order."""

from __future__ import annotations

from stream_calib.alerts.model import Severity

RANK: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}
"""The worst has the largest."""
