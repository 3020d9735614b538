"""What must hold after every run, whatever happened in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from stream_calib.config import Config
from stream_calib.events.control import is_control
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.transport.port import Record
from stream_calib.windows.model_registry import deployment_scope
from tests.integration.expectation import (
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    check_reproduced,
)
from tests.integration.findings import Findings

SEEN = ("scores_duplicate", "scores_late", "labels_matched", "labels_unmatched", "labels_late", "positives")


def check(found: Findings, config: Config, told: Sequence[Mapping[str, Any]]) -> None:
    """`told`: the alerts that a hook's receiver got. Raises AssertionError."""
    check_dead_letters(found)
    check_one_output_each(found)
    counted = replace(found, scores=[[r for r in part if r.value is not None] for part in found.scores])
    expected = check_cells_and_classes(counted, config)
    # So that the comparison means something.
    assert all(expected.totals[kind] > 3 for kind in SEEN), expected.totals
    check_reproduced(found, config)
    check_blocks_name_their_snapshot(found)
    check_alerts(found)
    check_told(found, told)


def check_dead_letters(found: Findings) -> None:
    """What is refused is what is bad, each of `scores` once, each of `labels` at least once and with one key."""
    bad = {*_bad(found.scores, "score"), *_bad(found.labels, "label")}
    assert bad
    assert set(found.refused) == bad
    assert len({record.key for record in found.dead_letters}) == len(bad)


def _bad(topic: list[list[Record]], member: str) -> Iterator[tuple[str, int, int]]:
    good = {"label": (0, 1, None)}
    for part in topic:
        for record in part:
            if is_control(record) or record.value is None:
                continue
            value = json.loads(record.value)[member]
            if member == "score":
                is_good = isinstance(value, (int, float)) and 0 <= value <= 1
            else:
                is_good = value in good[member]
            if not is_good:
                yield (*record.source, record.offset)


def check_alerts(found: Findings) -> None:
    """Every alert is delivered at least once, and a repeat has the same id and the same bytes."""
    delivered = {record.value or b"" for record in found.alerts}
    of_models = {value for value in delivered if _is_of_a_model(json.loads(value))}
    assert found.outbox, "no alert"
    assert of_models == set(found.outbox)
    assert len({json.loads(value)["id"] for value in delivered}) == len(delivered)


def check_told(found: Findings, told: Sequence[Mapping[str, Any]]) -> None:
    """The receiver of a hook got every alert at least once, and none that there was not."""
    of_models = [alert for alert in told if _is_of_a_model(alert)]
    got = {canonical_json({name: value for name, value in alert.items() if name != "runbook"}) for alert in of_models}
    assert got == set(found.outbox)


def _is_of_a_model(alert: Mapping[str, Any]) -> bool:
    """What is wrong with the deployment, as that Redis has lost writes, is said when the alert role looks for it, by
    wall time: in some runs, and in an outbox of its own."""
    return bool(alert["model"] != deployment_scope("").model)


class SameDecisions:
    """Whatever happens, the same logs give the decisions, snapshots and alerts of the first run over them."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[object, ...]] = {}

    def check(self, found: Findings) -> bool:
        """Whether there was something to compare with. Raises AssertionError where it differs."""
        logs = [[(r.key, r.value) for r in part] for topic in (found.scores, found.labels) for part in topic]
        decided = (found.decisions, found.outbox, found.versions, found.matured_blobs)
        first = self._first.setdefault(sha256(repr(logs).encode()).hexdigest(), decided)
        for what, mine, theirs in zip(("decisions", "alerts", "versions", "cells"), decided, first, strict=True):
            assert mine == theirs, f"{what} are not those of another run over the same logs"
        return first is not decided
