"""The exact replay gives the cells of a live run, whatever happened to it, and whatever label inputs were left out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from stream_calib.backtest.exact.cuts import CutSchedule, KnownCuts
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.exact.resume import resume
from stream_calib.backtest.exact.verify_cells import CellsCompared, PaneCursors, compare_cells
from stream_calib.backtest.feed import Feed, FeedBatch
from stream_calib.backtest.history import CellHistory
from stream_calib.config import Config
from stream_calib.errors import HistoryError, HistoryGapError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import signature_hash
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.registration import INPUTS, recorded_inputs
from stream_calib.windows.shard_store import Mark
from tests.oracle.offline import Clock, Label, Score
from tests.windows.backends import MemoryBackend
from tests.windows.join import PANE_0
from tests.windows.logs import LABEL_LATE, LATE, Logs, Written, generate, ms, settings_with
from tests.windows.records import Block, records
from tests.windows.simulation import KEEPING, World

KEY = ModelKey("m", "1")
SIGNATURES = {signature_hash((value,)): (value,) for value in ("a", "b", "__missing__")}


def config_of(shards: int, **windows: object) -> Config:
    return Config.model_validate(
        {
            "model": {"name": "m"},
            "scores": {"attributes": {"group": "g"}},
            "windows": {
                "pane": "10s",
                "horizon": "15s",
                "score_lateness": f"{LATE}s",
                "label_lateness": f"{LABEL_LATE}s",
                "shards": shards,
                **windows,
            },
        }
    )


class LogsFeed(Feed):
    """Random logs, inputs in any order and in pieces of any length; `by_turns`: one input after the other."""

    def __init__(self, logs: Logs, starts: Mapping[str, Mark], seed: int, *, by_turns: Sequence[str] = ()) -> None:
        self._logs, self._starts, self._random, self._turns = logs, starts, random.Random(seed), by_turns
        self._next = {key: mark.next for key, mark in starts.items()}

    @property
    def source(self) -> str:
        return "random logs"

    @property
    def starts(self) -> Mapping[str, Mark]:
        return self._starts

    @property
    def rejects(self) -> Mapping[str, int]:
        return {"bad": 3}

    @property
    def at_end(self) -> frozenset[str]:
        return frozenset(key for key, at in self._next.items() if at == len(self._logs.inputs[key]))

    def batches(self) -> Iterator[FeedBatch]:
        while left := sorted(self._next.keys() - self.at_end):
            key = next((key for key in self._turns if key in left), self._random.choice(left))
            start, stop = self._next[key], self._next[key] + self._random.choice([1, 3, 10, 40])
            items = [written.item for written in self._logs.inputs[key][start:stop]]
            self._next[key] = start + len(items)
            yield FeedBatch(key, records(key[0], items, start), SIGNATURES if key[0] == "s" else {})

    def progress(self) -> tuple[int, int]:
        return sum(self._next.values()), sum(len(log) for log in self._logs.inputs.values())

    def close(self) -> None:
        """Nothing is open."""


def live_run(seed: int, faults: float) -> World:
    """Some label partitions fall silent for good or for long, others are added on the way."""
    logs = generate(
        seed, silent_for_good=seed % 4 == 0, wakes=seed % 4 == 2, grows=seed % 3 == 0, broker_clock=seed % 5 == 0
    )
    world = World(seed, MemoryBackend(), logs, faults=faults, kinds=KEEPING)
    world.run()
    return world


def replayed(world: World, cuts: KnownCuts, seed: int = 1) -> tuple[CellHistory, CellsCompared]:
    state, store = world.state, world.store
    starts = recorded_inputs(state, int(state.read((INPUTS,))[INPUTS] or 0))
    shards = ColumnShards(store.count, store.settings)
    replay = ExactReplay(LogsFeed(world.logs, starts, seed), config_of(store.count), KEY, shards, cuts=cuts)
    history = replay.run()
    return history, compare_cells(state, replay.state, PaneCursors.of_state(state))


@pytest.mark.parametrize("seeds", [range(0, 12), range(12, 24)], ids=str)
def test_the_cells_are_those_of_the_live_run(seeds: range) -> None:
    for seed in seeds:
        world = live_run(seed, random.Random(seed).choice([0.0, 0.02, 0.06]))
        history, compared = replayed(world, KnownCuts.of_state(world.state), seed)
        assert compared.differences == [], seed
        assert compared.matured >= world.last_pane() >= compared.first_pane
        assert history.counts["bad"] == 3
        assert history.signatures.items() <= SIGNATURES.items()


def test_without_the_cuts_the_cells_are_others() -> None:
    """So the cuts are what the logs do not give, and the test above says something."""
    found = []
    for seed in range(2, 24, 4):
        world = live_run(seed, 0.0)
        if KnownCuts.of_state(world.state).cuts:
            found += [one.part for one in replayed(world, KnownCuts(-1))[1].differences]
    assert "matured" in found


# --- behind what retention took


def test_from_a_pane_record_on_the_cells_are_those_of_the_live_run() -> None:
    """The first part of every log is gone."""
    panes = 0
    for seed in range(40, 60):
        world = live_run(seed, 0.02)
        state, store = world.state, world.store
        share = random.Random(seed).choice([0.1, 0.3, 0.5])
        gone = {key: int(share * len(log)) for key, log in world.logs.inputs.items()}
        try:
            resumed = resume(state, gone, store.settings)
        except HistoryGapError:
            continue
        assert all(mark.next >= gone[key] for key, mark in resumed.begin.items())
        shards = ColumnShards(store.count, store.settings)
        feed = LogsFeed(world.logs, resumed.begin, seed)
        cuts = KnownCuts.of_state(state)
        replay = ExactReplay(feed, config_of(store.count), KEY, shards, cuts=cuts, state=resumed.state)
        history = replay.run()
        compared = compare_cells(state, replay.state, PaneCursors.of_state(state))
        assert compared.differences == [], seed
        assert (history.start, history.first_pane) == ("cold", resumed.last_pane + 1)
        assert compared.first_pane == history.first_pane
        panes += compared.matured + 1 - compared.first_pane
    assert panes > 30


def test_where_no_pane_can_be_counted_again() -> None:
    world = live_run(1, 0.0)
    gone = {key: len(log) + 1 for key, log in world.logs.inputs.items()}
    with pytest.raises(HistoryGapError, match="the log begins behind all panes that have matured"):
        resume(world.state, gone, world.store.settings)


# --- one shard after the other


def test_each_shard_stands_where_it_stood() -> None:
    """The live run reached the cut of a pane at another place on each shard, between two labels of one batch."""
    settings, shards = settings_with(), 2
    ids = [f"id-{n}" for n in range(40)]
    scores = [Written(Block(tuple(Score(i, ms(1), 0.3, ("a",)) for i in ids)), 0), Written(Clock(ms(200)), 0)]
    labels = [Written(Clock(ms(0)), 0), *(Written(Label(i, ms(2), 1), 0) for i in ids), Written(Clock(ms(200)), 0)]
    other = [Written(Clock(ms(200)), 0)]
    logs = Logs({"s:t:0": scores, "l:t:0": labels, "l:t:1": other}, settings, None, 0)
    starts = dict.fromkeys(logs.inputs, Mark(0, None))

    def labelled(first: int, second: int) -> int:
        cut = {"l:t:0": {"0": first, "1": second}}
        cuts = KnownCuts(PANE_0, {PANE_0 - 1: cut, PANE_0: cut})
        feed = LogsFeed(logs, starts, 5)
        replay = ExactReplay(feed, config_of(shards), KEY, MemoryShards(shards, settings), cuts=cuts)
        return int(replay.run().matured(PANE_0).labelled.sum())

    counts = {cut: labelled(*cut) for cut in CUTS}
    assert counts[0, 0] == 0
    assert counts[41, 41] == 40
    assert counts[41, 0] + counts[0, 41] == 40
    assert counts[41, 0] > 5 < counts[0, 41]
    assert counts[20, 41] + counts[41, 20] == 40 + counts[20, 20]


CUTS = ((0, 0), (41, 41), (41, 0), (0, 41), (20, 41), (41, 20), (20, 20))


def test_limits_of_an_input_are_those_of_its_next_cut() -> None:
    schedule = CutSchedule(KnownCuts(9, {3: {"l": {"0": 5}}, 4: {}, 6: {"l": {"0": 8}, "m": {"0": 1}}}))
    assert schedule.inputs == {"l", "m"}
    assert [schedule.limits("l", pane) for pane in (0, 3, 4, 6, 7)] == [{"0": 5}, {"0": 5}, {"0": 8}, {"0": 8}, None]
    assert [schedule.limits("m", pane) for pane in (3, 7)] == [{"0": 1}, None]
    assert [schedule.uncut_from(pane) for pane in (0, 3, 4, 6, 7)] == [3, 0, 2, 0, None]


# --- what ends, what is silent


def quiet_logs(*labels: Written) -> Logs:
    """One score at second 1; the second label partition falls silent at second 5."""
    scores = [Written(Block((Score("a", ms(1), 0.3, ("a",)),)), 0), Written(Clock(ms(200)), 0)]
    inputs = {"s:t:0": scores, "l:t:0": [*labels, Written(Clock(ms(200)), 0)], "l:t:1": [Written(Clock(ms(5)), 0)]}
    return Logs(inputs, settings_with(), None, 0)


@pytest.mark.parametrize(("timeout", "matured"), [("1m", 17), ("off", -2)])
def test_an_input_of_which_nothing_more_comes_is_left_out_as_live(timeout: str, matured: int) -> None:
    logs = quiet_logs(Written(Label("a", ms(2), 1), 0))
    feed = LogsFeed(logs, dict.fromkeys(logs.inputs, Mark(0, None)), 1)
    shards = MemoryShards(1, logs.settings)
    history = ExactReplay(feed, config_of(1, idle_timeout=timeout), KEY, shards).run()
    assert history.last_matured - PANE_0 == matured
    assert history.last_pane - PANE_0 == 18


def test_an_input_that_is_behind_is_waited_for_as_long_as_something_comes() -> None:
    logs = quiet_logs(Written(Label("a", ms(2), 1), 0))
    turns = ("s:t:0", "l:t:1", "l:t:0")
    logs.inputs["l:t:1"].append(Written(Clock(ms(200)), 0))
    feed = LogsFeed(logs, dict.fromkeys(turns, Mark(0, None)), 1, by_turns=turns)
    history = ExactReplay(feed, config_of(1, idle_timeout="1m"), KEY, MemoryShards(1, logs.settings)).run()
    assert history.matured(PANE_0).labelled.sum() == 1


def test_what_ends_closes_as_far_as_clocks_have_said_before() -> None:
    """Behind the end of all inputs only panes with a score are closed; the live run may have closed more before."""
    logs = quiet_logs(Written(Label("a", ms(2), 1), 0))
    ended = {
        key: [*log[:-1], Written(Clock(ms(200)), 0), Written(Clock(ENDED_CLOCK_MS), 0)]
        for key, log in logs.inputs.items()
    }
    logs = replace(logs, inputs=ended)
    feed = LogsFeed(logs, dict.fromkeys(ended, Mark(0, None)), 1)
    history = ExactReplay(feed, config_of(1), KEY, MemoryShards(1, logs.settings)).run()
    assert (history.last_pane - PANE_0, history.last_matured - PANE_0) == (18, 17)


# --- refusals


def test_a_feed_that_skips_records_is_refused() -> None:
    logs = quiet_logs()
    feed = LogsFeed(logs, dict.fromkeys(logs.inputs, Mark(0, None)), 1)
    feed._next["s:t:0"] = 1
    replay = ExactReplay(feed, config_of(1), KEY, MemoryShards(1, logs.settings))
    with pytest.raises(HistoryError, match=r"s:t:0: 1 comes behind 0"):
        replay.run()


def test_a_feed_of_which_nothing_closes_is_refused() -> None:
    logs = quiet_logs()
    logs = replace(logs, inputs=logs.inputs | {"s:t:1": []})
    feed = LogsFeed(logs, dict.fromkeys(logs.inputs, Mark(0, None)), 1)
    with pytest.raises(HistoryError, match="no closed panes"):
        ExactReplay(feed, config_of(1), KEY, MemoryShards(1, logs.settings)).run()


def test_as_many_shards_as_are_configured() -> None:
    logs = quiet_logs()
    feed = LogsFeed(logs, dict.fromkeys(logs.inputs, Mark(0, None)), 1)
    with pytest.raises(ValueError, match="2 shards, 3 are configured"):
        ExactReplay(feed, config_of(3), KEY, MemoryShards(2, logs.settings))
