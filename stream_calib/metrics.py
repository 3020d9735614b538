"""Every exported metric, in one place. Labels are bounded: topics, reason codes, kinds; never ids or group values."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

SCORES_SERVED = Counter("stream_calib_scores_served_total", "Scores written to `calibrated`, by status", ["status"])
SCORE_TOMBSTONES = Counter("stream_calib_score_tombstones_total", "Score records without a value, skipped")
REJECTED = Counter("stream_calib_rejected_total", "Records refused, by topic and reason", ["topic", "reason"])
SNAPSHOT_STALENESS_SECONDS = Gauge(
    "stream_calib_snapshot_staleness_seconds", "Time since the snapshot pointer was last read, with the state away"
)
ROWS_JOINED = Counter("stream_calib_rows_applied_total", "Rows and labels applied to the join, by side", ["side"])
REWINDS = Counter("stream_calib_input_rewinds_total", "Inputs read again because a shard had fallen behind")
REFITS = Counter("stream_calib_refits_total", "Refit requests answered, by outcome", ["outcome"])
GATE_REFUSALS = Counter("stream_calib_gate_refusals_total", "Reasons for which the gate refused, by code", ["code"])
ALERTS_DELIVERED = Counter("stream_calib_alerts_delivered_total", "Alerts delivered to the alerts topic")
