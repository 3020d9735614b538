"""The closer's three cursors, over both stores. Times are seconds, panes count from PANE_0."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from stream_calib.errors import GenerationMismatchError, PaneGoneError, StateError
from stream_calib.snapshot.decision_log import DecisionLog, Expired, Request
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.closer import Closer
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.registration import claim_generation, register_inputs
from stream_calib.windows.served_sums import Served, ServedClass
from stream_calib.windows.shard_store import Mark, Progress
from stream_calib.windows.state_store import Commit
from tests.oracle.offline import Clock, End
from tests.windows.backends import Backend, backend
from tests.windows.deciders import ChainDecider, expected_detector
from tests.windows.join import PANE_0, SETTINGS, Join, L, S, block, clock, label
from tests.windows.logs import START_MS

__all__ = ["backend"]


class Model:
    """A join, the model key's state and one closer; cursors are given counted from PANE_0."""

    def __init__(
        self,
        backend: Backend,
        shards: int = 2,
        settings: PaneSettings = SETTINGS,
        *,
        labels: int = 1,
        requests: bool = False,
        origin: int = PANE_0,
    ) -> None:
        self.backend, self.origin, self.requests = backend, origin, requests
        self.store = backend.shards(shards, settings)
        self.state = backend.state()
        self.join = Join(self.store, labels=labels)
        register_inputs(self.store, self.state, dict.fromkeys(self.join.items, Mark(0, None)))
        self.idle: dict[str, int] = {}
        self.expire = False
        self.closer = self.another_closer()

    def another_closer(self) -> Closer:
        return Closer(
            self.store,
            self.state,
            lambda first: ChainDecider(first, self.store.settings.horizon_panes, requests=self.requests),
            idle_inputs=lambda: self.idle,
            may_expire=lambda request, matured: self.expire,
        )

    def run(self, most: int = 50) -> int:
        """Advances until nothing more can be done; the number of times that something was."""
        for n in range(most):
            if not self.closer.advance():
                return n
        raise AssertionError(f"not at rest after {most} times: {self.cursors()}")

    def cursors(self) -> tuple[int, ...]:
        """first_pane, closed, matured, decided."""
        found = self.state.read(("first_pane", "closed", "matured", "decided"))
        return tuple(int(value) - self.origin for value in found.values() if value is not None)

    def record(self, pane: int) -> PaneRecord:
        return decode_record(self.blob(PaneNames.of(self.origin + pane).record))

    def blob(self, name: str) -> bytes:
        (found,) = self.state.blobs([name])
        assert found is not None, name
        return found


def test_nothing_happens_before_every_score_input_has_a_clock(backend: Backend) -> None:
    model = Model(backend)
    assert model.run() == 0
    model.join.write(L, clock(100))
    assert model.run() == 0
    assert model.cursors() == ()


def test_a_generations_first_pane_is_that_of_the_smallest_first_clock_minus_the_lateness(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, block(("a", 21)), block(("b", 18)))
    model.run()
    assert model.cursors() == (1, 0, 0, 0)


def test_each_cursor_goes_as_far_as_its_clocks_allow(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, block(("a", 4)), clock(33))
    model.run()
    assert model.cursors() == (0, 2, -1, -1)
    # Pane 0 ends at 10 and its horizon at 25, with the labels' lateness of 4.
    model.join.write(L, label("a", 5), clock(28.999))
    model.run()
    assert model.cursors() == (0, 2, -1, -1)
    model.join.write(L, clock(29))
    model.run()
    assert model.cursors() == (0, 2, 0, 0)


def test_a_pane_is_decided_only_with_h_closed_beyond_it(backend: Backend) -> None:
    """Panes of 10 s under a horizon of 20 s: h = 2; latenesses let maturing and closing end together."""
    settings = PaneSettings(10_000, 20_000, 0, 0, None, 2)
    model = Model(backend, settings=settings)
    model.join.write(S, block(("a", 4)), clock(30))
    model.join.write(L, clock(30))
    model.run()
    assert model.cursors() == (0, 2, 0, 0)


def test_silent_labels_hold_everything_but_closing(backend: Backend) -> None:
    """Silence is never read as negative."""
    model = Model(backend)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(3, 60)), clock(200))
    model.run()
    assert model.cursors() == (0, 18, -1, -1)


def test_cells_counters_and_what_was_served_are_committed_with_a_pane(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(
        S, block(("a", 1), ("b", 2), ("c", 3), snapshot="v1"), block(("a", 1), snapshot="v1"), block(("d", 4))
    )
    model.join.write(
        L, label("a", 5, 1), label("b", 5, 0), label("c", 5, None), label("x", 6), clock(14), label("y", 9)
    )
    model.join.move_clocks(40)
    model.run()
    record = model.record(0)
    assert record.counts == {"accepted": 5, "winners": 4, "labels": 4, "matched": 3, "label_never_scored": 1}
    assert (record.labelled, record.positives, record.unlabelled) == (2, 1, 2)
    served = record.served["v1"]
    assert (served.winners, served.negatives.rows, served.positives.rows) == (3, 1, 1)
    for of_class in (served.negatives, served.positives):
        assert of_class.weight == 1
        assert of_class.probability == pytest.approx(0.5)
        assert of_class.log_loss == pytest.approx(0.6931472)
    assert record.served[""] == Served(1, ServedClass(), ServedClass())
    assert record.cut == {}
    assert model.record(1).counts == {"label_late": 1}
    scored = ScoredCells.unpack(model.blob(PaneNames.of(PANE_0).scored))
    assert int(scored.n.sum()) == 4


def test_a_months_silence_is_committed_in_few_steps(backend: Backend) -> None:
    settings = PaneSettings(3_600_000, 86_400_000, 300_000, 3_600_000, None, 2)
    hour, month = 3_600_000, 30 * 24
    origin = START_MS // hour
    model = Model(backend, shards=1, settings=settings, origin=origin)
    model.join.write(S, block(("a", 0)), Clock(START_MS + (month + 26) * hour))
    model.join.write(L, Clock(START_MS + (month + 26) * hour))
    commits = 0
    commit = model.state.commit

    def counted(change: Commit) -> bool:
        nonlocal commits
        commits += 1
        return commit(change)

    model.state.commit = counted  # type: ignore[method-assign]  # an instance of this test's own
    model.run(100)
    assert model.cursors()[2] >= month - 1
    assert commits < 60
    assert model.record(100).counts == {}
    assert len(MaturedCells.unpack(model.blob(PaneNames.of(origin + 100).matured)).labelled) == 0
    assert [p.removed for p in model.store.progress()] == [origin + model.cursors()[2] - 2]


def test_once_every_input_has_ended_cursors_end_at_the_last_pane_with_a_score(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, block(("a", 4)), block(("b", 37)), block(("late", 12)), End())
    model.join.write(L, label("a", 5), label("b", 38), label("never", 95))
    model.run()
    assert model.cursors() == (0, 4, 3, 3), "no further than scores, although labels are"
    model.join.write(L, End())
    model.run()
    assert model.cursors() == (0, 4, 3, 3)
    assert model.record(3).counts == {"accepted": 1, "winners": 1, "labels": 1, "matched": 1, "score_late": 1}
    assert model.store.counts_after(PANE_0 + 3) == {"labels": 1}


# --- idle label inputs


def test_a_pane_that_matures_without_an_idle_input_has_its_cut_on_record(backend: Backend) -> None:
    model = Model(backend, labels=2)
    model.join.write(S, *(block((f"id-{i}", 3 + i / 2)) for i in range(10)), clock(60))
    model.join.write("l:t:1", *(label(f"id-{i}", 9) for i in range(5)))
    model.join.write(L, clock(60))
    model.run()
    assert model.cursors() == (0, 4, -1, -1)
    model.idle = {"l:t:1": 5}
    model.run()
    assert model.record(0).cut == {"l:t:1": {"0": 5, "1": 5}}
    assert model.record(0).labelled == 5
    model.join.write("l:t:1", *(label(f"id-{i}", 9) for i in range(5, 10)))
    model.idle = {}
    model.join.move_clocks(100)
    model.run()
    assert (model.record(0).labelled, model.record(5).cut) == (5, {})


def test_panes_with_a_cut_are_removed_under_it(backend: Backend) -> None:
    model = Model(backend, labels=2)
    model.join.write(S, block(("a", 4)), clock(100))
    model.join.write("l:t:1", clock(5))
    model.join.write(L, clock(100))
    model.idle = {"l:t:1": 1}
    model.run()
    assert model.cursors()[2] == 7
    assert [p.removed for p in model.store.progress()] == [PANE_0 + 5] * 2


# --- several closers, and states that go back


def test_a_second_closer_changes_nothing(backend: Backend) -> None:
    model = Model(backend)
    other = model.another_closer()
    for i in range(12):
        model.join.write(S, *(block((f"id-{i}-{k}", 10 * i + k)) for k in range(5)))
        model.join.write(L, *(label(f"id-{i}-{k}", 10 * i + k + 1) for k in range(5)))
        model.closer.advance()
        other.advance()
    model.join.move_clocks(300)
    while other.advance() or model.closer.advance():
        pass
    panes = range(model.cursors()[3] + 1)
    assert [model.record(pane).labelled for pane in panes] == [5 if pane < 12 else 0 for pane in panes]
    assert model.state.entries("outbox", 0) == [
        b"alert-%d" % p for p in range(PANE_0, PANE_0 + len(panes)) if p % 3 == 0
    ]


def test_a_closer_that_was_paused_while_another_went_on_does_no_harm(backend: Backend) -> None:
    """It comes to a pane that was matured and dropped since: others are right, nothing is broken."""
    model = Model(backend)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(60)))
    model.join.write(L, clock(20))
    model.join.write(S, clock(100))
    model.run()
    model.join.write(L, *(label(f"id-{i}", i + 1) for i in range(16, 60)), clock(100))
    other, read_counters = model.another_closer(), model.store.read_counters
    woken = False

    def paused(*args: object) -> object:
        nonlocal woken
        if not woken:
            woken = True
            while other.advance():
                pass
        return read_counters(*args)  # type: ignore[arg-type]  # passed on as they came

    model.store.read_counters = paused  # type: ignore[method-assign, assignment]  # an instance of this test's own
    assert model.closer.advance()
    assert woken
    assert model.run() == 0
    assert [model.record(pane).counts["accepted"] for pane in range(6)] == [10] * 6


def test_a_closer_that_was_paused_until_panes_were_dropped_takes_that_for_no_damage(backend: Backend) -> None:
    """They were removed by another one, and retention has dropped their records; the paused one knows neither."""
    model = Model(backend)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(60)))
    model.join.move_clocks(60)
    model.run()
    (removed,) = {p.removed for p in model.store.progress()}
    assert removed is not None
    model.join.move_clocks(100)
    other, progress = model.another_closer(), model.store.progress
    woken = False

    def paused() -> list[Progress]:
        nonlocal woken
        found = progress()
        if not woken:
            woken = True
            while other.advance():
                pass
            model.state.commit(Commit(deletes=[PaneNames.of(removed + 1).record]))
        return found

    model.store.progress = paused  # type: ignore[method-assign]  # an instance of this test's own
    assert model.closer.advance()
    assert woken
    assert model.run() == 0


def test_a_record_that_is_missing_while_its_pane_is_to_be_removed_is_damage(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(60)))
    model.join.move_clocks(60)
    model.run()
    (removed,) = {p.removed for p in model.store.progress()}
    assert removed is not None
    model.state.commit(Commit(deletes=[PaneNames.of(removed + 1).record]))
    model.join.move_clocks(100)
    with pytest.raises(StateError, match=f"blob pane:{removed + 1} is missing"):
        model.run()


def test_a_state_that_went_back_is_derived_again(backend: Backend) -> None:
    model = Model(backend, requests=True)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(60)))
    model.join.write(L, *(label(f"id-{i}", i + 1) for i in range(60)))
    model.join.move_clocks(60)
    model.expire = True
    model.run()
    before, decided = backend.copy_state(model.state), model.cursors()[3]
    model.join.move_clocks(80)
    model.run()
    after = backend.copy_state(model.state)
    assert model.cursors()[3] == decided + 2
    backend.put_state(model.state, before)
    model.run()
    assert backend.copy_state(model.state) == after


def test_a_state_that_is_older_than_what_shards_have_dropped_stops_the_closer(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(60)))
    model.join.move_clocks(50)
    model.run()
    before = backend.copy_state(model.state)
    model.join.move_clocks(120)
    model.run()
    backend.put_state(model.state, before)
    with pytest.raises(PaneGoneError, match=r"dropped pane \d+"):
        model.run()
    with pytest.raises(PaneGoneError):
        model.another_closer().advance()


def test_a_damaged_decision_log_stops_the_closer(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, block(("a", 1)))
    model.join.move_clocks(60)
    model.run()
    model.state.commit(Commit(appends={"decisions": [b"{}"]}, fields={"log_length": "1", "tip": "of another log"}))
    model.join.move_clocks(90)
    with pytest.raises(StateError, match="do not lead to its tip"):
        model.run()


def test_a_missing_blob_stops_the_closer(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, block(("a", 4)))
    model.join.move_clocks(60)
    model.run()
    model.state.commit(Commit({}, {"decided": str(PANE_0 - 2)}))
    with pytest.raises(StateError, match=r"blob (scored|pane):\d+ is missing"):
        model.run()


def with_a_late_label(backend: Backend) -> tuple[Model, Callable[[], None]]:
    """Pane 0 is about to mature without an idle input. Second: the state goes back, and another closer matures the pane
    once more, with the label that has come there meanwhile; it decides nothing."""
    model = Model(backend, shards=1, labels=2)
    model.join.write(S, block(("a", 4)), clock(32))
    model.join.write("l:t:1", clock(5))
    model.join.write(L, clock(32))
    model.run()
    before = backend.copy_state(model.state)
    model.idle = {"l:t:1": 1}

    def go_back() -> None:
        backend.put_state(model.state, before)
        model.join.write("l:t:1", label("a", 6), clock(32))
        model.idle = {}
        other = Closer(model.store, model.state, lambda first: ChainDecider(first, 1_000))
        while other.advance():
            pass

    return model, go_back


def detector_by_blobs(model: Model) -> str | None:
    first, _, _, decided = model.cursors()
    return expected_detector(
        model.origin + first,
        model.origin + decided,
        SETTINGS.horizon_panes,
        lambda pane: model.blob(PaneNames.of(pane).scored),
        lambda pane: model.blob(PaneNames.of(pane).matured),
        lambda pane: model.record(pane - model.origin).chain,
    )


def test_a_decision_on_cells_that_were_matured_anew_meanwhile_is_not_committed(backend: Backend) -> None:
    model, go_back = with_a_late_label(backend)
    commit, gone_back = model.state.commit, False

    def interrupted(change: Commit) -> bool:
        nonlocal gone_back
        if "decided" in change.expect and not gone_back:
            gone_back = True
            assert model.record(0).labelled == 0
            go_back()
        return commit(change)

    model.state.commit = interrupted  # type: ignore[method-assign]  # an instance of this test's own
    model.run()
    assert gone_back
    assert model.record(0).labelled == 1
    assert model.cursors() == (0, 1, 0, 0)
    assert model.state.read(("detector",))["detector"] == detector_by_blobs(model)


def test_cells_that_were_matured_anew_are_not_taken_from_memory(backend: Backend) -> None:
    model, go_back = with_a_late_label(backend)
    model.run()
    assert model.record(0).labelled == 0
    go_back()
    model.run()
    assert model.record(0).labelled == 1
    assert model.cursors() == (0, 1, 0, 0)
    assert model.state.read(("detector",))["detector"] == detector_by_blobs(model)


# --- requests


def open_request(model: Model) -> str | None:
    return model.state.read(("open_request",))["open_request"]


def test_nothing_is_decided_while_a_request_is_open_and_one_that_expired_lets_go(backend: Backend) -> None:
    model = Model(backend, requests=True)
    model.join.write(S, block(("a", 4)))
    model.join.move_clocks(200)
    model.run()
    # The first pane is a multiple of five, so its decision asks for something.
    assert PANE_0 % 5 == 0
    assert open_request(model) == f"request-{PANE_0}"
    assert model.cursors() == (0, 18, 17, 0)

    model.expire = True
    model.run()
    assert model.cursors() == (0, 18, 17, 17)
    assert open_request(model) == ""
    log = DecisionLog()
    log.extend(model.state.entries("decisions", 0))
    assert [(type(e), e.pane - PANE_0) for e in log.entries] == [
        (kind, pane + (kind is Expired)) for pane in (0, 5, 10, 15) for kind in (Request, Expired)
    ]


def test_an_entry_from_outside_between_reading_and_committing_is_not_overlooked(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, block(("a", 4)))
    model.join.move_clocks(60)
    state, commit = model.state, model.state.commit
    tips: list[str | None] = []

    def interrupted(change: Commit) -> bool:
        if "decided" in change.expect and not tips:
            tips.append(change.expect["tip"])
            entry = Expired(pane=PANE_0, request_id="x").encode()
            commit(Commit(fields={"tip": "moved", "log_length": "1"}, appends={"decisions": [entry]}))
        return commit(change)

    state.commit = interrupted  # type: ignore[method-assign]  # an instance of this test's own
    with pytest.raises(StateError):
        model.run()
    assert tips == [None]
    assert model.cursors()[3] == -1


# --- registration


def register(model: Model) -> None:
    register_inputs(model.store, model.state, dict.fromkeys(model.join.items, Mark(0, None)))


def test_a_wiped_shard_is_registered_where_its_panes_are_still_needed(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(100)))
    model.join.write(L, *(label(f"id-{i}", i + 1) for i in range(100)))
    model.join.move_clocks(110)
    model.run()
    matured = model.cursors()[2]
    first = matured - SETTINGS.keep_panes + 1 - SETTINGS.back_panes
    backend.put_shard(model.store, 1, None)
    register(model)
    kept, wiped = model.store.progress()
    assert wiped.removed == PANE_0 + first - 1
    entries = model.record(first).entries
    assert wiped.marks == {key: Mark(entries[key].position, entries[key].clock_ms) for key in (S, L)}
    assert kept.marks[S].next == 101
    for key in (S, L):
        mark = model.join.intake.restart(key)
        model.join.deliver(key, mark.next, len(model.join.items[key]))
    model.join.move_clocks(200)
    model.run()
    assert [model.record(pane).labelled for pane in range(10)] == [10] * 10


def test_a_wiped_shard_of_a_young_generation_starts_from_the_beginning(backend: Backend) -> None:
    model = Model(backend)
    model.join.write(S, *(block((f"id-{i}", i)) for i in range(20)))
    model.join.move_clocks(40)
    model.run()
    backend.put_shard(model.store, 0, None)
    register(model)
    assert model.store.progress()[0].marks == {S: Mark(0, None), L: Mark(0, None)}
    assert model.store.progress()[0].removed is None


def test_a_wiped_shard_without_records_to_start_from_is_an_error(backend: Backend) -> None:
    model = Model(backend)
    register(model)
    model.state.commit(Commit(fields={"first_pane": str(PANE_0), "matured": str(PANE_0 + 50)}))
    backend.put_shard(model.store, 0, None)
    with pytest.raises(StateError, match="has no record"):
        register(model)


def test_another_semantic_configuration_is_refused(backend: Backend) -> None:
    state = backend.state()
    claim_generation(state, {"pane_ms": 1})
    claim_generation(state, {"pane_ms": 1})
    with pytest.raises(GenerationMismatchError, match=r"\(pane_ms: 1 -> 2\).*config plan.*state rebuild"):
        claim_generation(state, {"pane_ms": 2})


def test_idle_inputs_are_asked_for_at_each_step(backend: Backend) -> None:
    asked = 0

    def idle() -> Mapping[str, int]:
        nonlocal asked
        asked += 1
        return {}

    model = Model(backend)
    closer = Closer(model.store, model.state, lambda first: ChainDecider(first, 1), idle_inputs=idle)
    model.join.write(S, block(("a", 1)))
    closer.advance()
    closer.advance()
    assert asked == 2
