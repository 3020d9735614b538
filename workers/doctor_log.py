"""What `doctor` asks the log: whether it answers, topics, transactions, clocks, and how much comes in."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator

from stream_calib.config import Config
from stream_calib.config_values import duration_text
from stream_calib.errors import ConfigurationError, TransportError, UnknownTopicError
from stream_calib.transport.port import Log, TopicPartition
from workers.findings import Finding
from workers.time_text import age
from workers.topic_setup import topic_findings

_SLOW_ANSWER_MS = 1_000
_CODECS = {"crc32c": "crc32c", "lz4": "lz4", "snappy": "snappy", "zstandard": "zstd"}
"""Module -> extra of kafka-python, for the codecs that its consumers need."""
_CLOCKS_DIFFER_MS = 1_000


def client_findings(config: Config) -> Iterator[Finding]:
    """Whether the client's packages are there."""
    if config.log.kind != "kafka":
        return
    missing = sorted(extra for module, extra in _CODECS.items() if importlib.util.find_spec(module) is None)
    if missing:
        yield Finding(
            "warn",
            "client",
            f"kafka-python lacks {', '.join(missing)}: what is compressed so cannot be read",
            f'pip install "kafka-python[{",".join(missing)}]"',
        )
    else:
        yield Finding("ok", "client", "kafka-python with all codecs")


def log_findings(log: Log, config: Config, address: str, now_ms: Callable[[], int]) -> Iterator[Finding]:
    """Findings in the order in which one would look. Ends early where the log does not answer."""
    started = time.monotonic()
    try:
        log.partitions(config.topics.scores)
    except UnknownTopicError:
        pass  # an answer; the topics' own findings say it
    except TransportError as error:
        todo = "see that it runs, that its address is right, and what [log] says of access"
        yield Finding("fail", "log", f"at {address}, does not answer: {error}", todo)
        return
    took_ms = round((time.monotonic() - started) * 1_000)
    version = log.server_version()
    kind = config.log.kind if version is None else f"{config.log.kind} {version}"
    what = f"{kind} at {address} answers in {took_ms} ms"
    if took_ms > _SLOW_ANSWER_MS:
        yield Finding("warn", "log", what, "every batch waits for it several times; look at the network and the load")
    else:
        yield Finding("ok", "log", what)
    yield from _asked(lambda: topic_findings(log, config), "topics")
    yield from _asked(lambda: [_transactions(log, config)], "transactions")
    yield from _asked(lambda: _record_sizes(log, config), "record size")
    yield from _asked(lambda: _clocks(log, config, now_ms), "clock")


def events_per_s(log: Log, topic: str, now_ms: int) -> tuple[float, int] | None:
    """What came in a second, over the last hour, or day or week where that had nothing; and the span in milliseconds.

    By offsets, in which transaction markers count. None where nothing came in all that time.
    """
    partitions = [TopicPartition(topic, number) for number in range(log.partitions(topic))]
    ends = {partition: log.end_offset(partition) for partition in partitions}
    for span_ms in (3_600_000, 86_400_000, 7 * 86_400_000):
        came = sum(end - log.offset_at(partition, now_ms - span_ms) for partition, end in ends.items())
        if came > 0:
            return came * 1_000 / span_ms, span_ms
    return None


def _asked(look: Callable[[], list[Finding]], subject: str) -> list[Finding]:
    """A look that fails is a finding itself; the next ones go on."""
    try:
        return look()
    except UnknownTopicError:
        return []  # said once, with the topics
    except (TransportError, ConfigurationError) as error:
        return [Finding("fail", subject, str(error), "see the message; the right to do it may be missing")]


def _transactions(log: Log, config: Config) -> Finding:
    if config.log.kind == "embedded":
        return Finding("ok", "transactions", "not needed: every commit of the embedded log is one step")
    if config.log.delivery == "at_least_once":
        what = "not used (log.delivery = at_least_once): users may see an output twice, the counts do not"
        return Finding("ok", "transactions", what)
    try:
        log.try_transaction()
    except TransportError as error:
        todo = (
            f"allow them for transactional ids that begin with {config.log.group_prefix}, or, where the cluster has"
            ' none, set log.delivery = "at_least_once"'
        )
        return Finding("fail", "transactions", str(error), todo)
    return Finding("ok", "transactions", "one was opened and aborted")


def _record_sizes(log: Log, config: Config) -> list[Finding]:
    most, limit = log.topic_settings(config.topics.scores) or {}, config.records.max_record_bytes
    taken = most.get("max.message.bytes")
    if taken is None or int(taken) <= limit + limit // 10:
        return []
    what = f"{config.topics.scores} takes records of {int(taken):,} bytes, records.max_record_bytes is {limit:,}"
    todo = "larger ones get no output but a dead letter; raise it where they are meant"
    return [Finding("warn", "record size", what, todo)]


def _clocks(log: Log, config: Config, now_ms: Callable[[], int]) -> list[Finding]:
    """The newest records against the clock here: what the log took cannot be of the future."""
    topics = (config.topics.scores, config.topics.labels, config.topics.blocks)
    ahead: dict[str, int] = {}
    for topic in topics:
        for number in range(log.partitions(topic)):
            partition = TopicPartition(topic, number)
            newest = log.read(partition, max(0, log.end_offset(partition) - 2), 2)
            if newest:
                ahead_ms = newest[-1].append_time_ms - now_ms()  # asked for after the record, which may be of just now
                ahead[topic] = max(ahead.get(topic, ahead_ms), ahead_ms)
    wrong = {topic: ms for topic, ms in ahead.items() if ms > _CLOCKS_DIFFER_MS}
    if not wrong:
        return [Finding("ok", "clock", "no record is from the future")] if ahead else []
    limit = config.windows.max_clock_skew_ms
    what = ", ".join(f"{topic} has a record of {age(ms)} ahead of the clock here" for topic, ms in wrong.items())
    counted = "" if limit is None else f"; events more than {duration_text(limit)} ahead of their record do not count"
    return [Finding("warn", "clock", what, f"set the clocks of producers, brokers and this machine by NTP{counted}")]
