"""Alerts and what became of their delivery, as plain values: for `alerts list` and `status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stream_calib.alerts.acknowledgement import acknowledged
from stream_calib.alerts.delivery_record import given_up_of, owed_of
from stream_calib.alerts.outbox import LIST, open_alerts
from stream_calib.alerts.refusal import alerts_of
from stream_calib.alerts.silence import Silence, silence_of
from stream_calib.windows.state_store import StateStore
from workers.time_text import age, utc_minute


def open_rows(store: StateStore, silences: Sequence[Silence]) -> list[dict[str, Any]]:
    """The alerts of an outbox that are open, each by its last event, in the order in which they opened.

    `acknowledged` and `silenced`: by whom, why and since when, None where they are not. Raises StateUnavailableError
    when the store is away.
    """
    known = acknowledged(store)
    rows = []
    for alert in open_alerts(store).values():
        taken_on, silence = known.get(alert.dedup_key), silence_of(alert, silences)
        rows.append(
            {
                **alert.model_dump(mode="json"),
                "acknowledged": None
                if taken_on is None
                else {"actor": taken_on.actor, "reason": taken_on.reason, "time_ms": taken_on.time_ms},
                "silenced": None if silence is None else msgspec.to_builtins(silence),
            }
        )
    return rows


def event_rows(store: StateStore) -> list[dict[str, Any]]:
    """Every event of an outbox that is kept, oldest first. Raises as `open_rows`."""
    return [alert.model_dump(mode="json") for alert in alerts_of(store.entries(LIST, 0)) if alert is not None]


def hook_rows(
    stores: Sequence[StateStore], hooks: Iterable[str], now_ms: int, says: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """What each hook is owed of the outboxes, and what it was not told. Raises as `open_rows`.

    `waiting`: events; `oldest_ms`: for how long the oldest waits; `failing_ms`: since the first attempt that failed,
    None where none did; `says`: what it said then, of those that the argument has; `given_up`: events, of those on
    record; `given_up_last`: the newest.
    """
    given_up = [record for store in stores for record in given_up_of(store)[1]]
    rows = []
    for hook in hooks:
        owed = [one for store in stores for one in owed_of(store, hook)]
        mine = [record for record in given_up if record.hook == hook]
        failed = [one.failed_ms for one in owed if one.failed_ms is not None]
        last = max(mine, key=lambda record: record.time_ms, default=None)
        rows.append(
            {
                "hook": hook,
                "waiting": len(owed),
                "oldest_ms": now_ms - min(one.taken_ms for one in owed) if owed else None,
                "failing_ms": now_ms - min(failed) if failed else None,
                "says": (says or {}).get(hook, ""),
                "given_up": len(mine),
                "given_up_last": None if last is None else msgspec.to_builtins(last),
            }
        )
    return rows


def handled(row: Mapping[str, Any], now_ms: int) -> str:
    """Of a row of `open_rows`: who knows of it, and what silences it, in a few words; empty where nothing does."""
    said = []
    if (known := row["acknowledged"]) is not None:
        said.append(f"acknowledged by {known['actor']} {age(now_ms - known['time_ms'])} ago: {known['reason']}")
    if (silence := row["silenced"]) is not None:
        said.append(f"silent until {utc_minute(silence['until_ms'])}, by {silence['actor']}: {silence['reason']}")
    return "; ".join(said)
