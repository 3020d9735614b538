"""Hand-made logs with answers worked out by hand. Times in minutes unless said otherwise."""

from datetime import datetime

import numpy as np
import pytest

from stream_calib.calibration import grid
from stream_calib.demo.flights import load_flights
from stream_calib.events import identity
from tests.oracle import offline
from tests.oracle.offline import CLASSES, Clock, End, Label, Result, Score, Settings, compute

MINUTE = 60_000
TEN_MINUTES = Settings(horizon_ms=10 * MINUTE, pane_ms=60 * MINUTE, score_lateness_ms=0, label_lateness_ms=5 * MINUTE)


ScoreRecord = Score | Clock | End
LabelRecord = Label | Clock | End


def score(event_id: str, minute: float, raw: float = 0.3) -> Score:
    return Score(event_id, int(minute * MINUTE), raw)


def label(event_id: str, minute: float, value: int | None) -> Label:
    return Label(event_id, int(minute * MINUTE), value)


def counts(result: Result) -> dict[str, int]:
    return {name: n for name, n in result.totals.items() if n}


# --- case 18: window boundaries ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "hour"),
    [
        ("2024-11-03T10:59:59.999+00:00", "2024-11-03T10"),
        ("2024-11-03T11:00:00.000+00:00", "2024-11-03T11"),
        ("2024-11-03T13:00:00+02:00", "2024-11-03T11"),
        ("2024-11-03T01:30:00-04:00", "2024-11-03T05"),
        ("2024-11-03T01:30:00-05:00", "2024-11-03T06"),
    ],
)
def test_an_event_lies_in_the_hour_that_holds_it_in_utc(time: str, hour: str) -> None:
    time_ms = round(datetime.fromisoformat(time).timestamp() * 1000)

    result = compute([[Score("a", time_ms, 0.3), End()]], [[End()]], Settings(horizon_ms=MINUTE))

    expected = round(datetime.fromisoformat(f"{hour}:00:00+00:00").timestamp() * 1000) // 3_600_000
    assert [p for p, pane in result.panes.items() if pane.scored] == [expected]


# --- case 20: one score counted both unmatched and matched ------------------------------------------------


def test_a_label_inside_the_grace_time_is_joined_and_nothing_is_unlabelled() -> None:
    result = compute(
        [[score("s1", 0), score("x", 12), End()]], [[label("y", 12, 1), label("s1", 9, 1), End()]], TEN_MINUTES
    )

    assert result.winners["s1", 0] == (0, 0.3, 1)
    assert counts(result) == {
        "scores_accepted": 2,
        "labels_matched": 1,
        "labels_unmatched": 1,
        "winners": 2,
        "labelled": 1,
        "positives": 1,
        "unlabelled": 1,
    }


def test_a_label_behind_its_partitions_clock_by_more_than_the_lateness_is_late_once() -> None:
    at_limit, behind = label("s1", 11, 1), label("s1", 9, 1)

    result = compute([[score("s1", 2), End()]], [[label("y", 16, 1), at_limit, behind, End()]], TEN_MINUTES)

    assert result.totals["labels_late"] == 1
    assert result.totals["labels_matched"] == 1  # equal to clock minus lateness is not late


def test_lateness_is_judged_by_the_events_own_partition_only() -> None:
    ahead: list[LabelRecord] = [label("y", 100, 1), End()]

    result = compute([[score("s1", 0), End()]], [ahead, [label("s1", 9, 1), End()]], TEN_MINUTES)

    assert (result.totals["labels_late"], result.totals["labels_matched"]) == (0, 1)


def test_late_events_are_counted_in_the_pane_of_the_clock() -> None:
    result = compute([[score("a", 130), score("b", 50), End()]], [[End()]], TEN_MINUTES)

    assert result.pane(2).classes == {"scores_accepted": 1, "scores_late": 1}
    assert result.pane(0).classes == {}


# --- case 21: the same again ------------------------------------------------------------------------------


def test_repeated_scores_and_labels_count_once_in_the_cells() -> None:
    scores: list[ScoreRecord] = [score("s1", 1), score("s1", 1), End()]
    labels: list[LabelRecord] = [label("s1", 5, 1), label("s1", 5, 1), label("s1", 5, 1), End()]

    result = compute([scores], [labels], TEN_MINUTES)

    assert counts(result) == {
        "scores_accepted": 2,
        "scores_duplicate": 1,
        "labels_matched": 3,
        "winners": 1,
        "labelled": 1,
        "positives": 1,
    }
    assert list(result.pane(0).matured.values()) == [(1, 1, 0)]


def test_an_id_in_two_panes_is_two_predictions_with_one_outcome_in_one_bucket() -> None:
    result = compute([[score("s1", 58), score("s1", 61), End()]], [[label("s1", 65, 1), End()]], TEN_MINUTES)

    assert (result.totals["winners"], result.totals["positives"], result.totals["labels_matched"]) == (2, 2, 1)
    assert {bucket for p in (0, 1) for bucket, _, _ in result.pane(p).matured} == {offline.unit_bucket("s1")}


def test_the_smallest_time_then_the_smallest_score_wins_whatever_the_order() -> None:
    settings = TEN_MINUTES._replace(score_lateness_ms=60 * MINUTE)
    late_low, early_high, early_low = score("s", 5, 0.1), score("s", 4, 0.9), score("s", 4, 0.8)
    for log in (
        [late_low, early_high, early_low],
        [early_low, late_low, early_high],
        [early_high, early_low, late_low],
    ):
        result = compute([[*log, End()]], [[End()]], settings)

        assert result.winners == {("s", 0): (4 * MINUTE, 0.8, None)}


def test_the_newest_label_counts_and_at_equal_times_null_then_0_then_1() -> None:
    def outcome(*labels: Label) -> int | None:
        result = compute([[score("s", 0), End()]], [[*labels, End()]], TEN_MINUTES)
        assert result.totals["labels_matched"] == len(labels)
        return result.winners["s", 0][2]

    assert outcome(label("s", 5, 0), label("s", 6, 1), label("s", 4, 0)) == 1
    assert outcome(label("s", 5, 1), label("s", 5, 0)) == 0
    assert outcome(label("s", 5, 0), label("s", 5, 1)) == 0
    assert outcome(label("s", 5, 1), label("s", 5, None), label("s", 5, 0)) is None
    assert outcome(label("s", 5, None), label("s", 6, 1)) == 1
    assert outcome(label("s", 5, 1), Label("s", None, None)) is None


# --- case 28: labels at or before the score ---------------------------------------------------------------


@pytest.mark.parametrize(("minute", "joins"), [(0.9, False), (1, False), (1.5, True), (11, True), (11.001, False)])
def test_a_label_joins_after_the_score_up_to_the_horizon(minute: float, joins: bool) -> None:
    result = compute([[score("s1", 1), End()]], [[label("s1", minute, 1), End()]], TEN_MINUTES)

    assert result.totals["labels_matched"] == joins
    assert result.totals["labels_unmatched"] == (not joins)
    assert result.totals["labelled"] == joins


def test_what_joins_does_not_depend_on_how_partitions_are_read() -> None:
    scores = [[score("a", 1), score("b", 3)], [score("c", 2)]]
    labels = [[label("a", 4, 1)], [label("b", 5, 0)], [label("c", 6, 1)]]

    one = compute([[*log, End()] for log in scores], [[*log, End()] for log in labels], TEN_MINUTES)
    other = compute([[*log, End()] for log in scores[::-1]], [[*log, End()] for log in labels[::-1]], TEN_MINUTES)

    assert one == other
    assert one.totals["labels_matched"] == 3


# --- clocks and cursors -----------------------------------------------------------------------------------


def test_a_clock_record_makes_older_scores_late_and_is_in_no_class() -> None:
    result = compute([[score("a", 1), Clock(70 * MINUTE), score("b", 69), End()]], [[End()]], TEN_MINUTES)

    assert counts(result) == {"scores_accepted": 1, "scores_late": 1, "winners": 1, "unlabelled": 1}
    assert result.pane(1).classes == {"scores_late": 1}


def test_skewed_events_do_not_move_the_clock() -> None:
    settings = TEN_MINUTES._replace(max_clock_skew_ms=5 * MINUTE)
    ahead = Score("b", 66 * MINUTE, 0.5, append_ms=60 * MINUTE)
    at_limit = Score("c", 65 * MINUTE, 0.5, append_ms=60 * MINUTE)

    result = compute([[score("a", 1), ahead, score("d", 1), at_limit, End()]], [[End()]], settings)

    assert result.pane(0).classes == {"scores_accepted": 2, "scores_skewed": 1}
    assert result.pane(1).classes == {"scores_accepted": 1}


def test_panes_mature_when_both_sides_have_passed_end_and_horizon() -> None:
    def cursors(score_minute: float, label_minute: float) -> tuple[int, int]:
        scores: list[list[ScoreRecord]] = [[score("a", 1), score("b", score_minute)], [Clock(500 * MINUTE)]]
        result = compute(scores, [[label("a", label_minute, 1)]], TEN_MINUTES)
        return result.last_closed, result.last_matured

    assert cursors(59.9, 500) == (-1, -1)
    assert cursors(60, 500) == (0, -1)
    assert cursors(70, 74.9) == (0, -1)
    assert cursors(70, 75) == (0, 0)
    assert compute([[score("a", 1)], []], [[label("a", 500, 1)]], TEN_MINUTES).last_matured == -1


def test_after_the_end_panes_mature_up_to_the_last_one_with_a_score() -> None:
    settings = Settings(horizon_ms=150 * MINUTE)

    result = compute([[score("a", 3), score("b", 200), End()], [End()]], [[label("a", 9, 1), End()]], settings)

    assert (result.first_pane, result.last_matured, result.last_closed) == (-1, 3, 5)


# --- the broker clock, and the sample ----------------------------------------------------------------------


def test_labels_in_any_order_join_what_had_not_matured_by_the_brokers_clock() -> None:
    """Panes of 60 minutes, horizon 10, lateness 5: at 75 minutes the first pane has matured."""
    broker = TEN_MINUTES._replace(broker_clock=True)

    def taken(event_id: str, minute: float, append: float) -> Label:
        return Label(event_id, int(minute * MINUTE), 1, int(append * MINUTE))

    scores: list[ScoreRecord] = [score("a", 1), score("c", 50), score("b", 58), score("b", 62), End()]
    labels: list[LabelRecord] = [
        taken("b", 63, 74),
        taken("a", 9, 75),
        taken("c", 55, 76),
        taken("b", 64, 77),
        taken("x", 61, 78),
        End(),
    ]
    result = compute([scores], [labels], broker)

    # There is no clock before the first one, and by 74 nothing has matured; "c" is late; the last of "b" reaches the
    # second pane alone.
    assert counts(result) == {
        "scores_accepted": 4,
        "labels_matched": 3,
        "labels_unmatched": 1,
        "labels_late": 1,
        "winners": 4,
        "labelled": 3,
        "positives": 3,
        "unlabelled": 1,
    }


def test_labels_that_are_not_sampled_move_the_clock_and_join_nothing() -> None:
    half = TEN_MINUTES._replace(sample_rate=0.5)
    inside = next(f"id-{i}" for i in range(99) if offline.is_sampled(f"id-{i}", 0.5))
    outside = next(f"id-{i}" for i in range(99) if not offline.is_sampled(f"id-{i}", 0.5))
    labels: list[LabelRecord] = [
        label(outside, 70, 1),
        label(inside, 64, 1),
        label(inside, 66, 0),
        label(outside, 3, 1),
        End(),
    ]
    result = compute([[score(inside, 60), End()]], [labels], half)

    assert {n: c for n, c in counts(result).items() if n.startswith("labels")} == {
        "labels_matched": 1,
        "labels_late": 2,
        "labels_unsampled": 1,
    }
    assert result.pane(1).classes["labels_unsampled"] == 1


# --- the published definitions ----------------------------------------------------------------------------


def test_hashes_and_bins_are_those_of_the_product() -> None:
    """The only place where the two meet: two readings of the published definitions agree."""
    texts = ["", "7", "007", "caf\u00e9", "x" * 400, *(f"id-{i}" for i in range(500))]
    fingerprints = identity.fingerprints(texts)
    assert fingerprints.tolist() == [offline.fingerprint(t) for t in texts]
    assert identity.unit_buckets(fingerprints).tolist() == [offline.unit_bucket(t) for t in texts]
    for rate in (1e-3, 0.3, 0.999, 1.0):
        assert identity.sampled(fingerprints, rate).tolist() == [offline.is_sampled(t, rate) for t in texts]
    for values in ((), ("a",), ("a", "b"), ("ab", ""), ("", "ab"), ("\u00e9", "__missing__")):
        assert identity.signature_hash(values) == offline.signature_hash(values)
    scores = np.concatenate([[0.0, 1.0, 5e-324, 1e-9, 0.5, 1 - 1e-16], np.random.default_rng(5).uniform(size=5000)])
    assert grid.locate(scores)[0].tolist() == [offline.bin_of(s) for s in scores.tolist()]


def test_a_month_of_flights_by_hand_counts() -> None:
    flights = load_flights()
    days = flights.days()[:31]
    scores = [
        offline.read_score(e, ("carrier", "origin")) for e in flights.score_events(slice(0, days[-1].scores.stop))
    ]
    labels = [offline.read_label(e) for e in flights.label_events(slice(0, days[-1].labels.stop))]

    result = compute([[*scores, End()]], [[*labels, End()]], Settings(horizon_ms=86_400_000))

    assert result.totals["scores_accepted"] == result.totals["winners"] == len(scores) == days[-1].scores.stop
    assert result.totals["labels_matched"] == result.totals["labelled"] == len(labels)
    assert result.totals["positives"] == int(flights.label[: len(labels)].sum())
    assert sum(n for p in result.panes.values() for n in p.scored.values()) == len(scores)
    assert sum(c[0] for p in result.panes.values() for c in p.matured.values()) == len(labels)
    assert sum(n for p in result.panes.values() for c, n in p.classes.items() if c in CLASSES) == len(scores) + len(
        labels
    )
