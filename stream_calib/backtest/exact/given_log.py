"""Deciding again beside a live decision log: what people did, and requests that expired or failed, happen at their
panes as live; everything else is made again and must come out the same.

This works because live decisions are a pure function of cells and log. An entry from outside the closer carries the
pane at which it takes effect, and nothing is decided without having seen it; a request names its panes and the hash of
their cells. So the entries alone say in which order things were, whenever that was by the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stream_calib.alerts.outbox import DROPPED as OUTBOX_DROPPED
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.policies.stepping import Stepper
from stream_calib.config import Config
from stream_calib.errors import HistoryError, SnapshotError, StateError
from stream_calib.snapshot.canonical import sha256_hex
from stream_calib.snapshot.changes import REFIT_LEASE
from stream_calib.snapshot.decision_log import Entry, Expired, Request, Settled, chain, decode_entry
from stream_calib.snapshot.operator_entries import Approve, Manual, Pin, Reject, Rollback, Shadow, Unpin
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.decision_commits import expired_commit
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import StateStore

_FIELDS = ("log_length", "tip", "decided", "detector", OUTBOX_DROPPED)
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class LiveDecisions:
    """What a live run had decided at one moment: its whole decision log, as raw entries, and what goes with it."""

    entries: Sequence[bytes]
    last_pane: int | None
    """The last pane that was decided; None: none."""
    detector: str | None
    """The step's carried state then."""
    outbox: Sequence[bytes]
    """Alert events up to then, without those that were dropped."""
    outbox_is_whole: bool
    """Whether none was dropped."""
    reports: Sequence[bytes]
    """Of requests, as far as they are kept."""

    @classmethod
    def of_state(cls, state: StateStore) -> LiveDecisions:
        """As it is now. Raises HistoryError where entries were dropped: what they did cannot be done again; StateError
        where the log does not lead to its tip, or the state does not stand still for a moment."""
        for _ in range(_ATTEMPTS):
            fields = state.read(_FIELDS)
            length = int(fields["log_length"] or 0)
            entries, outbox = state.entries("decisions", 0, length), state.entries("outbox", 0)
            if state.read(_FIELDS) != fields:
                continue
            if len(entries) < length:
                raise HistoryError(
                    f"of the {length} entries of the decision log the oldest {length - len(entries)} were dropped"
                    " (retention.publications), so its decisions cannot be made again from the first pane on; its cells"
                    " can be compared"
                )
            if chain(None, entries) != fields["tip"]:
                raise StateError(
                    f"the {length} entries of the decision log do not lead to its tip {fields['tip']}: the model key's"
                    " state is damaged; restore it from a backup"
                )
            decided = fields["decided"]
            last_pane = None if decided is None else int(decided)
            is_whole = not int(fields[OUTBOX_DROPPED] or 0)
            return cls(entries, last_pane, fields["detector"], outbox, is_whole, state.entries("reports", 0))
        raise StateError("the state was changed at every look; try again when it is at rest")


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the log that was made again left the live one."""

    entry: int
    """Its number in the log."""
    pane: int
    live: str
    """The entry, or that there was none."""
    replayed: str


class GivenReplay:
    """Decides a history again. `stepper` has the state that comes of it."""

    def __init__(self, history: CellHistory, config: Config, live: LiveDecisions) -> None:
        """Raises HistoryError where the history does not begin where the log does."""
        if history.start != "exact":
            raise HistoryError(
                "this history is cold: it does not begin with the first pane that the live run decided, so its decision"
                " log does not fit to it"
            )
        self.divergence: Divergence | None = None
        """None as long as the logs are the same."""
        self._live = live
        self._expected = [decode_entry(raw) for raw in live.entries]
        self._reports = {sha256_hex(raw): raw for raw in live.reports}
        self._next = 0
        """Entries up to here are the same in both logs."""
        self._told = 0
        self._now_ms: list[int] = []
        self.stepper = Stepper(history, config, before_pane=self._enter)
        key, generation = history.key, history.generation
        self._people = SnapshotStore(self.stepper.state, key, generation, history.pane_ms, lambda: self._now_ms.pop(0))

    @property
    def state(self) -> MemoryState:
        return self.stepper.state

    @property
    def decided(self) -> int:
        """The last pane that was decided again."""
        return int(self.state.read(("decided",))["decided"] or -1)

    @property
    def outbox(self) -> Sequence[bytes]:
        """Alert events of what the live run had decided; an answer that it had not yet is not told."""
        return self.state.entries("outbox", 0, self._told)

    @property
    def same(self) -> int:
        """Entries of the decision log that are the same in both, from its beginning."""
        return self._next

    def run(self, on_pane: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Decides up to where the live run has, or the history goes, or the logs part. `on_pane` hears of panes done
        and of panes in all."""
        first = self.stepper.history.first_pane
        last = first - 1 if self._live.last_pane is None else self._live.last_pane
        if last < first:
            self._enter(first)  # what people asked for before anything was decided
        done = min(self.stepper.last_pane, last)
        for pane in range(first, done + 1):
            self.stepper.step(pane)
            if self.divergence is not None:
                return
            on_pane(pane + 1 - first, done + 1 - first)
        if done == last and self._next < len(self._expected):
            self._part(last + 1, "nothing")

    # --- the log

    def _enter(self, pane: int) -> None:
        """Everything that the live log has between the decisions of the pane before and of this one."""
        while self._compare(pane) and self._next < len(self._expected):
            entry = self._expected[self._next]
            if entry.pane > pane or (entry.pane == pane and isinstance(entry, Request)):
                break
            if entry.pane < pane:
                self._part(pane, "nothing")
                break
            try:
                self._act(entry)
            except (SnapshotError, StateError, HistoryError) as error:
                self._part(pane, f"{type(error).__name__}: {error}")
                break
            if self.state.length("decisions") == self._next:
                self._part(pane, "nothing")
        self._told = self.state.length("outbox")

    def _compare(self, pane: int) -> bool:
        """Takes note of what the replay has added to its log; whether it is the same as live."""
        if self.divergence is not None:
            return False
        added = self.state.entries("decisions", self._next)
        for raw in added:
            if self._next == len(self._live.entries):
                return False  # the live run has not come so far
            if raw != self._live.entries[self._next]:
                self._part(pane, raw.decode())
                return False
            self._next += 1
        return True

    def _part(self, pane: int, replayed: str) -> None:
        live = self._live.entries[self._next].decode() if self._next < len(self._live.entries) else "no entry"
        self.divergence = Divergence(self._next, pane, live, replayed)

    # --- its entries

    def _act(self, entry: Entry) -> None:
        if isinstance(entry, Settled):
            if entry.outcome == "failed":
                self._fail(entry)
            else:
                self.stepper.answer()
        elif isinstance(entry, Expired):
            self._expire(entry)
        elif not isinstance(entry, Request):
            self._people_act(entry)

    def _people_act(self, entry: Entry) -> None:
        people = self._people
        assert not isinstance(entry, Request | Settled | Expired)
        by = entry.actor, entry.reason
        self._now_ms = [entry.time_ms]
        if isinstance(entry, Manual):
            people.request_manual(*by)
        elif isinstance(entry, Rollback):
            pin = self._expected[self._next + 1] if self._next + 1 < len(self._expected) else None
            # A pin of another version rolls back to it in the same step.
            if isinstance(pin, Pin) and (pin.version, pin.pane, pin.actor, pin.reason) == (
                entry.version,
                entry.pane,
                *by,
            ):
                self._now_ms.append(pin.time_ms)
                people.pin(pin.version, *by)
            else:
                people.rollback(entry.version, *by)
        elif isinstance(entry, Pin):
            people.pin(entry.version, *by)
        elif isinstance(entry, Unpin):
            people.unpin(*by)
        elif isinstance(entry, Approve):
            people.approve(entry.version, *by)
        elif isinstance(entry, Reject):
            people.reject(entry.version, *by)
        elif isinstance(entry, Shadow):
            people.shadow(entry.version, *by)
        else:
            people.unshadow(*by)

    def _fail(self, entry: Settled) -> None:
        """What made the live refit fail (a damaged state, a worker of another configuration) is not in the cells."""
        raw = self._reports.get(entry.report_sha256)
        if raw is None:
            raise HistoryError(f"the report of request {entry.request_id}, which failed, is not kept any more")
        self._people.settle(RefitReport.decode(raw), self._token())

    def _expire(self, entry: Expired) -> None:
        fields, log = self.stepper.reader.read(("decided",))
        request, pane = log.open_request, entry.pane
        if request is None:
            raise StateError(f"request {entry.request_id} expires while none is open")
        expect = {"decided": fields["decided"], "tip": fields["tip"]}
        told = self.stepper.decider.expired(request, pane)
        self.state.commit(expired_commit(expect, log.tip, log.length, request=request, pane=pane, outbox=told))

    def _token(self) -> str:
        return self.state.read((f"token:{REFIT_LEASE}",))[f"token:{REFIT_LEASE}"] or ""
