"""Every exported metric, in one place: name, meaning, labels, and which part of a process sets it.

Labels are bounded: topics, partitions, reason codes, kinds, roles, and `model` (the model key, as `churn/1`; at most
`model.max_keys` of them). Never ids, group values or versions, but for the one snapshot that is served.

Times are exported as Unix timestamps, not as ages: a process that hangs would show an age that stands still.
`time() - <metric>` is the age; over several processes the largest timestamp counts. What only the holder of a lease
knows is withdrawn when it loses the lease, so that two processes never contradict each other.

docs/metrics.md is made from this module (metrics_reference.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as docs/metrics.md shows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    set_by: str


CATALOGUE: list[Described] = []
"""Every metric, in the order of this module."""


def _counter(name: str, meaning: str, labels: Sequence[str] = (), *, set_by: str) -> Counter:
    CATALOGUE.append(Described(name, "counter", tuple(labels), meaning, set_by))
    return Counter(name, meaning, labels)


def _gauge(name: str, meaning: str, labels: Sequence[str] = (), *, set_by: str) -> Gauge:
    CATALOGUE.append(Described(name, "gauge", tuple(labels), meaning, set_by))
    return Gauge(name, meaning, labels)


def _histogram(
    name: str, meaning: str, labels: Sequence[str] = (), *, buckets: Sequence[float], set_by: str
) -> Histogram:
    CATALOGUE.append(Described(name, "histogram", tuple(labels), meaning, set_by))
    return Histogram(name, meaning, labels, buckets=buckets)


_BATCH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_CALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_REFIT_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_BATCH_RECORDS = (1, 10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000)

# --- the process and its roles (workers/role.py, workers/run.py, workers/health.py)

BUILD = _gauge(
    "stream_calib_build_info",
    "Always 1; the version of stream-calib that runs",
    ["version"],
    set_by="run",
)
ROLE_TURN_TIMESTAMP = _gauge(
    "stream_calib_role_turn_timestamp_seconds",
    "When the role's loop last came round; /healthz fails once it is older than `http.hung_after`",
    ["role"],
    set_by="every role",
)
ROLE_READY = _gauge(
    "stream_calib_role_ready",
    "1 while the role is open and at work, 0 while it starts, waits for a server, or cannot serve yet",
    ["role"],
    set_by="every role",
)
ROLE_PAUSES = _counter(
    "stream_calib_role_pauses_total",
    "Steps that failed because a server was away and are tried again; server: `log` or `state`",
    ["role", "server"],
    set_by="every role",
)

# --- batches and the log (workers/batch_stages.py, workers/input_metrics.py, workers/input_gaps.py, workers/rejects.py)

BATCH_STAGE_SECONDS = _histogram(
    "stream_calib_batch_stage_seconds",
    "Time of one stage of a batch that held records: fetch (waiting included), decode, apply, encode, commit",
    ["role", "stage"],
    buckets=_BATCH_SECONDS,
    set_by="calibrate, monitor",
)
BATCH_RECORDS = _histogram(
    "stream_calib_batch_records",
    "Records of one batch that held any",
    ["role"],
    buckets=_BATCH_RECORDS,
    set_by="calibrate, monitor",
)
RECORDS_READ = _counter(
    "stream_calib_records_read_total",
    "Records read, also those of batches that were dropped and read again",
    ["role", "topic"],
    set_by="calibrate, monitor",
)
COMMITS = _counter(
    "stream_calib_commits_total",
    "Commits of a batch, by outcome: committed, fenced (another member has the partition; the batch is dropped), failed"
    " (not known to have happened; worked off again)",
    ["role", "outcome"],
    set_by="calibrate, monitor",
)
INPUT_LAG = _gauge(
    "stream_calib_input_lag_records",
    "Offsets between the role's position and the end of the partition, for partitions that this process reads",
    ["role", "topic", "partition"],
    set_by="calibrate, monitor",
)
POSITIONS_LOST = _counter(
    "stream_calib_positions_lost_total",
    'Offsets that retention removed before they were read, skipped under `log.on_position_lost = "skip"`',
    ["role", "topic"],
    set_by="calibrate, monitor",
)
REJECTED = _counter(
    "stream_calib_rejected_total",
    "Records refused, by topic and reason code",
    ["topic", "reason"],
    set_by="calibrate, monitor",
)

# --- calibrate (workers/calibrate.py, snapshot/served_metrics.py)

SCORES_SERVED = _counter(
    "stream_calib_scores_served_total",
    "Scores served, in `calibrated` or in answers to requests, by status",
    ["model", "status"],
    set_by="calibrate, live calibration",
)
SCORES_NOT_COUNTED = _counter(
    "stream_calib_scores_not_counted_total",
    "Scores served that the monitor does not get: their event id is not in the sample (`scores.sample_rate`), or they"
    " are fused of scores that have no snapshot yet",
    ["model"],
    set_by="calibrate, live calibration",
)
SCORE_TOMBSTONES = _counter(
    "stream_calib_score_tombstones_total", "Score records without a value, skipped", set_by="calibrate"
)
SCORE_ODDITIES = _counter(
    "stream_calib_score_oddities_total",
    "Scores served although something was odd, by kind: score_clamped (a hair outside [0, 1]), unit_replaced (the event"
    " id stands in), attribute_dropped (an attribute value, now `__missing__`)",
    ["kind"],
    set_by="calibrate",
)
SNAPSHOT_INFO = _gauge(
    "stream_calib_snapshot_info",
    "Always 1; the version of the snapshot that is served. A model's other versions are withdrawn",
    ["model", "version"],
    set_by="calibrate, live calibration",
)
SNAPSHOT_SEQUENCE = _gauge(
    "stream_calib_snapshot_sequence",
    "Sequence number of the snapshot that is served, 0 before the first",
    ["model"],
    set_by="calibrate, live calibration",
)
SNAPSHOT_DATA_TIMESTAMP = _gauge(
    "stream_calib_snapshot_data_timestamp_seconds",
    "Event time at which the data of the served snapshot's fit ends",
    ["model"],
    set_by="calibrate, live calibration",
)
SNAPSHOT_STALENESS_SECONDS = _gauge(
    "stream_calib_snapshot_staleness_seconds",
    "Time since the snapshot pointer was last read; grows while the state is away",
    ["model"],
    set_by="calibrate, live calibration",
)
SNAPSHOT_DAMAGED = _gauge(
    "stream_calib_snapshot_damaged",
    "1 while the pointer names a snapshot that cannot be served, and the one before is served on",
    ["model"],
    set_by="calibrate, live calibration",
)

UNREPLICATED = _counter(
    "stream_calib_unreplicated_changes_total",
    "Publications and other changes of the decision log that no replica had within a second, though there is one",
    ["model"],
    set_by="refit, the command line",
)

# --- calibration in the request path (stream_calib/live)

LIVE_REJECTED = _counter(
    "stream_calib_live_rejected_total",
    "Events of requests refused, by reason code",
    ["model", "reason"],
    set_by="live calibration",
)
LIVE_ROWS_WRITTEN = _counter(
    "stream_calib_live_rows_written_total",
    "Rows written to `live_blocks` for the monitor",
    set_by="live calibration",
)
LIVE_ROWS_WAITING = _gauge(
    "stream_calib_live_rows_waiting",
    "Rows that wait to be written to `live_blocks`; grows while the log is away",
    set_by="live calibration",
)
LIVE_ROWS_LOST = _counter(
    "stream_calib_live_rows_lost_total",
    "Rows served that the monitor never sees: more waited than may, or the process ended before they were written",
    set_by="live calibration",
)

# --- monitor (workers/monitor.py, workers/monitored_model.py, workers/pane_metrics.py)

ROWS_JOINED = _counter(
    "stream_calib_rows_applied_total",
    "Rows and labels applied to the join; side: `s` scores, `l` labels",
    ["model", "side"],
    set_by="monitor",
)
REWINDS = _counter(
    "stream_calib_input_rewinds_total",
    "Inputs read again because a shard had fallen behind",
    ["topic"],
    set_by="monitor",
)
INPUT_CLOCK_TIMESTAMP = _gauge(
    "stream_calib_input_clock_timestamp_seconds",
    "Clock of a partition: its largest accepted event time, for partitions that this process reads",
    ["topic", "partition"],
    set_by="monitor",
)
CLOSER_LEASE = _gauge(
    "stream_calib_closer_lease",
    "1 in the one process that closes and decides the model's panes",
    ["model"],
    set_by="monitor",
)
WATERMARK_TIMESTAMP = _gauge(
    "stream_calib_watermark_timestamp_seconds",
    "Watermark of a side (`s` scores, `l` labels): the least clock of its partitions less the lateness",
    ["model", "side"],
    set_by="monitor, the closer",
)
LABELS_MAY_LAG = _gauge(
    "stream_calib_labels_may_lag_seconds",
    "How far the labels' watermark may be behind the scores': a day and `windows.label_lateness`, and with"
    " `labels.schedule` the longest time between two files and the grace",
    ["model"],
    set_by="monitor, the closer",
)
PANE_TIMESTAMP = _gauge(
    "stream_calib_pane_timestamp_seconds",
    "Event time at which the last pane ends that is closed, matured, decided",
    ["model", "state"],
    set_by="monitor, the closer",
)
PANES = _counter(
    "stream_calib_panes_total",
    "Panes closed, matured, decided while this process had the lease",
    ["model", "state"],
    set_by="monitor, the closer",
)
OUTCOMES = _counter(
    "stream_calib_outcomes_total",
    "Scores and labels of matured panes: accepted, winners (accepted less duplicates), labelled, unlabelled, labels,"
    " matched, score_late, score_skewed, label_late, label_skewed, label_unsampled, label_after_mature; of the labels"
    " that are not matched label_leaked, label_beyond_horizon, label_never_scored",
    ["model", "outcome"],
    set_by="monitor, the closer",
)
SERVED_LABELLED = _counter(
    "stream_calib_served_labelled_total",
    "Labelled scores of matured panes, whatever they were served by. By keep rates, as the next three: so of the events"
    " before the thinning",
    ["model"],
    set_by="monitor, the closer",
)
SERVED_POSITIVES = _counter(
    "stream_calib_served_positives_total",
    "Positives among them",
    ["model"],
    set_by="monitor, the closer",
)
SERVED_PROBABILITY = _counter(
    "stream_calib_served_probability_total",
    "Sum of the probabilities served for them all: over any range it should grow as the positives do",
    ["model"],
    set_by="monitor, the closer",
)
SERVED_LOG_LOSS = _counter(
    "stream_calib_served_log_loss_total",
    "Sum of their log-loss, as served",
    ["model"],
    set_by="monitor, the closer",
)
SERVED_POSITIVE_ROWS = _counter(
    "stream_calib_served_positive_rows_total",
    "Positives as they came, whatever they count for: whether there are enough of them to tell",
    ["model"],
    set_by="monitor, the closer",
)
REQUEST_TIMESTAMP = _gauge(
    "stream_calib_refit_request_timestamp_seconds",
    "When the closer first saw the refit request that is open; absent while none is",
    ["model"],
    set_by="monitor, the closer",
)

# --- refit (workers/refit.py)

REFITS = _counter(
    "stream_calib_refits_total", "Refit requests answered, by outcome", ["model", "kind", "outcome"], set_by="refit"
)
REFIT_SECONDS = _histogram(
    "stream_calib_refit_seconds",
    "Time from reading the evidence to the answer",
    ["model", "kind"],
    buckets=_REFIT_SECONDS,
    set_by="refit",
)
GATE_REFUSALS = _counter(
    "stream_calib_gate_refusals_total", "Reasons for which the gate refused, by code", ["model", "code"], set_by="refit"
)

# --- alert (workers/alert.py)

ALERTS_DELIVERED = _counter(
    "stream_calib_alerts_delivered_total",
    "Alert events delivered, by kind and state (open, update, close)",
    ["model", "kind", "state"],
    set_by="alert",
)
ALERTS_OPEN = _gauge(
    "stream_calib_alerts_open",
    "1 while an alert of the kind is open",
    ["model", "kind"],
    set_by="alert, by lease",
)
OUTBOX_LENGTH = _gauge(
    "stream_calib_alert_outbox_length",
    "Alert events that are not in the topic yet",
    ["model"],
    set_by="alert, by lease",
)
ALERT_DELIVERIES = _counter(
    "stream_calib_alert_deliveries_total",
    "Messages to a hook, by what became of them (delivered, retry, rejected)",
    ["hook", "outcome"],
    set_by="alert",
)
ALERT_UNDELIVERED_AGE = _gauge(
    "stream_calib_alert_undelivered_age_seconds",
    "For how long the oldest event that is due has not been told to the hook; 0 where none is",
    ["hook"],
    set_by="alert, by lease",
)
ALERTS_GIVEN_UP = _counter(
    "stream_calib_alerts_given_up_total",
    "Alert events that a hook will not be told of, by reason (rejected, too_old, too_many)",
    ["hook", "reason"],
    set_by="alert",
)
ALERT_RECORDS_REFUSED = _counter(
    "stream_calib_alert_records_refused_total",
    "Records of alerts that cannot be read, by what they are (silence, acknowledgement, outbox, hook, given_up)",
    ["record"],
    set_by="alert, monitor, the command line",
)

# --- state (stream_calib/redis_connection.py)

STATE_CALL_SECONDS = _histogram(
    "stream_calib_state_call_seconds",
    "Time of one round trip that runs a script in the Redis-compatible server, repeats included",
    ["script"],
    buckets=_CALL_SECONDS,
    set_by="every connection",
)
STATE_ERRORS = _counter(
    "stream_calib_state_errors_total",
    "Calls that a Redis-compatible server (state or embedded log) did not answer (`away`), could not do now (`refused`:"
    " full, read-only, loading) or may not do for this user (`access`)",
    ["kind"],
    set_by="every connection",
)

# --- HTTP (workers/http_server.py)

HTTP_SECONDS = _histogram(
    "stream_calib_http_request_seconds",
    "Time to answer a request, by route and status code; routes that do not exist are `other`",
    ["route", "code"],
    buckets=_CALL_SECONDS,
    set_by="the HTTP server",
)
