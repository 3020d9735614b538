"""Attributes derived from the start of a pane, as far as they are configured: candidates for the map's signatures."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config import Config
from stream_calib.snapshot.fit_documents import DerivedDocument


def derived_names(config: Config) -> tuple[str, ...]:
    """Names of the configured derived attributes, in their order."""
    return tuple(config.scores.derived)


def derived_document(derived: TimeAttributes | None) -> DerivedDocument | None:
    """As a snapshot names them."""
    return None if derived is None else DerivedDocument(names=derived.names, zone=derived.zone)


def time_attributes(config: Config, names: Sequence[str]) -> TimeAttributes | None:
    """Some of the configured derived attributes; None without names."""
    return TimeAttributes(tuple(names), config.scores.zone, config.windows.pane_ms) if names else None
