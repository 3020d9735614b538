"""The exact replay: a feed through intake and join to cells, by the functions that run live.

What is live done by monitors and the closer is done here in one process, without leases, groups or a server. A shard is
a pure function of the prefix that it has applied, so the cells are those of the live run, however its inputs were
shared out, ordered or repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stream_calib.backtest.exact.cuts import CutSchedule, HeldInput, KnownCuts
from stream_calib.backtest.feed import Feed, FeedBatch
from stream_calib.backtest.history import CellHistory
from stream_calib.config import Config
from stream_calib.config_identity import semantic_hash
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.clocks import least_of_all
from stream_calib.windows.closer import Closer
from stream_calib.windows.input_batch import InputBatch, judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.registration import register_inputs
from stream_calib.windows.shard_store import Mark, ShardStore
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS
from stream_calib.windows.vocabulary import Vocabulary

_NO_CUTS = KnownCuts(-1)
_PANES_A_READ = 500
_ALL = 10**9


class ExactReplay:
    """One model key, once. `state` has its cells and pane records, and nothing decided."""

    def __init__(
        self,
        feed: Feed,
        config: Config,
        key: ModelKey,
        shards: ShardStore,
        *,
        cuts: KnownCuts = _NO_CUTS,
        state: MemoryState | None = None,
    ) -> None:
        """`shards`: empty ones, as many as are configured. `cuts`: of a live run over the same inputs. `state`: goes on
        behind what has matured there (exact_resume.py); None: at the feed's first pane."""
        if shards.count != config.windows.shards:
            raise ValueError(f"{shards.count} shards, {config.windows.shards} are configured")
        self.state = MemoryState() if state is None else state
        self._feed, self._config, self._key, self._shards = feed, config, key, shards
        self._settings = shards.settings
        self._cuts = CutSchedule(cuts)
        self._intake = Intake(shards, lambda: register_inputs(shards, self.state, feed.starts))
        self._marks: dict[str, Mark] = dict(feed.starts)
        self._held = {
            i: HeldInput(i, mark, shards.count, self._settings)
            for i, mark in feed.starts.items()
            if i in self._cuts.inputs
        }
        self._closer = Closer(shards, self.state, None, idle_inputs=self._left_out, vocabulary=Vocabulary.of(config))
        windows = config.windows
        self._leaves_out = windows.idle_timeout_ms is not None and windows.missing_label != "negative_at_horizon"
        self._ended: dict[str, list[FeedBatch]] = {}
        """Input -> the record that ends it, and what follows."""
        self._known_signatures: set[int] = set()
        self._newest_ms = 0
        self._reached: tuple[int | None, int | None] | None = None

    def run(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> CellHistory:
        """Replays the feed to its end. `on_progress` hears of records read, and of records in all.

        Raises HistoryError where the feed cannot be read, or nothing of it closes.
        """
        for batch in self._feed.batches():
            self._bring_until_end(batch)
            if self._is_due():
                self._advance()
            on_progress(*self._feed.progress())
        self._advance()
        for batches in self._ended.values():
            for batch in batches:
                self._bring(batch)
        self._advance()
        return self.history()

    def history(self) -> CellHistory:
        """What was replayed so far. Raises HistoryError where nothing has closed yet."""
        pane_ms = self._config.windows.pane_ms
        generation, source = semantic_hash(self._config), self._feed.source
        found = CellHistory.of_state(self.state, self._key, generation, pane_ms, source, self._counts())
        return found if found.start == "cold" else replace(found, start=self._feed.start)

    # --- what was read, to the shards

    def _bring_until_end(self, batch: FeedBatch) -> None:
        """Once every input has ended only panes with a score close, and the live run may have been further by its
        clocks before. So the end of an input, and what follows it, waits for all the others."""
        if (ended := self._ended.get(batch.input_key)) is not None:
            ended.append(batch)
            return
        before, end = _cut_at_end(batch)
        self._bring(before)
        if end is not None:
            self._ended[batch.input_key] = [end]

    def _bring(self, batch: FeedBatch) -> None:
        mark = self._marks[batch.input_key]
        if batch.records.start != mark.next:
            raise HistoryError(f"{batch.input_key}: {batch.records.start} comes behind {mark.next}")
        self._put_signatures(batch)
        judged = judge_records(batch.input_key, batch.records, mark.clock_ms, self._shards.count, self._settings)
        self._marks[batch.input_key] = judged.mark
        if (held := self._held.get(batch.input_key)) is None:
            self._apply(judged, range(self._shards.count))
        else:
            held.add(batch.records)
            self._release(batch.input_key, held)

    def _put_signatures(self, batch: FeedBatch) -> None:
        """With the newest event time, by which the dictionary is split, as the monitor puts them."""
        if not batch.signatures:
            return
        newest_ms = max(self._newest_ms, int(batch.records.rows.event_time_ms.max(initial=0)))
        if newest_ms // SIGNATURE_EPOCH_MS != self._newest_ms // SIGNATURE_EPOCH_MS:
            self._known_signatures.clear()
        self._newest_ms = newest_ms
        new = {h: values for h, values in batch.signatures.items() if h not in self._known_signatures}
        if new:
            self.state.put_signatures(new, newest_ms)
            self._known_signatures.update(new)

    def _apply(self, batch: InputBatch, to: Sequence[int]) -> None:
        if self._intake.apply([batch], to):
            raise HistoryError(f"{batch.input_key}: the replay has lost what comes before {batch.start}")

    def _release(self, input_key: str, held: HeldInput) -> None:
        held.release(self._cuts.limits(input_key, self._next_pane()), self._apply)

    # --- closing

    def _is_due(self) -> bool:
        """Whether the clocks have moved so far that another pane may close or mature."""
        s = self._settings
        scores, labels = (self._least_clock(side) for side in ("s", "l"))
        closes = None if scores is None else (scores - s.score_lateness_ms) // s.pane_ms
        matures = None
        if scores is not None and labels is not None:
            least = min(scores - s.score_lateness_ms, labels - s.label_lateness_ms)
            matures = (least - s.horizon_ms) // s.pane_ms
        before, self._reached = self._reached, (closes, matures)
        return before != self._reached or bool(self._held) or self._leaves_out

    def _least_clock(self, side: str) -> int | None:
        return least_of_all([mark.clock_ms for i, mark in self._marks.items() if i[0] == side])

    def _advance(self) -> None:
        while True:
            pane = self._next_pane()
            moved = self._closer.advance(self._most_matured(pane))
            if self._next_pane() != pane:
                for input_key, held in self._held.items():
                    self._release(input_key, held)
            elif not moved:
                return

    def _next_pane(self) -> int:
        """The one to be matured next; -1 before the first one is known."""
        matured = self.state.read(("matured",))["matured"]
        return -1 if matured is None else int(matured) + 1

    def _most_matured(self, pane: int) -> int:
        """How many panes from this one on may be matured with what is left out now."""
        if cut := self._cuts.cut(pane):
            progress = self._shards.progress()
            stands = all(
                progress[int(shard)].marks[i].next == position
                for i, by_shard in cut.items()
                for shard, position in by_shard.items()
            )
            return int(stands)
        if pane <= self._cuts.last_pane:
            uncut = self._cuts.uncut_from(pane)
            return min(self._cuts.last_pane + 1 - pane, _ALL if uncut is None else uncut)
        return _ALL

    def _left_out(self) -> Mapping[str, int]:
        """As the cut of the pane to be matured next has it; behind the known ones, inputs of which nothing more comes,
        and which others have passed, as the monitors leave out what is idle."""
        pane = self._next_pane()
        if pane <= self._cuts.last_pane:
            return {i: min(by_shard.values()) for i, by_shard in self._cuts.cut(pane).items()}
        if not self._leaves_out:
            return {}
        clocks = {i: -1 if m.clock_ms is None else m.clock_ms for i, m in self._marks.items() if i[0] == "l"}
        newest = max(clocks.values(), default=-1)
        silent = self._feed.at_end - self._ended.keys()
        return {i: self._marks[i].next for i, clock in clocks.items() if clock < newest and i in silent}

    # --- figures

    def _counts(self) -> dict[str, int]:
        total = Counter[str](self._feed.rejects)
        fields = self.state.read(("first_pane", "matured", KEPT))
        kept = kept_of(fields)
        first = -1 if kept is None else kept.first_pane
        matured = int(fields["matured"] or -1)
        for start in range(max(first, 0), matured + 1, _PANES_A_READ):
            panes = range(start, min(start + _PANES_A_READ, matured + 1))
            for blob in self.state.blobs([PaneNames.of(pane).record for pane in panes]):
                record = decode_record(blob or b"")
                total.update(record.counts)
                total.update({"labelled": record.labelled, "unlabelled": record.unlabelled})
        total.update(self._shards.counts_after(matured))
        total.update(self._shards.counts_before(first))
        return {name: n for name, n in sorted(total.items()) if n}


def _cut_at_end(batch: FeedBatch) -> tuple[FeedBatch, FeedBatch | None]:
    """The batch up to the record that ends its input, and what follows from there on."""
    records = batch.records
    ending = np.flatnonzero(records.clock_time_ms >= ENDED_CLOCK_MS)
    if not len(ending):
        return batch, None
    at = int(records.position[records.clock_record[ending[0]]])
    return batch._replace(records=records.until(at)), batch._replace(records=records.since(at))
