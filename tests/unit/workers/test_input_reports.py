"""Who waits for whom, and which label partitions are idle."""

from __future__ import annotations

from workers.input_reports import InputReport, idle_label_inputs, too_far_ahead

HOUR_MS = 3_600_000


def test_an_input_far_ahead_of_an_unread_one_waits_and_the_slow_one_does_not() -> None:
    reports = {
        "s:a:0": InputReport(10, 0, None),
        "s:a:1": InputReport(10, 7 * HOUR_MS, None),
        "l:b:0": InputReport(10, 6 * HOUR_MS, None),
    }
    assert too_far_ahead(reports, 6 * HOUR_MS) == {"s:a:1"}


def test_an_input_that_was_read_to_its_end_holds_up_nobody() -> None:
    reports = {"s:a:0": InputReport(10, 0, 1_000), "s:a:1": InputReport(10, 7 * HOUR_MS, None)}
    assert too_far_ahead(reports, 6 * HOUR_MS) == frozenset()


def test_an_unread_input_without_a_clock_holds_up_every_other_one() -> None:
    reports = {"s:a:0": InputReport(0, None, None), "s:a:1": InputReport(10, 7 * HOUR_MS, None)}
    assert too_far_ahead(reports, 6 * HOUR_MS) == {"s:a:1"}


def test_the_only_unread_input_is_never_paused() -> None:
    assert too_far_ahead({"s:a:0": InputReport(10, 99 * HOUR_MS, None)}, 0) == frozenset()


def test_a_label_input_is_idle_after_the_timeout_while_another_one_is_ahead() -> None:
    reports = {
        "l:b:0": InputReport(7, HOUR_MS, 1_000),
        "l:b:1": InputReport(9, 2 * HOUR_MS, 50_000),
        "s:a:0": InputReport(9, HOUR_MS, 0),
    }
    assert idle_label_inputs(reports, 60_999, 60_000) == {}
    assert idle_label_inputs(reports, 61_000, 60_000) == {"l:b:0": 7}


def test_when_all_label_inputs_are_silent_none_is_left_out() -> None:
    reports = {"l:b:0": InputReport(7, HOUR_MS, 0), "l:b:1": InputReport(9, HOUR_MS, 0)}
    assert idle_label_inputs(reports, 10 * HOUR_MS, 60_000) == {}


def test_a_label_input_that_never_had_an_event_can_be_idle_too() -> None:
    reports = {"l:b:0": InputReport(0, None, 0), "l:b:1": InputReport(9, HOUR_MS, None)}
    assert idle_label_inputs(reports, 60_000, 60_000) == {"l:b:0": 0}
