from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.drift.cell_history import CellHistory, advance_history
from stream_calib.drift.residual import ResidualSums, WatchedCells
from stream_calib.drift.residual_evidence import pane_evidence
from stream_calib.errors import StateFormatError

WATCHED = WatchedCells(
    ["all", "a", "b", "c"],
    np.array([0, 1, 1, 2]),
    np.array([0.0, 0.0, 0.05, 0.0]),
    np.array([1.0, 1.0, 2.0]),
    labelled_per_pane=50.0,
)
"""Everything; the parts a and b; the part c of another family."""
FEWER = WatchedCells(["all", "b"], np.array([0, 1]), np.array([0.0, 0.05]), np.array([1.0, 1.0]), 50.0)

rows = st.lists(
    st.tuples(st.integers(0, 1), st.booleans(), st.integers(1, 40), st.integers(1, 15), st.floats(0, 1)), max_size=4
)
"""Of (a or b, whether in c, events, twentieths of p, share of positives)."""


def sums_of(found: list[tuple[int, bool, int, int, float]], watched: WatchedCells = WATCHED) -> ResidualSums:
    columns = [
        (watched.names.index(name), p / 20, n, round(n * share))
        for part, in_c, n, p, share in found
        for name in ("all", "ab"[part], *("c" if in_c else ""))
        if name in watched.names
    ]
    cell, served, labelled, positives = ([c[i] for c in columns] for i in range(4))
    return ResidualSums(
        np.array(cell, np.intp), np.array(served, float), np.array(labelled, np.int64), np.array(positives, np.int64)
    )


@dataclass
class Track:
    """One cell and shift, event sums kept as plain lists."""

    w: int = 0
    since: int = 0
    own: list[tuple[int, int, float]] = field(default_factory=list)


@settings(max_examples=25, deadline=None)
@given(st.lists(rows, min_size=1, max_size=12))
def test_a_cell_is_counted_since_its_cumulative_sum_was_last_at_zero(
    panes: list[list[tuple[int, bool, int, int, float]]],
) -> None:
    history = CellHistory()
    tracks = {(name, d): Track() for name in WATCHED.names for d in (-0.4, -0.15, 0.15, 0.4)}
    for pane, found in enumerate(panes, 100):
        sums = sums_of(found)
        history = advance_history(history, WATCHED, sums, pane_evidence(WATCHED, sums), pane)
        stored = CellHistory.from_json(history.names, json.loads(json.dumps(history.to_json())))
        assert stored == history
        for (name, d), track in tracks.items():
            cell = WATCHED.names.index(name)
            mine = [
                (int(n), int(k), float(p))
                for c, p, n, k in zip(sums.cell, sums.served, sums.labelled, sums.positives, strict=True)
                if c == cell
            ]
            if not mine:
                continue
            if track.w == 0:
                track.since, track.own = pane, []
            track.own += mine
            epsilon, phi = float(WATCHED.epsilon[cell]), float(WATCHED.phi[WATCHED.family[cell]])
            f = [max(p + epsilon, 1e-6) if d > 0 else max(p - epsilon, 0.0) for _, _, p in mine]
            ratio = sum(d * k - n * math.log1p(q * math.expm1(d)) for (n, k, _), q in zip(mine, f, strict=True)) / phi
            track.w = max(0, track.w + math.floor(ratio * 65536 - 1e-3))
            kept = int(history.tracks[cell, (-0.4, -0.15, 0.15, 0.4).index(d), 0])
            assert abs(kept - track.w) <= 3
            track.w = kept
            view = history.of(cell, d, WATCHED)
            assert view.since_pane == track.since
            assert view.own.labelled.tolist() == [sum(n for n, _, _ in track.own)]
            assert view.own.positives.tolist() == [sum(k for _, k, _ in track.own)]
            assert view.own.expected[0] == pytest.approx(sum(n * p for n, _, p in track.own), abs=1e-4)
            assert view.own.variance[0] == pytest.approx(sum(n * p * (1 - p) for n, _, p in track.own), abs=1e-4)


SHIFTED = [(0, True, 100, 6, 0.9), (1, False, 50, 4, 0.2)]
FLAT = [(0, True, 100, 6, 0.3), (1, False, 50, 4, 0.2)]


def played(*panes: list[tuple[int, bool, int, int, float]]) -> CellHistory:
    history = CellHistory()
    for pane, found in enumerate(panes):
        sums = sums_of(found)
        history = advance_history(history, WATCHED, sums, pane_evidence(WATCHED, sums), pane)
    return history


def test_a_cell_is_compared_with_everything_else_over_the_same_panes() -> None:
    history = played(FLAT, FLAT, FLAT, SHIFTED, SHIFTED)
    ((groups, phi),) = (view := history.of(1, 1.0, WATCHED)).partitions
    assert (view.since_pane, phi) == (3, 1.0)
    assert groups.labelled.tolist() == [200, 100]
    assert groups.positives.tolist() == [180, 20]
    assert groups.expected.tolist() == pytest.approx([60.0, 20.0])


def test_everything_is_compared_by_the_cells_of_every_other_family() -> None:
    history = played(FLAT, SHIFTED, SHIFTED)
    parts, other = history.of(0, 1.0, WATCHED).partitions
    assert (parts[0].labelled.tolist(), other[0].labelled.tolist()) == ([200, 100], [200])
    assert (parts[1], other[1]) == (1.0, 2.0)


def test_histories_go_on_under_their_names_when_other_cells_are_watched() -> None:
    history = played(FLAT, SHIFTED)
    sums = sums_of(SHIFTED, FEWER)
    after = advance_history(history, FEWER, sums, pane_evidence(FEWER, sums), 2)
    assert after.names == ("all", "b")
    view = after.of(0, 0.4, FEWER)
    assert (view.since_pane, view.own.labelled.tolist()) == (1, [300])
    back = advance_history(after, WATCHED, sums_of(SHIFTED), pane_evidence(WATCHED, sums_of(SHIFTED)), 3)
    assert back.of(1, 0.4, WATCHED).since_pane == 3


def test_a_cell_that_is_restarted_begins_with_the_pane() -> None:
    history, sums = played(FLAT, SHIFTED, SHIFTED), sums_of(SHIFTED)
    after = advance_history(history, WATCHED, sums, pane_evidence(WATCHED, sums), 3, {"a", "no cell"})
    assert (after.of(1, 0.4, WATCHED).since_pane, after.of(0, 0.4, WATCHED).since_pane) == (3, 1)


@pytest.mark.parametrize("broken", [["!"] * 4, ["", "", "", ""], ["AAAA"] * 4, []])
def test_a_history_that_cannot_be_read_is_refused(broken: list[str]) -> None:
    with pytest.raises(StateFormatError, match="histories of 2 watched cells cannot be read"):
        CellHistory.from_json(("all", "a"), broken)
