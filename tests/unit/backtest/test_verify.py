"""The first difference of each part is named, and what is not replayed is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from stream_calib.alerts.model import AlertKind, make_alert
from stream_calib.alerts.outbox import OTHER_GENERATION
from stream_calib.backtest.exact.given_log import GivenReplay, LiveDecisions
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.exact.verify import BY_WALL_CLOCK, Difference, Verification, verify
from stream_calib.backtest.exact.verify_cells import PaneCursors
from stream_calib.errors import HistoryError, StateError
from stream_calib.events.identity import signature_hash
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import KeptPanes
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_store import Commit
from tests.oracle.offline import Clock, Label, Score
from tests.unit.backtest.made_up import history
from tests.unit.backtest.test_exact import KEY, LogsFeed, config_of
from tests.unit.refit.world import FIRST_PANE, GENERATION, World, config
from tests.unit.refit.world import KEY as WORLD_KEY
from tests.windows.join import PANE_0
from tests.windows.logs import Logs, Written, ms, settings_with
from tests.windows.records import Block

LABELS = {"a": 1, "b": 0, "c": 1}


def replayed(labels: Mapping[str, int] = LABELS, *, extra: str = "", until: int = 200) -> MemoryState:
    """Scores a, b, c in three panes, and their labels; `extra`: one score more, in the second one."""
    scores = [Written(Block((Score(i, ms(10 * n + 1), 0.3, (i,)),)), 0) for n, i in enumerate("abc")]
    if extra:
        scores.insert(1, Written(Block((Score(extra, ms(11), 0.3, ("a",)),)), 0))
    given = [Written(Label(i, ms(10 * n + 2), labels[i]), 0) for n, i in enumerate("abc") if i in labels]
    last = Written(Clock(ms(until)), 0)
    logs = Logs({"s:t:0": [*scores, last], "l:t:0": [*given, last]}, settings_with(), None, 0)
    feed = LogsFeed(logs, dict.fromkeys(logs.inputs, Mark(0, None)), 1)
    replay = ExactReplay(feed, config_of(1), KEY, MemoryShards(1, logs.settings))
    replay.state.put_signatures({signature_hash((i,)): (i,) for i in "abc"}, 0)
    replay.run()
    return replay.state


def parts(found: Verification) -> dict[str, Difference]:
    made: dict[str, Difference] = {one.part: one for one in found.differences}
    assert len(made) == len(found.differences), "one of each part"
    return made


def test_the_same_is_the_same() -> None:
    found = verify(replayed(), replayed())
    assert found.differences == []
    assert (found.first_pane, found.closed, found.matured) == (PANE_0 - 1, PANE_0 + 18, PANE_0 + 17)
    assert (found.decided, found.entries, found.left_out) == (PANE_0 - 2, 0, [])


def test_a_label_that_differs_is_named_by_its_cell() -> None:
    found = parts(verify(replayed(), replayed({"a": 1, "b": 1, "c": 0})))
    assert found.keys() == {"matured", "record"}
    one = found["matured"]
    assert (one.pane, one.also) == (PANE_0 + 1, 1)
    assert one.where.startswith("unit bucket ")
    assert ", b, grid bin 18" in one.where
    assert one.live == "1 labelled, 0 positives, 0 unlabelled"
    assert one.replayed == "1 labelled, 1 positives, 0 unlabelled"
    assert one.text == (
        f"matured of pane {PANE_0 + 1}: {one.where}: live {one.live}, replayed {one.replayed} (and 1 more)"
    )
    assert found["record"].where == "chain"


def test_a_score_too_many_is_named_by_its_cell() -> None:
    found = parts(verify(replayed(), replayed(extra="x")))
    assert found["scored"].pane == PANE_0 + 1
    assert found["scored"].where.startswith("a, grid bin")
    assert (found["scored"].live, found["scored"].replayed) == ("0 winners", "1 winners")
    assert (found["record"].where, found["record"].live, found["record"].replayed) == ("accepted", "1", "2")


def test_a_counter_that_differs_is_named() -> None:
    one, other = replayed(), replayed()
    name = PaneNames.of(PANE_0).record
    (blob,) = other.blobs([name])
    record = decode_record(blob or b"")
    counts = record.counts | {"label_late": 2, "label_leaked": 1}
    other.commit(Commit(blobs={name: msgspec.structs.replace(record, counts=counts).encode()}))
    (found,) = verify(one, other).differences
    assert (found.part, found.pane, found.where, found.live, found.replayed) == (
        "record",
        PANE_0,
        "label_late",
        "none",
        "2",
    )


def test_a_replay_that_did_not_come_so_far() -> None:
    found = verify(replayed(), replayed(until=100))
    assert [(one.where, one.live, one.replayed) for one in found.differences] == [
        ("closed", str(PANE_0 + 18), str(PANE_0 + 8)),
        ("matured", str(PANE_0 + 17), str(PANE_0 + 7)),
    ]
    assert (found.closed, found.matured) == (PANE_0 + 8, PANE_0 + 7)


def test_what_the_live_run_did_after_the_replay_began_is_not_compared() -> None:
    live, before = replayed(), replayed(until=100)
    assert verify(live, before, at=PaneCursors.of_state(before)).differences == []


def test_panes_that_the_live_state_does_not_keep_are_left_out() -> None:
    live = replayed()
    gone = [name for pane in (PANE_0 - 1, PANE_0, PANE_0 + 1) for name in PaneNames.of(pane)]
    live.commit(Commit(fields={KEPT: KeptPanes(PANE_0 + 2).encode()}, deletes=gone))
    found = verify(live, replayed({"a": 0, "b": 0, "c": 1}))
    # The hash chain tells of what is not kept.
    assert [(one.part, one.pane, one.where) for one in found.differences] == [("record", PANE_0 + 2, "chain")]
    assert found.first_pane == PANE_0 + 2
    assert found.left_out == [f"cells of panes {PANE_0 - 1} to {PANE_0 + 1}, which the live state does not keep"]


def test_states_without_panes_and_with_other_ones() -> None:
    with pytest.raises(HistoryError, match="no closed panes yet"):
        verify(MemoryState(), replayed())
    other = replayed()
    other.commit(Commit(fields={"first_pane": "7"}))
    (found,) = verify(replayed(), other).differences
    assert found.text == f"cursor: first_pane: live {PANE_0 - 1}, replayed 7"
    damaged = replayed()
    damaged.commit(Commit(deletes=[PaneNames.of(PANE_0 + 4).matured]))
    with pytest.raises(StateError, match=f"matured of pane {PANE_0 + 4} is not in the live state"):
        verify(damaged, replayed())


# --- decisions


def decided(panes: int = 40) -> tuple[World, MemoryState, LiveDecisions, GivenReplay]:
    """A live run with its cells, and the same decided again."""
    live = World(config(max_age="5h", cooldown="1h"))
    live.run(panes)
    cells = history(panes)
    state = cells.state()
    record = {PaneNames.of(pane).record: _record(pane) for pane in range(FIRST_PANE, cells.last_matured + 1)}
    state.commit(Commit(blobs=record))
    fields = state.read(("closed", "matured"))
    blobs = {name: blob or b"" for name in _names(cells.last_pane) for blob in state.blobs([name])}
    live.state.commit(Commit(fields={n: v or "" for n, v in fields.items()}, blobs=blobs))
    decisions = LiveDecisions.of_state(live.state)
    given = GivenReplay(cells, live.config, decisions)
    given.run()
    return live, state, decisions, given


def _names(last: int) -> list[str]:
    return [name for pane in range(FIRST_PANE, last + 1) for name in PaneNames.of(pane)]


def _record(pane: int) -> bytes:
    return PaneRecord(pane, {}, {}, {}, {}, 0, 0, 0, "").encode()


def alert(kind: AlertKind, diagnosis: str) -> bytes:
    return make_alert(WORLD_KEY, GENERATION, kind, "open", pane=5, since_ms=0, diagnosis=diagnosis).encode()


def test_decisions_snapshots_and_alerts_are_compared() -> None:
    live, state, decisions, given = decided()
    late, over = alert("late_labels", "by the clock"), alert("psi", OTHER_GENERATION)
    decisions = replace(decisions, outbox=[late, *decisions.outbox, over])
    found = verify(live.state, state, decisions=decisions, given=given)
    assert found.differences == []
    assert found.decided == decisions.last_pane
    assert found.entries == len(decisions.entries) > 6
    assert found.snapshots == len(live.store.history()) > 2
    assert found.alerts == len(given.outbox) > 6
    assert found.left_out[-1].startswith("alerts of what monitors look at by the wall clock: input_gap")
    assert "psi" not in BY_WALL_CLOCK

    # The newest alerts are kept.
    fewer = replace(decisions, outbox=decisions.outbox[5:], outbox_is_whole=False)
    found = verify(live.state, state, decisions=fewer, given=given)
    assert (found.differences, found.alerts) == ([], len(given.outbox) - 4)


def test_differences_of_decisions_are_named() -> None:
    live, state, decisions, given = decided()
    version = str(live.store.history()[1]["version"])
    live.state.commit(Commit(blobs={f"snapshot:{version}": b"another"}))
    first = alert("psi", "drift")
    detector = (decisions.detector or "").replace('"psi', '"PSI', 1)
    changed = replace(decisions, outbox=[*decisions.outbox[:3], first, *decisions.outbox[4:]], detector=detector)
    found = parts(verify(live.state, state, decisions=changed, given=given))
    assert found.keys() == {"snapshot", "alert", "detector"}
    assert found["snapshot"].where == version
    assert found["snapshot"].live == "7 bytes"
    assert (found["alert"].where, found["alert"].pane, found["alert"].also) == ("psi open", 5, 0)
    assert found["alert"].replayed == decisions.outbox[3].decode()
    assert (found["detector"].where, found["detector"].pane) != ("the whole field", None)

    lost = replace(decisions, outbox=[first, *decisions.outbox[4:]], outbox_is_whole=False)
    found = parts(verify(live.state, state, decisions=lost, given=given))
    assert found["alert"].replayed == "none"


def test_where_the_logs_part_is_named() -> None:
    live, state, decisions, _ = decided()
    entries = [*decisions.entries[:3], decisions.entries[1], *decisions.entries[3:]]
    given = GivenReplay(history(40), live.config, replace(decisions, entries=entries))
    given.run()
    found = parts(verify(live.state, state, decisions=decisions, given=given))
    assert found["decision"].where == "entry 3"
    assert found["decision"].live == decisions.entries[1].decode()


def test_a_replay_that_decided_less() -> None:
    live, state, decisions, _ = decided()
    given = GivenReplay(history(30), live.config, decisions)
    given.run()
    found = verify(live.state, state, decisions=decisions, given=given).differences
    assert found[0].text == f"cursor: decided: live {decisions.last_pane}, replayed {FIRST_PANE + 27}"
