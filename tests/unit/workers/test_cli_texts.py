"""What the commands print for people, whatever is in the values, and who is named where nobody says it."""

from __future__ import annotations

import getpass
from typing import Any

import pytest
from rich.table import Table

from stream_calib.errors import ConfigurationError
from stream_calib.windows.panes import ENDED_CLOCK_MS
from tests.command_line import command_line
from workers.cli_common import console
from workers.cli_snapshot_changes import user_name
from workers.status_tables import model_tables, status_tables, waits_for

ODD = "group=[/x] [red] :smile: moved"


_ALERT = {
    "kind": "psi",
    "severity": "warning",
    "since_ms": 0,
    "diagnosis": ODD,
    "acknowledged": {"actor": "ann", "reason": ODD, "time_ms": 0},
    "silenced": None,
}
_PROCESS = {"role": "monitor", "member": "host-1", "age_ms": 5, "facts": {"says": ODD}}
_FACTS: dict[str, Any] = {
    "model": "m/1",
    "generation": "g",
    "snapshot": None,
    "snapshot_since_ms": None,
    "pinned": {"actor": "ann", "time_ms": 1_000, "reason": ODD},
    "held": [],
    "shadow": None,
    "panes": {"first_pane": 1, "closed": None, "matured": 1, "decided": 1},
    "pane_ms": 3_600_000,
    "clocks_ms": {"scores": 0, "labels": 60_000},
    "watermarks_ms": {"scores": 0, "labels": 30_000},
    "coverage": {"panes": 0, "labelled": 0, "unlabelled": 0},
    "detectors": None,
    "alerts_to_send": 0,
    "open_request": None,
    "refits": {},
    "outcomes": {"matched": 12},
    "unmatched": {"label_leaked": 3, "label_beyond_horizon": 0, "label_never_scored": 4_321},
    "alerts": [_ALERT],
    "processes": [_PROCESS],
}


def test_brackets_in_values_of_records_are_shown_as_they_are() -> None:
    with console.capture() as shown:
        console.print(*model_tables(_FACTS, 60_000), sep="\n", width=200)
    assert shown.get().count(ODD) == 4


def test_status_says_why_labels_are_not_matched() -> None:
    with console.capture() as shown:
        console.print(*model_tables(_FACTS, 60_000), sep="\n", width=200)
    rows = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in shown.get().splitlines() if "│" in line}
    assert rows["matched"] == "12"
    assert rows["not matched: label leaked"] == "3"
    assert rows["not matched: label never scored"] == "4,321"


def test_status_says_what_hooks_wait_for_and_what_nobody_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 200)
    given_up = {"alert": {"dedup_key": "m/1:psi"}, "detail": "404 gone"}
    hooks = [
        {"hook": "ops", "waiting": 3, "oldest_ms": 7_200_000, "failing_ms": 60_000, "says": ODD, "given_up": 2}
        | {"given_up_last": given_up},
        {"hook": "chat", "waiting": 0, "oldest_ms": None, "failing_ms": None, "says": "", "given_up": 0}
        | {"given_up_last": None},
    ]
    facts = {"now_ms": 0, "lags": [], "log_error": None, "gaps": [], "alerts": [], "hooks": hooks, "models": []}
    with console.capture() as shown:
        console.print(*status_tables(facts), sep="\n", width=200)
    rows = {line.split("│")[1].strip(): line for line in shown.get().splitlines() if "│" in line}
    assert f"3, the oldest for 2 h │ 60 s: {ODD} │ 2, the last m/1:psi: 404 gone" in " ".join(rows["ops"].split())
    assert "nothing" in rows["chat"]


def test_brackets_in_a_reason_are_shown_as_they_are() -> None:
    table = Table("reason")
    table.add_row(ODD)
    with console.capture() as shown:
        console.print(table)
    assert ODD in shown.get()


def test_a_user_without_a_name_is_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    with pytest.raises(ConfigurationError, match="--actor"):
        user_name()


@pytest.mark.parametrize(
    ("scores", "labels", "says"),
    [
        (None, 0, "a first event on every partition of scores"),
        (None, None, "scores and labels"),
        (3_600_000, 7_200_000, "later scores: the slowest partition stands at 1970-01-01 01:00 UTC"),
        (7_200_000, 3_600_000, "later labels: the slowest partition stands at 1970-01-01 01:00 UTC"),
        (3_600_000, 3_600_000, "later scores and labels"),
        (ENDED_CLOCK_MS, ENDED_CLOCK_MS, "every partition has ended"),
    ],
)
def test_status_says_what_the_panes_wait_for(scores: int | None, labels: int | None, says: str) -> None:
    assert says in waits_for({"scores": scores, "labels": labels})


@pytest.mark.parametrize("reason", ["", "  "])
@pytest.mark.parametrize(
    "command",
    [
        ["refit"],
        ["alerts", "ack", "churn/1:psi"],
        ["alerts", "silence", "--for", "2h"],
        ["snapshot", "approve", "000001-0123456789ab"],
        ["snapshot", "pin", "current"],
        ["snapshot", "reject", "000001-0123456789ab"],
        ["snapshot", "rollback", "000001-0123456789ab"],
        ["snapshot", "shadow", "000001-0123456789ab"],
        ["snapshot", "shadow", "--off"],
        ["snapshot", "unpin"],
    ],
    ids=" ".join,
)
def test_what_goes_on_record_needs_a_reason_that_says_something(command: list[str], reason: str) -> None:
    refused = command_line(*command, "--reason", reason)
    assert refused.returncode == 1
    assert refused.stderr.strip() == "error: nothing is said; say why with --reason, for whoever comes next"
