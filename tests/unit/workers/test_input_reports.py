"""Who waits for whom, and which label partitions are idle."""

from __future__ import annotations

from workers.input_reports import IdleLabelInputs, InputReport, too_far_ahead

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
    idle = IdleLabelInputs(60_000)
    reports = {
        "l:b:0": InputReport(7, HOUR_MS, 1_000),
        "l:b:1": InputReport(9, 2 * HOUR_MS, 50_000),
        "s:a:0": InputReport(9, HOUR_MS, 0),
    }
    assert idle.left_out(reports, 1_000) == {}
    assert idle.left_out(reports, 60_999) == {}
    assert idle.left_out(reports, 61_000) == {"l:b:0": 7}


def test_a_long_silence_of_all_counts_from_when_the_first_one_speaks_again() -> None:
    """A nightly file: what has been read of one partition first must not leave the other one out."""
    idle = IdleLabelInputs(60_000)
    day_ms = 24 * HOUR_MS
    assert idle.left_out({"l:b:0": InputReport(7, HOUR_MS, 0), "l:b:1": InputReport(9, HOUR_MS, 0)}, day_ms) == {}
    spoke = {"l:b:0": InputReport(7, HOUR_MS, 0), "l:b:1": InputReport(10, 2 * HOUR_MS, None)}
    assert idle.left_out(spoke, day_ms + 1) == {}
    assert idle.left_out(spoke, day_ms + 60_000) == {}
    assert idle.left_out(spoke, day_ms + 60_001) == {"l:b:0": 7}
    assert idle.left_out({**spoke, "l:b:0": InputReport(8, HOUR_MS + 1, None)}, day_ms + 60_002) == {}
    assert idle.left_out(spoke, day_ms + 60_003) == {}, "it has spoken in between"


def test_when_all_label_inputs_are_silent_none_is_left_out() -> None:
    idle = IdleLabelInputs(60_000)
    reports = {"l:b:0": InputReport(7, HOUR_MS, 0), "l:b:1": InputReport(9, HOUR_MS, 0)}
    assert [idle.left_out(reports, now_ms) for now_ms in (0, 10 * HOUR_MS)] == [{}, {}]


def test_a_label_input_that_never_had_an_event_can_be_idle_too() -> None:
    idle = IdleLabelInputs(60_000)
    reports = {"l:b:0": InputReport(0, None, 0), "l:b:1": InputReport(9, HOUR_MS, None)}
    assert [idle.left_out(reports, now_ms) for now_ms in (0, 60_000)] == [{}, {"l:b:0": 0}]
