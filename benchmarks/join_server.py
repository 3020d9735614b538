"""What a Redis-compatible server says of its own work: CPU, memory, time by command, and its longest script calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import redis

WATCHED_FROM_MS = 2.0
"""Shorter script calls are not listed one by one."""
_CALLS_KEPT = 100_000


class ServerTotals(NamedTuple):
    """Since the server was started."""

    cpu_s: float
    """Of the server's process, all threads."""
    waited_s: float
    """In which its main thread could have worked and had no core: what the machine added to its calls."""
    command_s: dict[str, float]
    """Command -> seconds of its calls. A script's own commands are counted beside it, in its time too."""
    scripts: int
    """Calls of scripts."""

    def since(self, before: ServerTotals) -> ServerTotals:
        """What came after `before`."""
        spent = {name: seconds - before.command_s.get(name, 0.0) for name, seconds in self.command_s.items()}
        waited_s = self.waited_s - before.waited_s
        return ServerTotals(self.cpu_s - before.cpu_s, waited_s, spent, self.scripts - before.scripts)


class ScriptCalls(NamedTuple):
    """Of those that took longer than WATCHED_FROM_MS, by the server's own (wall) clock."""

    longest_ms: float
    """0 where none took so long."""
    one_in_1_000_ms: float
    """Exceeded by one call of a thousand; 0 where fewer took so long."""
    over_10_ms: int


def totals(client: redis.Redis) -> ServerTotals:
    cpu: dict[str, Any] = client.info("cpu")
    commands: dict[str, Any] = client.info("commandstats")
    spent = {name.removeprefix("cmdstat_"): float(of["usec"]) / 1e6 for name, of in commands.items()}
    scripts = sum(int(commands[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in commands)
    pid = int(client.info("server")["process_id"])
    # The second number: nanoseconds on a run queue (Linux).
    waited_s = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return ServerTotals(float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]), waited_s, spent, scripts)


def used_bytes(client: redis.Redis) -> int:
    """Of the data, as the server's allocator gave them."""
    return int(client.info("memory")["used_memory"])


def watch_calls(client: redis.Redis) -> None:
    """From now on long calls are listed; those before are forgotten."""
    client.config_set("slowlog-log-slower-than", int(WATCHED_FROM_MS * 1_000))
    client.config_set("slowlog-max-len", _CALLS_KEPT)
    client.slowlog_reset()


def script_calls(client: redis.Redis, count: int) -> ScriptCalls:
    """Since `watch_calls`; `count`: of all calls of scripts since then."""
    listed: list[dict[str, Any]] = client.slowlog_get(_CALLS_KEPT)
    took_ms = sorted(
        (one["duration"] / 1_000 for one in listed if one["command"].upper().startswith((b"EVALSHA", b"EVAL "))),
        reverse=True,
    )
    exceeding = count // 1_000
    return ScriptCalls(
        longest_ms=max(took_ms, default=0.0),
        one_in_1_000_ms=took_ms[exceeding] if exceeding < len(took_ms) else 0.0,
        over_10_ms=sum(took > 10 for took in took_ms),
    )
