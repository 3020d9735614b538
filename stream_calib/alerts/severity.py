"""Severities in order, and how loud the log says them."""

from __future__ import annotations

import logging

from stream_calib.alerts.model import Severity

RANK: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}
"""The worst has the largest."""
LOG_LEVEL: dict[Severity, int] = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}
