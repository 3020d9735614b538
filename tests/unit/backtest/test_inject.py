"""Faults injected into histories: what moves as asked, what is conserved, what stays to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.backtest.history import CellHistory, PaneBlobs
from stream_calib.backtest.what_if.faults import Injection, parse_scenario
from stream_calib.backtest.what_if.injection import inject, inject_all
from stream_calib.calibration.grid import CENTRE_LOG_ODDS
from stream_calib.errors import BacktestError
from stream_calib.events.identity import signature_hash
from stream_calib.windows.cells import MaturedCells, ScoredCells
from tests.unit.backtest.made_histories import FIRST_PANE, HOUR_MS, SIGNATURES, configuration, drawn_history, history_of

CONFIG = configuration()
UA = np.array([signature_hash(values) for values in SIGNATURES if values[0] == "UA"], dtype=np.uint64)


def fault(text: str, **windows: str) -> Injection:
    (one,) = parse_scenario(text, configuration(**windows)).faults
    return one


def hour(pane: int) -> str:
    """Time at which the pane (from 0 on) begins."""
    return str(np.datetime64((FIRST_PANE + pane) * HOUR_MS, "ms"))


def columns(history: CellHistory, panes: range, *, of_ua: bool = True) -> dict[str, int]:
    """Sums over panes (from 0 on) of the events of UA, or of all others."""
    sums = dict.fromkeys(("labelled", "positives", "unlabelled", "scored"), 0)
    for pane in panes:
        scored, matured = history.scored(FIRST_PANE + pane), history.matured(FIRST_PANE + pane)
        sums["scored"] += int(scored.n[np.isin(scored.signature, UA) == of_ua].sum())
        mine = np.isin(matured.signature, UA) == of_ua
        for name in ("labelled", "positives", "unlabelled"):
            sums[name] += int(getattr(matured, name)[mine].sum())
    return sums


def packed_for_once(history: CellHistory) -> CellHistory:
    """The same cells, packed as those of tables are."""
    panes = [
        PaneBlobs(ScoredCells.unpack(one.scored).pack(1), one.matured and MaturedCells.unpack(one.matured).pack(1))
        for one in history.panes
    ]
    assert panes != history.panes
    return replace(history, panes=panes)


# --- shift


@pytest.mark.parametrize("size", [0.5, -0.8, 2.0])
def test_a_shift_moves_the_rate_at_every_height_of_the_score(size: float) -> None:
    """Given what a score means, each third of the scores has the rate of log-odds + size; so has each month."""
    history = drawn_history(24 * 45, 400, 3, coverage=1.0, shift=lambda pane: -0.4 if pane < 30 * 24 else 0.4)
    moved = inject(history, fault(f"shift group=carrier:UA size={size} from={hour(240)}"))
    for months in (range(240, 720), range(720, 1080)):
        offset = -0.4 if months.start < 720 else 0.4
        cells = MaturedCells.merge([moved.matured(FIRST_PANE + pane) for pane in months])
        for low, high in ((0, 160), (160, 180), (180, 402)):
            mine = np.isin(cells.signature, UA) & (cells.grid_bin >= low) & (cells.grid_bin < high)
            p = 1 / (1 + np.exp(-(0.8 * CENTRE_LOG_ODDS[cells.grid_bin[mine]] + 0.3 + offset + size)))
            n, expected = cells.labelled[mine], float((cells.labelled[mine] * p).sum())
            deviation = float(np.sqrt((n * p * (1 - p)).sum()))
            assert abs(int(cells.positives[mine].sum()) - expected) < 4.5 * deviation
    assert columns(moved, range(1080), of_ua=False) == columns(history, range(1080), of_ua=False)


def test_a_shift_of_a_combination_leaves_its_parts_alone() -> None:
    history = drawn_history(30, 400, 4)
    moved = inject(history, fault(f"shift group=carrier:UA group=origin:EWR size=1 from={hour(0)}"))
    hashes = [signature_hash(values) for values in SIGNATURES]

    def positives(of: CellHistory, h: int) -> int:
        cells = [of.matured(FIRST_PANE + pane) for pane in range(30)]
        return sum(int(one.positives[one.signature == h].sum()) for one in cells)

    assert positives(moved, hashes[0]) > 1.2 * positives(history, hashes[0])
    assert [positives(moved, h) for h in hashes[1:]] == [positives(history, h) for h in hashes[1:]]


@settings(max_examples=40, deadline=None)
@given(
    what=st.sampled_from(
        [
            "shift size=1.5",
            "shift size=-1",
            "traffic factor=2.5",
            "traffic factor=.4",
            "traffic factor=0",
            "outage share=1",
            "outage share=.3",
            "duplicate share=.6",
            "delay by=5h",
        ]
    ),
    seed=st.integers(0, 1_000),
    begin=st.integers(0, 11),
    length=st.integers(1, 12),
    open_panes=st.integers(0, 4),
)
def test_nothing_outside_of_the_stretch_changes_and_counts_stay_sound(
    what: str, seed: int, begin: int, length: int, open_panes: int
) -> None:
    history = drawn_history(12, 60, seed, open_panes=open_panes)
    whose = "" if what.startswith("delay") else "group=carrier:UA"
    one = fault(f"{what} {whose} from={hour(begin)} until={hour(begin + length)} seed={seed}")
    try:
        moved = inject(history, one)
    except BacktestError as error:
        if "nothing of the history changes" in str(error) or (what.startswith("shift") and "a label" in str(error)):
            return
        raise
    assert moved == inject(history, one)
    end = min(begin + length, 12)
    for pane in range(12):
        before, after = history.panes[pane], moved.panes[pane]
        if not begin <= pane < end or what.startswith("delay"):
            assert after == before
            continue
        scored = moved.scored(FIRST_PANE + pane)
        assert (scored.n > 0).all()
        assert (after.matured is None) == (before.matured is None)
        kept = [one.scored(FIRST_PANE + pane) for one in (moved, history)]
        assert [kept[0].n[~np.isin(kept[0].signature, UA)].tolist()] == [
            kept[1].n[~np.isin(kept[1].signature, UA)].tolist()
        ]
        if after.matured is None:
            continue
        cells = moved.matured(FIRST_PANE + pane)
        assert cells.positives.min(initial=0) >= 0
        assert (cells.labelled - cells.positives).min(initial=0) >= 0
        assert cells.unlabelled.min(initial=0) >= 0
        assert (cells.labelled + cells.unlabelled > 0).all()
        merged = MaturedCells.merge([cells])
        assert merged.pack() == after.matured  # sorted, each cell once
        was, now = columns(history, range(pane, pane + 1)), columns(moved, range(pane, pane + 1))
        assert now["labelled"] + now["unlabelled"] == now["scored"]
        if what.startswith(("shift", "outage")):
            assert after.scored == before.scored
        if what.startswith("shift"):
            assert (now["labelled"], now["unlabelled"]) == (was["labelled"], was["unlabelled"])
            assert (now["positives"] - was["positives"]) * (1 if "-" not in what else -1) >= 0
        if what == "outage share=1":
            assert now == {**was, "labelled": 0, "positives": 0, "unlabelled": was["scored"]}
        if what == "traffic factor=0":
            assert set(now.values()) == {0}


# --- the other faults


def test_traffic_is_multiplied_and_its_outcomes_stay_what_they_were() -> None:
    history = drawn_history(100, 400, 5)
    was = columns(history, range(50, 100))
    for factor in (2.5, 0.4):
        moved = inject(history, fault(f"traffic group=carrier:UA factor={factor} from={hour(50)}"))
        now = columns(moved, range(50, 100))
        for name in ("scored", "labelled", "unlabelled", "positives"):
            assert now[name] / was[name] == pytest.approx(factor, rel=0.06)
        assert now["positives"] / now["labelled"] == pytest.approx(was["positives"] / was["labelled"], abs=0.02)


def test_more_traffic_is_of_new_events_and_not_of_copies() -> None:
    """In cells of one event, outcomes of what comes on top differ from it as often as chance has it."""
    history = drawn_history(60, 100, 6, coverage=1.0)
    moved = inject(history, fault(f"traffic factor=2 from={hour(0)}"))
    differ = total = 0
    for pane in range(FIRST_PANE, FIRST_PANE + 60):
        before, after = history.matured(pane), moved.matured(pane)
        single = before.labelled == 1
        assert (after.labelled[single] == 2).all()
        differ += int((after.positives[single] == 1).sum())
        total += int(single.sum())
    p = 0.4
    assert abs(differ / total - 2 * p * (1 - p) * 0.85) < 0.1


def test_an_outage_takes_a_share_of_the_labels() -> None:
    history = drawn_history(60, 400, 7)
    moved = inject(history, fault(f"outage group=carrier:UA share=30% from={hour(20)}"))
    was, now = columns(history, range(20, 60)), columns(moved, range(20, 60))
    assert now["labelled"] / was["labelled"] == pytest.approx(0.7, abs=0.02)
    assert now["positives"] / was["positives"] == pytest.approx(0.7, abs=0.03)
    assert now["scored"] == was["scored"] == now["labelled"] + now["unlabelled"]


def test_where_a_missing_label_is_a_negative_an_outage_makes_negatives() -> None:
    history = drawn_history(20, 200, 8, coverage=1.0)
    moved = inject(history, fault(f"outage from={hour(5)}", missing_label="negative_at_horizon"))
    was, now = columns(history, range(5, 20)), columns(moved, range(5, 20))
    assert was["positives"] > 0
    assert now == {**was, "positives": 0}


def test_duplicates_are_counted_twice_with_their_outcomes() -> None:
    history = drawn_history(60, 400, 9)
    doubled = inject(history, fault(f"duplicate share=1 from={hour(0)}"))
    was, now = columns(history, range(60)), columns(doubled, range(60))
    assert now == {name: 2 * n for name, n in was.items()}
    part = columns(inject(history, fault(f"duplicate share=.25 from={hour(0)}")), range(60))
    for name, n in was.items():
        assert part[name] / n == pytest.approx(1.25, abs=0.03)


def test_a_delay_says_how_much_later_panes_can_be_decided() -> None:
    history = drawn_history(12, 10, 10)
    moved = inject(history, fault(f"delay by=5h from={hour(3)} until={hour(5)}"))
    assert moved.panes == history.panes
    # Panes 3 and 4 come 5 h later, and no pane before the one in front of it.
    assert [moved.label_delay(FIRST_PANE + pane) for pane in range(12)] == [0, 0, 0, 5, 5, 4, 3, 2, 1, 0, 0, 0]
    twice = inject(moved, fault(f"delay by=90m from={hour(3)} until={hour(4)}"))
    assert twice.label_delay(FIRST_PANE + 3) == 7


def test_faults_of_a_scenario_follow_each_other() -> None:
    history = drawn_history(20, 50, 11)
    text = f"outage group=carrier:UA from={hour(5)} until={hour(8)}; duplicate share=1 from={hour(10)}"
    both, notes = inject_all(history, parse_scenario(text, CONFIG))
    assert notes == ()
    first, second = parse_scenario(text, CONFIG).faults
    assert both == inject(inject(history, first), second)
    assert both.source.count("injected:") == 2
    assert columns(both, range(5, 8))["labelled"] == 0
    assert columns(both, range(10, 20))["scored"] == 2 * columns(history, range(10, 20))["scored"]


def test_rare_values_put_together_in_matured_cells_are_multiplied_in_both() -> None:
    """A matured cell of `__other__` has no scored one of its name: the scored ones are drawn by themselves."""
    other = ("UA", "__other__")
    history = drawn_history(1, 4_000, 12)
    cells = history.matured(FIRST_PANE)
    renamed = cells.signature.copy()
    renamed[cells.signature == signature_hash(("UA", "JFK"))] = signature_hash(other)
    capped = MaturedCells.merge(
        [MaturedCells(cells.unit_bucket, renamed, cells.grid_bin, cells.labelled, cells.positives, cells.unlabelled)]
    )
    history = replace(
        history,
        panes=[history.panes[0]._replace(matured=capped.pack())],
        signatures={**history.signatures, signature_hash(other): other},
    )
    moved = inject(history, fault(f"traffic group=carrier:UA factor=3 from={hour(0)}"))
    of = UA.tolist()
    scored, matured = moved.scored(FIRST_PANE), moved.matured(FIRST_PANE)
    was = int(history.scored(FIRST_PANE).n[np.isin(history.scored(FIRST_PANE).signature, of)].sum())
    mine = np.isin(matured.signature, [*of, signature_hash(other)])
    assert int(scored.n[np.isin(scored.signature, of)].sum()) == 3 * was
    assert int((matured.labelled + matured.unlabelled)[mine].sum()) == 3 * was


def test_the_seed_decides_what_is_drawn() -> None:
    history = drawn_history(10, 300, 13)
    one, two = (inject(history, fault(f"shift size=.5 from={hour(0)} seed={seed}")) for seed in (1, 2))
    assert one.panes != two.panes


# --- what cannot be injected


def test_a_stretch_outside_of_the_history_is_refused() -> None:
    history = drawn_history(10, 20, 14)
    with pytest.raises(BacktestError, match=r"no pane of the history begins there; it reaches from 2013-06-01T00:00"):
        inject(history, fault("outage from=2014-01-01"))


def test_a_group_without_events_is_refused_with_those_that_there_are() -> None:
    history = drawn_history(10, 20, 15)
    with pytest.raises(BacktestError, match=r"no event of the history is in that group; values of carrier .*: UA"):
        inject(history, fault(f"shift group=carrier:U size=1 from={hour(0)}"))


def test_a_shift_without_a_label_is_refused() -> None:
    history = drawn_history(5, 20, 16, coverage=0.0)
    with pytest.raises(BacktestError, match="no event of the group has a label there"):
        inject(history, fault(f"shift size=1 from={hour(0)}"))


def test_a_fault_that_changes_nothing_is_refused() -> None:
    history = drawn_history(5, 20, 16, coverage=0.0)
    with pytest.raises(BacktestError, match="nothing of the history changes by it: no event of the group is there, or"):
        inject(history, fault(f"outage from={hour(0)}"))


@pytest.mark.parametrize(
    ("what", "missing_label", "whose"),
    [
        ("duplicate share=.0001", "ignore", "events"),
        ("traffic factor=1.0001", "ignore", "events"),
        ("traffic factor=.9999", "ignore", "events"),
        ("outage share=.0001", "ignore", "events with a label that is final"),
        ("outage share=.0001", "negative_at_horizon", "events with a positive label that is final"),
        ("shift size=.0001", "ignore", "events with a negative label that is final"),
        ("shift size=-.0001", "ignore", "events with a positive label that is final"),
    ],
)
def test_where_chance_drew_no_event_it_is_said_how_many_there_are(what: str, missing_label: str, whose: str) -> None:
    history = drawn_history(5, 20, 16, coverage=0.8)
    there = columns(history, range(5))
    n = {
        "events": there["scored"],
        "events with a label that is final": there["labelled"],
        "events with a positive label that is final": there["positives"],
        "events with a negative label that is final": there["labelled"] - there["positives"],
    }[whose]
    assert n > 10
    with pytest.raises(BacktestError, match=f": of the group {n} {whose} are there, and chance drew none of them; "):
        inject(history, fault(f"{what} group=carrier:UA from={hour(0)}", missing_label=missing_label))


def test_events_without_final_labels_are_there_for_faults_of_traffic_only() -> None:
    history = drawn_history(5, 20, 16, open_panes=5)
    n = int(sum(history.scored(FIRST_PANE + pane).n.sum() for pane in range(5)))
    with pytest.raises(BacktestError, match=f"of the group {n} events are there, and chance drew none of them"):
        inject(history, fault(f"duplicate share=.0001 from={hour(0)}"))
    with pytest.raises(BacktestError, match=r"no event of the group is there, or none with a label that is final$"):
        inject(history, fault(f"outage share=.5 from={hour(0)}"))


def test_a_shift_where_every_outcome_is_there_already_is_refused_with_what_is_missing() -> None:
    cells = drawn_history(1, 50, 17, coverage=1.0).matured(FIRST_PANE)
    history = history_of([replace(cells, positives=cells.labelled)])
    with pytest.raises(BacktestError, match=r"no event .* is there, or none with a negative label that is final$"):
        inject(history, fault(f"shift size=1 from={hour(0)}"))


@pytest.mark.parametrize("what", ["outage", "outage share=.5", "duplicate share=.0001", "traffic factor=.9999"])
def test_whether_a_fault_changes_anything_does_not_depend_on_how_cells_are_packed(what: str) -> None:
    history = packed_for_once(drawn_history(5, 20, 16, coverage=0.0))
    with pytest.raises(BacktestError, match="nothing of the history changes"):
        inject(history, fault(f"{what} from={hour(0)}"))


def test_panes_that_a_fault_does_not_change_stay_as_they_are_packed() -> None:
    plain = drawn_history(60, 20, 19)
    same = [
        [before == after for before, after in zip(history.panes, moved.panes, strict=True)]
        for history in (plain, packed_for_once(plain))
        for moved in [inject(history, fault(f"duplicate share=.02 from={hour(0)}"))]
    ]
    assert same[0] == same[1]
    assert 10 < sum(same[0]) < 60


def test_what_a_fault_came_to_is_said_where_its_settings_do_not() -> None:
    history = drawn_history(24, 400, 18, coverage=1.0)
    labelled, positives = (columns(history, range(12, 24))[name] for name in ("labelled", "positives"))

    def notes(text: str) -> list[str]:
        return list(inject_all(history, parse_scenario(text, CONFIG)).notes)

    (said,) = notes(f"shift group=carrier:UA size=.5 from={hour(12)}")
    assert said.startswith(f"of its {labelled:,} outcomes {positives / labelled:.1%} were positive, and with it ")
    assert said.endswith("% are")
    for size in (10, -10):
        (said,) = notes(f"shift group=carrier:UA size={size} from={hour(12)}")
        assert said.endswith(
            "hardly one is left to move, so the shift is at its limit, and a larger one would be the same"
        )
    assert notes(f"outage from={hour(-5)} until={hour(60)}") == [
        "the history begins later than the fault, so it is in it from 2013-06-01 00:00 UTC on",
        "the history ends earlier than the fault, so it is in it until 2013-06-02 00:00 UTC",
    ]


def test_an_empty_pane_stays_empty() -> None:
    empty = MaturedCells.merge([])
    full = drawn_history(1, 50, 17).matured(FIRST_PANE)
    history = history_of([full, empty, full])
    moved = inject(history, fault(f"traffic factor=2 from={hour(0)}"))
    assert moved.panes[1] == history.panes[1]
