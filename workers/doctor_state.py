"""What `doctor` asks the state: the server, its clock, and of each model key generation, pin and processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stream_calib.config import Config
from stream_calib.config_identity import semantic_hash
from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_checks import inspect_server
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import answering
from stream_calib.transport.port import Log
from stream_calib.windows.input_partitions import input_sides
from workers.deployment import open_board, state_of
from workers.findings import Finding
from workers.status_board import MemberStatus
from workers.time_text import age

_CLOCKS_DIFFER_MS = 1_000
_SILENT_MS = 10_000
_ROLES = ("calibrate", "monitor", "refit", "alert")


def server_findings(client: RedisClient, now_ms: Callable[[], int]) -> Iterator[Finding]:
    """The server, or every primary of the cluster. Raises StateUnavailableError, ConfigurationError."""
    with answering(StateUnavailableError, "looking at the server"):
        found = inspect_server(client)
        yield from (Finding(f.level, f"redis {f.subject}", f"{f.server} {f.what}".strip(), f.what_to_do) for f in found)
        for name, server in client.primaries() if isinstance(client, ClusterClient) else [("", client)]:
            before = now_ms()
            seconds, microseconds = server.time()
            after = now_ms()
            ahead = int(seconds) * 1_000 + int(microseconds) // 1_000 - (before + after) // 2
            yield _clock(f"{name} clock".strip(), ahead, after - before)


def _clock(subject: str, ahead_ms: int, round_trip_ms: int) -> Finding:
    what = f"{age(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'} the clock here"
    if abs(ahead_ms) > _CLOCKS_DIFFER_MS + round_trip_ms:
        return Finding("warn", f"redis {subject}", what, "set both by NTP: ages and idle times are judged by them")
    return Finding("ok", f"redis {subject}", f"{what}, {round_trip_ms} ms there and back")


def model_findings(
    client: RedisClient, config: Config, keys: Sequence[ModelKey], now_ms: Callable[[], int]
) -> Iterator[Finding]:
    """Generation and pin of each model key, and the processes. Raises StateUnavailableError."""
    generation = semantic_hash(config)
    members: dict[tuple[str, str], MemberStatus] = {}
    for key in keys:
        state = state_of(client, config, key)
        yield _generation(key, state.store.read(("generation",))["generation"], generation)
        if (pin := state.snapshots.log().pin) is not None:
            what = f"{pin.version} is pinned by {pin.actor} for {age(now_ms() - pin.time_ms)}: {pin.reason}"
            yield Finding("warn", f"model {key}", what, "nothing is published until `stream-calib snapshot unpin`")
        members |= {(s.role, s.member): s for s in state.board.all(now_ms())}
    members |= {(s.role, s.member): s for s in open_board(client, config).all(now_ms())}
    for role in _ROLES:
        yield _processes(role, [s for s in members.values() if s.role == role], now_ms())


def counted_topic_findings(
    client: RedisClient, config: Config, keys: Sequence[ModelKey], log: Log
) -> Iterator[Finding]:
    """Model keys whose state counts other topics than those of the log: monitor ends at its start.

    Raises StateUnavailableError, TransportError.
    """
    wanted = {topic: log.topic_id(topic) for topic in input_sides(config)}
    for key in keys:
        counted = state_of(client, config, key).store.read(("topics",))["topics"] or ""
        for topic, _, identity in (pair.partition("=") for pair in counted.split()):
            if wanted.get(topic) != identity:
                other = (
                    "one of that name that is gone" if topic in wanted else "which is none of the inputs under [topics]"
                )
                todo = (
                    "bring the old one back, or give the model another version to start afresh; another deployment in"
                    " the same Redis needs other models, or a database of its own"
                )
                yield Finding("fail", f"model {key}", f"the state counts the topic {topic} ({identity}), {other}", todo)


def _generation(key: ModelKey, stored: str | None, wanted: str) -> Finding:
    subject = f"model {key}"
    if stored is None:
        return Finding("ok", subject, "no state yet")
    if stored == wanted:
        return Finding("ok", subject, "the state was made under these settings")
    what = f"the state was made under other settings (generation {stored}, these are {wanted})"
    todo = "monitor does not start like this: see what differs, and what it needs, with `stream-calib config plan`"
    return Finding("fail", subject, what, todo)


def _processes(role: str, members: Sequence[MemberStatus], now_ms: int) -> Finding:
    alive = [s for s in members if now_ms - s.time_ms <= _SILENT_MS]
    silent = [s for s in members if now_ms - s.time_ms > _SILENT_MS]
    gone = ", ".join(f"{s.member} silent for {age(now_ms - s.time_ms)}" for s in silent)
    if alive:
        word = min(now_ms - s.time_ms for s in alive)
        what = f"{len(alive)} at work, last heard of {age(max(0, word))} ago" + (f"; {gone}" if gone else "")
        return Finding("ok", role, what)
    todo = f"start one: stream-calib run --role {role}"
    return Finding("warn", role, gone or "no process is known", todo)
