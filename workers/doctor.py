"""`stream-calib doctor`: everything that can be wrong before anything is, one finding after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from stream_calib.alerts.outbox import open_alerts
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.config_values import mask_url
from stream_calib.errors import ConfigurationError, StateError, StateUnavailableError, TransportError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import answering, unchecked_client
from stream_calib.transport.port import Log
from workers.cli_common import load
from workers.cli_models import known_keys
from workers.deployment import log_address, open_deployment_store, open_gaps, open_log, state_of
from workers.doctor_log import client_findings, events_per_s, log_findings
from workers.doctor_memory import estimate, memory_finding, server_memory
from workers.doctor_state import counted_topic_findings, model_findings, server_findings
from workers.findings import Finding, failed
from workers.input_lags import input_lags
from workers.time_text import age

_BEHIND_S = 60
"""Of traffic; a role that is further behind does not keep up, or was down."""
_BEHIND_OFFSETS = 1_000


class Doctor:
    """Looks at one deployment. Changes nothing, and writes to no topic."""

    def __init__(self, file: Path, rate: float | None, now_ms: Callable[[], int]) -> None:
        """`rate`: events a second to reckon with; measured where none is given."""
        self._file, self._rate, self._now_ms = file, rate, now_ms

    def findings(self) -> Iterator[Finding]:
        """In the order in which one would look; what depends on something that failed is left out."""
        try:
            config = load(self._file)
        except ConfigurationError as error:
            for line in str(error).splitlines():
                yield Finding("fail", "configuration", line, "correct it; see `stream-calib config check`")
            return
        keys = ", ".join(map(str, configured_keys(config))) or "models named by the records"
        yield Finding("ok", "configuration", f"{self._file}: {keys}; state {semantic_hash(config)}")
        yield from client_findings(config)
        try:
            with open_log(config) as log:
                yield from self._of_log_and_state(log, config)
        except (TransportError, ConfigurationError) as error:
            yield Finding("fail", "log", f"at {log_address(config)}: {error}", "see that it runs, and [log]")
            yield from self._of_state(config, None)

    def _of_log_and_state(self, log: Log, config: Config) -> Iterator[Finding]:
        found = []
        for finding in log_findings(log, config, log_address(config), self._now_ms):
            found.append(finding)
            yield finding
        answers = not failed([f for f in found if f.subject == "log" or f.subject.startswith("topic ")])
        yield from self._of_state(config, log if answers else None)

    def _of_state(self, config: Config, log: Log | None) -> Iterator[Finding]:
        """`log`: where it can be asked about its topics."""
        doing = f"connecting to the state at {mask_url(config.redis.url)}"
        try:
            with answering(StateUnavailableError, doing), closing(unchecked_client(config.redis)) as client:
                found = []
                for finding in server_findings(client, self._now_ms):
                    found.append(finding)
                    yield finding
                keys = known_keys(client, config)
                yield from model_findings(client, config, keys, self._now_ms)
                if log is not None:
                    yield from counted_topic_findings(client, config, keys, log)
                yield from self._of_alerts(client, config, keys)
                yield from self._of_traffic(client, config, keys, log)
        except TransportError as error:
            yield Finding("fail", "log", str(error), "see the message")
        except StateUnavailableError as error:
            yield Finding("fail", "redis", str(error), "see that it runs, and its address under [redis]")
        except (StateError, ConfigurationError) as error:
            yield Finding("fail", "redis", str(error), "see the message")

    def _of_alerts(self, client: RedisClient, config: Config, keys: list[ModelKey]) -> Iterator[Finding]:
        stores = [open_deployment_store(client, config), *(state_of(client, config, key).store for key in keys)]
        now_ms = self._now_ms()
        for alert in (alert for store in stores for alert in open_alerts(store).values()):
            if alert.severity != "info":
                what = f"{alert.kind} is open for {age(now_ms - alert.since_ms)}"
                yield Finding("warn", f"alert {alert.model}/{alert.model_version}", what, alert.diagnosis)
        for gap in open_gaps(client, config).all():
            what = f"{gap.role} never read up to {gap.records:,} records, {gap.first} to {gap.end - 1}"
            yield Finding(
                "warn",
                f"gap {gap.topic}-{gap.partition}",
                f"{what}; {age(now_ms - gap.time_ms)} ago",
                "retention had passed them; lengthen it, and look why the role was so far behind",
            )

    def _of_traffic(
        self, client: RedisClient, config: Config, keys: list[ModelKey], log: Log | None
    ) -> Iterator[Finding]:
        states = [state_of(client, config, key) for key in keys]
        rate, where_from = self._rate, "as given"
        if log is not None:
            try:
                measured = events_per_s(log, config.topics.scores, self._now_ms())
                lags = input_lags(log, config, [state.shards.progress() for state in states])
            except TransportError as error:
                yield Finding("fail", "traffic", str(error), "see the message")
                return
            if rate is None and measured is not None:
                rate, where_from = measured[0], f"as of the last {age(measured[1])}"
            for lag in lags:
                what = f"{lag.total:,} offsets behind on {lag.topic}"
                most = _BEHIND_OFFSETS if rate is None else max(_BEHIND_OFFSETS, rate * _BEHIND_S)
                if lag.total > most:
                    todo = f"see that {lag.role} runs and keeps up; start more of them, up to one a partition"
                    yield Finding("warn", f"{lag.role} lag", what, todo)
                else:
                    yield Finding("ok", f"{lag.role} lag", what)
        if rate is None:
            todo = "give the rate that you expect: --rate EVENTS_PER_SECOND"
            yield Finding("warn", "memory needed", "not known: nothing has come in to measure a rate by", todo)
            return
        found = estimate(config, rate, [state.store for state in states])
        yield memory_finding(found, server_memory(client), where_from, config)
