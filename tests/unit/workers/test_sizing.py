from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sizing import judged
from workers.sizing import Load, Parts, allocated, needed

PAGE = Path(__file__).parents[3] / "docs/sizing.md"


def load(**changes: Any) -> Load:
    made = Load(
        pending=1e6,
        rows=1e6,
        unscored_labels=0,
        early_labels=0,
        panes_in_join=30,
        shards=4,
        rows_a_call=100,
        partitions=4,
        kept_panes=100,
        winners_a_pane=1e4,
        signatures=100,
        signature_bytes=20,
        bins=80,
    )
    return made._replace(**changes)


def test_sizes_of_the_allocators() -> None:
    assert [allocated(n) for n in (1, 8, 9, 100, 128, 129, 160, 161, 1_024, 1_025, 1_281)] == [
        *(8, 8, 16, 112, 128, 160, 160, 192, 1_024, 1_280, 1_536)
    ]
    assert [allocated(n, "libc") for n in (1, 24, 25, 40, 1_000)] == [24, 24, 40, 40, 1_000]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"pending": 2e6}, "join"),
        ({"unscored_labels": 1e5}, "held_labels"),
        ({"early_labels": 1e5}, "held_labels"),
        ({"rows": 2e6}, "rows"),
        ({"rows_a_call": 2}, "rows"),
        ({"kept_panes": 200}, "cells"),
        ({"signatures": 200}, "cells"),
        ({"partitions": 8}, "records"),
        ({"derived_values": 24}, "checkpoint"),
        ({"dictionary_epochs": 4}, "dictionary"),
        ({"publications": 400}, "lists"),
        ({"shards": 8}, "fixed"),
    ],
)
def test_more_takes_more(change: dict[str, float], part: str) -> None:
    before, after = needed(load()), needed(load(**change))
    assert getattr(after, part) > getattr(before, part)
    assert after.total > before.total


def test_a_pending_score_takes_about_what_the_join_was_measured_at() -> None:
    parts = needed(load(pending=2e6, rows=2e6, shards=1, rows_a_call=200, signatures=48, allocator="libc"))
    assert 45 < (parts.join + parts.rows) / 2e6 < 55


def test_the_goal_is_ten_per_cent() -> None:
    parts = Parts(100.0, *[0.0] * 8)
    assert [judged(used, parts)["met"] for used in (88, 92, 100, 111, 112)] == [False, True, True, True, False]


def test_the_page_quotes_the_formula() -> None:
    """Each part has its line, and the loads that were measured are within the goal."""
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(Parts._fields)
    off = re.findall(r"\| ([+-][\d.]+)% \| within 10% \| met \|", page)
    assert len(off) == 3
    assert all(abs(float(found)) <= 10 for found in off)
