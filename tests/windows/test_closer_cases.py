"""The closer, case by case: others at work beside it, shards and state that go back under it, long silence.

Whatever happens, in the end the model key's state is, byte for byte, that of a run in which nothing happened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from stream_calib.errors import PaneGoneError
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.closer import Closer
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.registration import register_inputs
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_store import Commit
from tests.oracle.offline import Clock, End
from tests.windows.backends import BACKENDS, Backend, MemoryBackend, RedisBackend
from tests.windows.join import L, S, block, clock, label
from tests.windows.logs import START_MS
from tests.windows.test_closer import Model

IDS = 60


@pytest.fixture(params=BACKENDS[:2])
def backend(request: pytest.FixtureRequest) -> Backend:
    """In memory and in Redis; a cluster answers the same scripts."""
    return MemoryBackend() if request.param == "memory" else RedisBackend(request.getfixturevalue("redis_client"))


def fed(backend: Backend) -> Model:
    """A score a second, most of them with a label; a pane in the middle has none. Nothing is closed yet."""
    model = Model(backend)
    seconds = [second for second in range(IDS) if not 30 <= second < 40]
    model.join.write(S, *(block((f"id-{second}", second)) for second in seconds))
    model.join.write(L, *(label(f"id-{second}", second + 1) for second in seconds if second % 3))
    return model


def at_rest(model: Model) -> None:
    for _ in range(2):
        catch_up(model)
        model.run(200)


def catch_up(model: Model) -> None:
    """As a worker does that finds shards behind: everything is read again from where the least of them stands."""
    register_inputs(model.store, model.state, dict.fromkeys(model.join.items, Mark(0, None)))
    for key, items in model.join.items.items():
        mark = model.join.intake.restart(key)
        model.join.deliver(key, mark.next, len(items))


def committed(model: Model) -> dict[str, Any]:
    """Every blob, list and cursor that the closer writes."""
    at = model.state.read(("first_pane", "closed", "matured", "decided", "matured_chain", "detector", "tip"))
    panes = range(int(at["first_pane"] or 0), int(at["closed"] or 0) + 1)
    blobs = {name: model.state.blobs([name])[0] for pane in panes for name in PaneNames.of(pane)}
    return {**at, **blobs, "outbox": model.state.entries("outbox", 0)}


@cache
def undisturbed(*clocks: float) -> dict[str, Any]:
    """With the same logs, all of them there before anything is closed; in memory."""
    model = fed(MemoryBackend())
    for seconds in clocks:
        model.join.move_clocks(seconds)
    at_rest(model)
    return committed(model)


# --- two closers


@pytest.mark.parametrize("cursor", ["first_pane", "closed", "matured", "decided"])
def test_a_closer_that_is_paused_between_reading_and_committing_changes_nothing(backend: Backend, cursor: str) -> None:
    """Another one goes on meanwhile, far enough for the shards to drop what the paused one has read."""
    wanted = undisturbed(70, 130)
    model = fed(backend)
    model.join.move_clocks(70)
    other, commit, answers = model.another_closer(), model.state.commit, list[bool]()

    def paused(change: Commit) -> bool:
        if cursor in change.fields and not answers:
            model.state.commit = commit  # type: ignore[method-assign]  # an instance of this test's own
            model.join.move_clocks(130)
            while other.advance():
                pass
            answers.append(commit(change))
            return answers[0]
        return commit(change)

    model.state.commit = paused  # type: ignore[method-assign]  # an instance of this test's own
    while not answers:
        model.closer.advance()
    assert answers == [False]
    at_rest(model)
    assert committed(model) == wanted


def test_closers_that_take_turns_at_every_call_write_each_pane_once(backend: Backend) -> None:
    wanted = undisturbed(*range(70, 140, 10))
    model = fed(backend)
    closers = [model.closer, model.another_closer(), model.another_closer()]
    written: list[str] = []
    commit, depth = model.state.commit, 0

    def others_first(change: Commit) -> bool:
        nonlocal depth
        if depth < len(closers) - 1:
            depth += 1
            closers[depth].advance()
            depth -= 1
        done = commit(change)
        written.extend(name for name in change.blobs if done)
        return done

    model.state.commit = others_first  # type: ignore[method-assign]  # an instance of this test's own
    for second in range(70, 140, 10):
        model.join.move_clocks(second)
        closers[0].advance()
    model.state.commit = commit  # type: ignore[method-assign]  # an instance of this test's own
    at_rest(model)
    assert len(written) == len(set(written))
    assert committed(model) == wanted


# --- shards that go back


@pytest.mark.parametrize("fault", ["rolled back", "wiped"])
@pytest.mark.parametrize("call", ["read_rows", "read_counters", "read_labels", "remove"])
def test_a_shard_that_goes_back_during_a_walk(backend: Backend, fault: str, call: str) -> None:
    wanted = undisturbed(60, 130)
    model = fed(backend)
    model.join.move_clocks(60)
    model.run()
    old = None if fault == "wiped" else backend.copy_shard(model.store, 0)
    model.join.move_clocks(130)
    original: Callable[..., Any] = getattr(model.store, call)
    happened: list[int] = []

    def goes_back(shard: int, *args: Any) -> Any:
        if shard == 1 and not happened:  # shard 0 has been walked
            happened.append(shard)
            backend.put_shard(model.store, 0, old)
        return original(shard, *args)

    setattr(model.store, call, goes_back)
    model.run(200)
    assert happened
    assert model.run(200) == 0, "it waits for the shard, and takes nothing for final that is not"
    at_rest(model)
    assert committed(model) == wanted
    assert [backend.size(model.store, shard) > 0 for shard in (0, 1)] == [True, True]
    assert len({progress.removed for progress in model.store.progress()}) == 1


def test_a_wiped_shard_answers_not_yet_and_no_pane_is_taken_for_empty(backend: Backend) -> None:
    model = fed(backend)
    model.join.move_clocks(60)
    model.run()
    before = model.cursors()
    backend.put_shard(model.store, 1, None)
    for key in (S, L):  # the other shard goes on
        model.join.append(key, clock(130))
    assert model.run() == 0
    assert model.cursors() == before
    at_rest(model)
    assert committed(model) == undisturbed(60, 130)


# --- the state goes back


def test_a_state_that_went_back_by_less_than_the_shards_keep_is_derived_again_byte_for_byte(backend: Backend) -> None:
    model = fed(backend)
    copies = []
    for second in range(60, 131, 10):
        model.join.move_clocks(second)
        model.run()
        copies.append(backend.copy_state(model.state))
    wanted = committed(model)
    for back in (2, 3):  # the newest is copies[-1]; panes mature one at a time here
        backend.put_state(model.state, copies[-back])
        at_rest(model)
        assert committed(model) == wanted


def test_a_state_that_is_older_than_its_shards_stops_the_closer_with_what_to_do_and_writes_nothing(
    backend: Backend,
) -> None:
    model = fed(backend)
    model.join.move_clocks(60)
    model.run()
    old = backend.copy_state(model.state)
    model.join.move_clocks(130)
    model.run()
    backend.put_state(model.state, old)
    before = committed(model)
    for closer in (model.another_closer(), model.another_closer()):
        with pytest.raises(PaneGoneError, match=r"^shard 0 has dropped pane \d+"):
            advance_until_error(closer)
    after = committed(model)
    assert {name: after[name] for name in before if name != "closed"}.items() >= {
        name: before[name]
        for name in ("first_pane", "matured", "decided", "matured_chain", "tip", "detector", "outbox")
    }.items()


def advance_until_error(closer: Closer) -> None:
    for _ in range(50):
        closer.advance()


# --- silence, and ends


def test_a_pane_with_nothing_in_it_is_a_pane(backend: Backend) -> None:
    model = fed(backend)
    model.join.move_clocks(130)
    model.run()
    record = model.record(3)
    assert (record.counts.get("winners", 0), record.labelled, record.unlabelled, record.served) == (0, 0, 0, {})
    cells = MaturedCells.unpack(model.blob(PaneNames.of(model.origin + 3).matured))
    assert len(cells.labelled) == 0
    assert model.record(4).chain != record.chain


HOUR_MS, MONTH = 3_600_000, 30 * 24


def test_a_month_of_clock_records_alone_is_committed_in_stretches() -> None:
    """Caught up with in batches of a thousand clock records, one a minute: not a commit for each hour."""
    settings = PaneSettings(HOUR_MS, 24 * HOUR_MS, 300_000, HOUR_MS, None, 2)
    model = Model(MemoryBackend(), shards=1, settings=settings, origin=START_MS // HOUR_MS)
    model.join.write(S, block(("a", 0)))
    commits, commit = 0, model.state.commit

    def counted(change: Commit) -> bool:
        nonlocal commits
        commits += 1
        return commit(change)

    model.state.commit = counted  # type: ignore[method-assign]  # an instance of this test's own
    step = 1_000
    for minute in range(step, (MONTH + 26) * 60 + 1, step):
        for key in (S, L):
            model.join.write(key, Clock(START_MS + minute * 60_000))
        model.closer.advance()
    model.run(100)
    assert model.cursors()[2] >= MONTH - 20
    batches = (MONTH + 26) * 60 // step
    assert commits <= 3 * (batches + -(-MONTH // 48)) + 3
    assert commits < MONTH / 3, "each hour alone would have taken three of them"


def test_ends_on_some_partitions_wait_for_the_others(backend: Backend) -> None:
    model = Model(backend, labels=2)
    model.join.write(S, *(block((f"id-{second}", second)) for second in range(30)), End())
    model.join.write(L, *(label(f"id-{second}", second + 1) for second in range(0, 30, 2)), End())
    model.run()
    assert model.cursors()[2:] == (-2, -2), "the other label partition has said nothing"
    model.join.write("l:t:1", *(label(f"id-{second}", second + 1) for second in range(1, 30, 2)))
    model.run()
    assert model.cursors()[2] == 0
    model.join.write("l:t:1", End())
    model.run()
    assert model.cursors() == (-1, 3, 2, 2)
    assert [model.record(pane).labelled for pane in range(3)] == [10] * 3
