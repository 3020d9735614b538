from __future__ import annotations

import json
import math

import numpy as np

from stream_calib.drift.open_cells import Alarmed, OpenCells, moved

NAMES = ["all", "a", "b"]


def play(panes: list[tuple[list[Alarmed], str, list[int], list[float]]]) -> list[tuple[list[str], set[str]]]:
    """Cells in alarm and news, pane by pane; the state goes through its stored form each time."""
    state, found = OpenCells(), []
    for alarms, version, events, evidence in panes:
        state, news = moved(state, alarms, version, NAMES, np.array(events), np.array(evidence))
        state = OpenCells.from_json(json.loads(json.dumps(state.to_json())))
        found.append(([cell.name for cell in state.cells], news))
    return found


def test_a_cell_is_calm_after_as_many_events_as_its_alarm_took_and_no_more_evidence_than_chance() -> None:
    low, at_chance, high = 0.0, math.log(60), math.log(60) + 0.01
    alarm = [Alarmed("a", 3, 50)]
    open_a = (["a"], {"a"})
    assert play([(alarm, "v1", [9, 9, 9], [-math.inf] * 3), ([], "v1", [0, 49, 0], [low] * 3)]) == [
        open_a,
        (["a"], set()),
    ]
    for evidence, after in ((at_chance, []), (high, ["a"])):
        last = play([(alarm, "v1", [9, 9, 9], [low] * 3), ([], "v1", [0, 60, 0], [low, evidence, low])])[-1]
        assert last == (after, set())


def test_the_count_begins_anew_once_with_another_snapshot() -> None:
    alarm = [Alarmed("a", 3, 50)]
    quiet = [-5.0] * 3
    versions = [("v1", 40), ("v2", 30), ("v3", 19), ("v4", 1)]
    found = play([(alarm, "v1", [9, 9, 9], quiet), *(([], v, [0, n, 0], quiet) for v, n in versions)])
    assert [cells for cells, _ in found] == [["a"], ["a"], ["a"], ["a"], []]


def test_news_are_new_cells_and_alarms_under_another_snapshot() -> None:
    quiet = [-5.0] * 3
    again, other = [Alarmed("a", 7, 20)], [Alarmed("b", 8, 20)]
    found = play(
        [
            ([Alarmed("a", 3, 50)], "v1", [0, 9, 9], quiet),
            (again, "v1", [0, 9, 9], quiet),
            (other, "v1", [0, 9, 9], quiet),
            (again, "v2", [0, 9, 9], quiet),
            (again, "v2", [0, 9, 9], quiet),
        ]
    )
    assert [news for _, news in found] == [{"a"}, set(), {"b"}, {"a"}, set()]


def test_the_alert_keeps_its_first_pane_until_it_is_closed_and_a_cell_its_own() -> None:
    state, _ = moved(OpenCells(), [Alarmed("a", 3, 5), Alarmed("b", 2, 5)], "v1", NAMES, np.zeros(3, int), np.zeros(3))
    assert state.since_pane == 2
    state, _ = moved(state, [Alarmed("a", 9, 5)], "v1", NAMES, np.array([0, 1, 9]), np.full(3, -9.0))
    assert ([(c.name, c.since_pane, c.needed) for c in state.cells], state.since_pane) == ([("a", 3, 5)], 2)
    state, _ = moved(state, [], "v1", NAMES, np.array([0, 9, 9]), np.full(3, -9.0))
    assert state == OpenCells()


def test_a_cell_that_is_watched_no_more_is_let_go() -> None:
    state, _ = moved(OpenCells(), [Alarmed("a", 3, 500)], "v1", NAMES, np.zeros(3, int), np.zeros(3))
    state, news = moved(state, [], "v2", ["all", "b"], np.array([5, 5]), np.full(2, -9.0))
    assert (state, news) == (OpenCells(), set())
